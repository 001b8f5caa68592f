"""Programs and batches: every action of SetForwardingPipelineConfig, what can be read back, atomicity, error details."""

import json
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.internal import builder

from netsum_common.p4rt import p4runtime_pb2
from sim.switch.p4runtime import P4RuntimeServer
from sim.switch.ports import Chassis
from tests.raw_p4runtime import RawClient
from tests.sim.p4runtime.p4runtime_client import (
    DEADLINE_S,
    DELETE,
    DEVICE,
    INSERT,
    LEARN,
    MODIFY,
    PROGRAMS,
    STATE,
    TABLES,
    Bench,
    number,
    probe,
)

SetRequest = p4runtime_pb2.SetForwardingPipelineConfigRequest
GetRequest = p4runtime_pb2.GetForwardingPipelineConfigRequest


def config_of(bench: Bench, cookie: int | None = None) -> p4runtime_pb2.ForwardingPipelineConfig:
    config = p4runtime_pb2.ForwardingPipelineConfig(p4_device_config=bench.json.read_bytes())
    config.p4info.CopyFrom(bench.p4info)
    if cookie is not None:
        config.cookie.cookie = cookie
    return config


def set_config(bench: Bench, action: Any, config: Any = None, device: int = DEVICE, low: int = 10) -> Any:
    request = SetRequest(device_id=device, action=action, config=config)
    request.election_id.low = low
    return bench.stub.SetForwardingPipelineConfig(request, timeout=60)


def get_config(bench: Bench, wanted: Any = GetRequest.ALL) -> p4runtime_pb2.ForwardingPipelineConfig:
    request = GetRequest(device_id=DEVICE, response_type=wanted)
    answer: p4runtime_pb2.GetForwardingPipelineConfigResponse = bench.stub.GetForwardingPipelineConfig(
        request, timeout=DEADLINE_S
    )
    return answer.config


def refused(call: Callable[..., object], *arguments: Any, **options: Any) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **options)
    return caught.value.code().name, caught.value.details()


def test_the_program_can_be_read_back_in_parts(bare: Bench) -> None:
    config = config_of(bare, cookie=0xFFFF_FFFF_FFFF_FFFF)
    set_config(bare, SetRequest.VERIFY_AND_COMMIT, config)
    assert get_config(bare) == config
    assert get_config(bare, GetRequest.COOKIE_ONLY) == p4runtime_pb2.ForwardingPipelineConfig(
        cookie=config.cookie
    )
    parts = get_config(bare, GetRequest.P4INFO_AND_COOKIE)
    assert (parts.p4info, parts.p4_device_config, parts.cookie) == (config.p4info, b"", config.cookie)
    parts = get_config(bare, GetRequest.DEVICE_CONFIG_AND_COOKIE)
    assert (parts.HasField("p4info"), parts.p4_device_config) == (False, config.p4_device_config)


def test_without_a_cookie_none_comes_back(bare: Bench) -> None:
    set_config(bare, SetRequest.VERIFY_AND_COMMIT, config_of(bare))
    assert not get_config(bare).HasField("cookie")


def test_before_there_is_a_program_nothing_works(bare: Bench) -> None:
    assert refused(get_config, bare)[0] == "FAILED_PRECONDITION"
    assert bare.read_refused(p4runtime_pb2.TableEntry()) == "FAILED_PRECONDITION"
    request = bare.request((INSERT, p4runtime_pb2.TableEntry()))
    assert refused(bare.stub.Write, request)[0] == "FAILED_PRECONDITION"
    assert bare.inject(1, b"lost") == []
    assert bare.chassis.unforwarded["no_program"] == 1


def test_other_devices_are_not_found(bench: Bench) -> None:
    config = config_of(bench)
    assert refused(set_config, bench, SetRequest.VERIFY, config, device=9)[0] == "NOT_FOUND"
    request = p4runtime_pb2.ReadRequest(device_id=9)
    assert refused(lambda: list(bench.stub.Read(request)))[0] == "NOT_FOUND"
    assert refused(bench.stub.Write, p4runtime_pb2.WriteRequest(device_id=9))[0] == "NOT_FOUND"
    assert refused(bench.stub.GetForwardingPipelineConfig, GetRequest(device_id=9))[0] == "NOT_FOUND"


def test_only_the_primary_may_set_the_program(bench: Bench) -> None:
    assert refused(set_config, bench, SetRequest.VERIFY, config_of(bench), low=9)[0] == "PERMISSION_DENIED"


def test_committing_a_program_clears_the_state(bench: Bench) -> None:
    bench.write(INSERT, bench.entry("lpm_table", {}, ("forward", 3)))
    set_config(bench, SetRequest.VERIFY_AND_COMMIT, config_of(bench))
    assert bench.one(TABLES) is None
    assert bench.read(bench.entry("lpm_table")) == []


def test_verifying_changes_nothing(bench: Bench) -> None:
    entry = bench.entry("lpm_table", {}, ("forward", 3))
    bench.write(INSERT, entry)
    set_config(bench, SetRequest.VERIFY, config_of(bench, cookie=5))
    assert not get_config(bench).HasField("cookie")
    assert bench.read(bench.entry("lpm_table")) == [entry]


def test_a_saved_program_is_written_to_and_packets_meet_it_once_it_is_committed(bench: Bench) -> None:
    bench.write(INSERT, bench.entry("lpm_table", {}, ("forward", 3)))
    set_config(bench, SetRequest.VERIFY_AND_SAVE, config_of(bench, cookie=5))
    assert bench.read(bench.entry("lpm_table")) == []
    bench.write(INSERT, bench.entry("lpm_table", {}, ("forward", 4)))
    assert bench.one(TABLES)[0] == 3
    set_config(bench, SetRequest.COMMIT)
    assert bench.one(TABLES)[0] == 4
    assert get_config(bench).cookie.cookie == 5
    assert refused(set_config, bench, SetRequest.COMMIT)[0] == "NOT_FOUND"


def everything(bench: Bench) -> tuple[list[Any], list[Any]]:
    """State of every kind."""
    member = p4runtime_pb2.ActionProfileMember(action_profile_id=bench.id("spread"), member_id=1)
    member.action.CopyFrom(bench.action("forward", 1))
    group = p4runtime_pb2.ActionProfileGroup(action_profile_id=bench.id("spread"), group_id=1)
    group.members.add(member_id=1, weight=2)
    one_shot = bench.entry("one_shot_table", {1: 7})
    each = one_shot.action.action_profile_action_set.action_profile_actions.add(weight=1)
    each.action.CopyFrom(bench.action("forward", 1))
    pointing = bench.entry("selector_table", {1: 7})
    pointing.action.action_profile_group_id = 1
    multicast = p4runtime_pb2.MulticastGroupEntry(multicast_group_id=1)
    multicast.replicas.add(egress_port=1, instance=2)
    clone = p4runtime_pb2.CloneSessionEntry(session_id=1)
    clone.replicas.add(egress_port=1, instance=2)
    inserted = [member, group, one_shot, pointing, multicast, clone]
    inserted.append(bench.entry("lpm_table", {}, ("forward", 3), metadata=b"m"))
    inserted.append(p4runtime_pb2.DigestEntry(digest_id=bench.id("learned_t")))
    default = bench.entry("range_table", action=("forward", 1), is_default_action=True)
    counter = p4runtime_pb2.CounterEntry(counter_id=bench.id("both_seen"))
    counter.index.index, counter.data.packet_count = 3, 7
    meter = p4runtime_pb2.MeterEntry(meter_id=bench.id("packet_meter"))
    meter.index.index, meter.config.cir, meter.config.pir = 3, 7, 8
    register = p4runtime_pb2.RegisterEntry(register_id=bench.id("words"))
    register.index.index, register.data.bitstring = 3, number(7)
    value_set = p4runtime_pb2.ValueSetEntry(value_set_id=bench.id("special_a"))
    value_set.members.add().match.add(field_id=1).exact.value = number(7)
    return inserted, [default, counter, meter, register, value_set]


def state(bench: Bench) -> list[Any]:
    """All that can be read of the switch."""
    kinds: dict[str, Any] = {
        "action_profile_member": p4runtime_pb2.ActionProfileMember(),
        "action_profile_group": p4runtime_pb2.ActionProfileGroup(),
        "meter_entry": p4runtime_pb2.MeterEntry(),
        "counter_entry": p4runtime_pb2.CounterEntry(),
        "register_entry": p4runtime_pb2.RegisterEntry(),
        "value_set_entry": p4runtime_pb2.ValueSetEntry(),
        "digest_entry": p4runtime_pb2.DigestEntry(),
    }
    wanted = [p4runtime_pb2.Entity(**{name: message}) for name, message in kinds.items()]
    wanted += [
        p4runtime_pb2.Entity(table_entry=p4runtime_pb2.TableEntry(is_default_action=default))
        for default in (False, True)
    ]
    engine = p4runtime_pb2.PacketReplicationEngineEntry
    for entry in (
        engine(multicast_group_entry=p4runtime_pb2.MulticastGroupEntry()),
        engine(clone_session_entry=p4runtime_pb2.CloneSessionEntry()),
    ):
        wanted.append(p4runtime_pb2.Entity(packet_replication_engine_entry=entry))
    return [each for entity in wanted for each in bench.read(entity)]


def fill(bench: Bench) -> None:
    inserted, modified = everything(bench)
    for entity in inserted:
        bench.write(INSERT, entity)
    bench.write(MODIFY, *modified)


def test_reconciling_with_the_same_program_keeps_everything(bench: Bench) -> None:
    fill(bench)
    bench.one(STATE, a=5, c=9)
    before = state(bench)
    set_config(bench, SetRequest.RECONCILE_AND_COMMIT, config_of(bench, cookie=3))
    assert state(bench) == before
    assert get_config(bench).cookie.cookie == 3


def test_reconciling_with_another_program_carries_the_state_over(bench: Bench) -> None:
    """The other program differs in code, not in what controllers see."""
    fill(bench)
    bench.one(STATE, a=5, c=9)
    before = state(bench)
    config = config_of(bench)
    document = json.loads(config.p4_device_config)
    document["parsers"][0]["name"] = "another"
    config.p4_device_config = json.dumps(document).encode()
    set_config(bench, SetRequest.RECONCILE_AND_COMMIT, config)
    assert state(bench) == before
    assert bench.one(TABLES)[0] == 3


def test_reconciling_is_refused_when_the_state_does_not_fit(bench: Bench) -> None:
    bench.write(INSERT, bench.entry("lpm_table", {}, ("forward", 3)))
    other = Bench("echo", set_config=False)
    config = config_of(other)
    other.close()
    assert refused(set_config, bench, SetRequest.RECONCILE_AND_COMMIT, config)[0] == "INVALID_ARGUMENT"
    assert bench.one(TABLES)[0] == 3


def test_wrong_configurations_are_refused_with_a_reason(bench: Bench) -> None:
    config = config_of(bench)
    for action in (SetRequest.VERIFY, SetRequest.VERIFY_AND_SAVE, SetRequest.VERIFY_AND_COMMIT):
        assert refused(set_config, bench, action)[0] == "INVALID_ARGUMENT"
    assert refused(set_config, bench, SetRequest.UNSPECIFIED, config)[0] == "INVALID_ARGUMENT"
    assert refused(set_config, bench, SetRequest.COMMIT, config)[0] == "INVALID_ARGUMENT"

    for device_config in (b"not JSON", b"\xff\xfe", b"[]", b"{}"):
        config.p4_device_config = device_config
        assert refused(set_config, bench, SetRequest.VERIFY, config)[0] == "INVALID_ARGUMENT"

    document = json.loads(bench.json.read_bytes())
    document["actions"][5]["primitives"].append({"op": "teleport", "parameters": []})
    config.p4_device_config = json.dumps(document).encode()
    code, message = refused(set_config, bench, SetRequest.VERIFY_AND_COMMIT, config)
    assert code == "INVALID_ARGUMENT"
    assert "teleport" in message
    assert get_config(bench).p4_device_config == bench.json.read_bytes()


def test_a_p4info_of_another_program_is_refused(bench: Bench) -> None:
    mixed = config_of(bench)
    mixed.p4_device_config = (PROGRAMS / "echo.json").read_bytes()
    code, message = refused(set_config, bench, SetRequest.VERIFY, mixed)
    assert code == "INVALID_ARGUMENT"
    assert "not of the same program" in message

    changes: dict[str, Callable[[Any], object]] = {
        "key": lambda info: setattr(info.tables[0].match_fields[0], "bitwidth", 31),
        "actions": lambda info: info.tables[0].action_refs.add(id=1),
        "parameters": lambda info: setattr(info.actions[3].params[0], "bitwidth", 10),
        "cells": lambda info: setattr(info.counters[0], "size", 15),
        "does not have": lambda info: info.meters.pop(),
        "wide": lambda info: setattr(info.registers[0].type_spec.bitstring.bit, "bitwidth", 16),
    }
    for reason, change in changes.items():
        config = config_of(bench)
        change(config.p4info)
        code, message = refused(set_config, bench, SetRequest.VERIFY, config)
        assert code == "INVALID_ARGUMENT"
        assert reason in message


def test_what_the_compiler_left_out_is_unknown_and_the_rest_works(bare: Bench) -> None:
    config = config_of(bare)
    extra = config.p4info.counters.add()
    extra.CopyFrom(bare.p4info.counters[0])
    extra.preamble.id += 1
    extra.preamble.name = "ProbeIngress.unreachable"
    set_config(bare, SetRequest.VERIFY_AND_COMMIT, config)
    counter = p4runtime_pb2.CounterEntry(counter_id=extra.preamble.id)
    assert bare.read_refused(counter) == "INVALID_ARGUMENT"
    assert len(bare.read(p4runtime_pb2.CounterEntry())) == 48
    assert get_config(bare).p4info == config.p4info


def test_a_digest_without_a_type_of_its_own_has_other_names_in_p4info_and_program(bare: Bench) -> None:
    config = config_of(bare)
    (digest,) = config.p4info.digests
    digest.preamble.name = digest.preamble.alias = "digest_0"
    digest.type_spec.Clear()
    for width in (48, 9):
        digest.type_spec.tuple.members.add().bitstring.bit.bitwidth = width
    set_config(bare, SetRequest.VERIFY_AND_COMMIT, config)
    bare.write(INSERT, p4runtime_pb2.DigestEntry(digest_id=digest.preamble.id))
    bare.inject(3, probe(LEARN, d=7))
    (data,) = bare.client.get_stream_packet("digest", timeout=DEADLINE_S).digest.data
    assert [member.bitstring for member in data.tuple.members] == [number(7), number(3)]


def test_types_without_bits_are_refused_where_they_are_used(bare: Bench) -> None:
    """As the compiler writes keys of type error, and those translated to other widths or to text."""
    config = config_of(bare)
    exact = config.p4info.tables[0].match_fields
    exact[0].ClearField("bitwidth")
    exact[1].bitwidth, exact[1].type_name.name = 32, "port_t"
    set_config(bare, SetRequest.VERIFY_AND_COMMIT, config)
    entry = bare.entry("exact_table", {1: 1, 2: 2}, ("drop",))
    assert bare.refused(INSERT, entry)[0] == "UNIMPLEMENTED"
    bare.write(INSERT, bare.entry("lpm_table", {}, ("forward", 1)))
    assert bare.one(TABLES)[0] == 1


# Batches


def three(bench: Bench) -> list[Any]:
    """A batch whose second and fourth updates fail."""
    good = bench.entry("lpm_table", {1: ("lpm", 1 << 24, 8)}, ("forward", 1))
    bad = bench.entry("lpm_table", {1: ("lpm", 1 << 24, 8)}, ("forward", 2))
    last = bench.entry("lpm_table", {1: ("lpm", 2 << 24, 8)}, ("forward", 2))
    return [(INSERT, good), (INSERT, bad), (INSERT, last), (DELETE, bench.entry("exact_table", {1: 1, 2: 1}))]


def test_every_update_of_a_batch_has_its_own_outcome(bench: Bench) -> None:
    codes = [code for code, _ in bench.outcomes(*three(bench))]
    assert codes == ["OK", "ALREADY_EXISTS", "OK", "NOT_FOUND"]
    assert len(bench.read(bench.entry("lpm_table"))) == 2


@pytest.mark.parametrize("atomicity", ["ROLLBACK_ON_ERROR", "DATAPLANE_ATOMIC"])
def test_an_atomic_batch_is_carried_out_as_a_whole_or_not_at_all(bench: Bench, atomicity: str) -> None:
    fill(bench)
    bench.one(STATE, a=5, c=9)
    before = state(bench)
    atomicity = p4runtime_pb2.WriteRequest.Atomicity.Value(atomicity)
    inserted, modified = everything(bench)
    undo = [(DELETE, entity) for entity in reversed(inserted)] + three(bench)
    codes = [code for code, _ in bench.outcomes(*undo, atomicity=atomicity)]
    assert codes == ["ABORTED"] * (len(inserted) + 1) + ["ALREADY_EXISTS"] + ["ABORTED"] * 2
    assert state(bench) == before
    # An undone change can be made: nothing was left behind.
    request = bench.request(*((DELETE, entity) for entity in reversed(inserted)), atomicity=atomicity)
    bench.stub.Write(request, timeout=DEADLINE_S)
    for entity in inserted:
        bench.write(INSERT, entity)
    bench.write(MODIFY, *modified)
    assert state(bench) == before


def test_an_unknown_atomicity_is_refused(bench: Bench) -> None:
    request = bench.request(atomicity=7)
    assert refused(bench.stub.Write, request, timeout=DEADLINE_S)[0] == "INVALID_ARGUMENT"


def test_an_empty_batch_succeeds(bench: Bench) -> None:
    bench.stub.Write(bench.request(), timeout=DEADLINE_S)


@pytest.mark.parametrize("count", [100, 150])
def test_errors_of_a_large_batch_fit_into_what_a_client_takes(bench: Bench, count: int) -> None:
    updates = [(DELETE, bench.entry("exact_table", {1: n, 2: 1})) for n in range(count)]
    outcomes = bench.outcomes(*updates)
    assert [code for code, _ in outcomes] == ["NOT_FOUND"] * count


def test_writes_of_many_controllers_do_not_lose_each_other(bench: Bench) -> None:
    """Sixteen batches at once, each its own entries."""
    requests = [
        bench.request(
            *(
                (INSERT, bench.entry("lpm_table", {1: ("lpm", (b * 4 + n) << 24, 8)}, ("forward", 1)))
                for n in range(4)
            )
        )
        for b in range(16)
    ]
    calls = [bench.stub.Write.future(request, timeout=DEADLINE_S) for request in requests]
    for call in calls:
        call.result()
    assert len(bench.read(bench.entry("lpm_table"))) == 64


def p4_device_config(program: bytes) -> bytes:
    """`p4.tmp.P4DeviceConfig` {reassign: true, device_data: the program}, as p4lang's tutorials send it."""
    file = descriptor_pb2.FileDescriptorProto(name="tutorials.proto", package="tutorials", syntax="proto3")
    message = file.message_type.add(name="P4DeviceConfig")
    kinds = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="reassign", number=1, type=kinds.TYPE_BOOL, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="device_data", number=3, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    module: dict[str, Any] = {}
    builder.BuildMessageAndEnumDescriptors(pool.FindFileByName(file.name), module)
    builder.BuildTopDescriptorsAndMessages(pool.FindFileByName(file.name), __name__, module)
    return bytes(module["P4DeviceConfig"](reassign=True, device_data=program).SerializeToString())


def test_a_program_wrapped_as_the_tutorials_wrap_it(bare: Bench) -> None:
    config = config_of(bare)
    config.p4_device_config = p4_device_config(config.p4_device_config)
    set_config(bare, SetRequest.VERIFY_AND_COMMIT, config)
    assert get_config(bare) == config
    bare.write(INSERT, bare.entry("lpm_table", {1: ("lpm", 10 << 24, 8)}, ("forward", 3)))
    assert bare.one(TABLES, a=10 << 24)[0] == 3


@pytest.mark.parametrize("cut", [1, 3, 1000])
def test_a_wrapped_program_that_is_cut_off_is_refused(bare: Bench, cut: int) -> None:
    config = config_of(bare)
    config.p4_device_config = p4_device_config(config.p4_device_config)[:cut]
    assert refused(set_config, bare, SetRequest.VERIFY_AND_COMMIT, config)[0] == "INVALID_ARGUMENT"


def test_the_switch_may_be_device_0() -> None:
    with P4RuntimeServer(Chassis(), "127.0.0.1:0", device_id=0) as server:
        client = RawClient(0, server.address, (0, 1))
        client.set_fwd_pipe_config(str(PROGRAMS / "echo.p4info.txtpb"), str(PROGRAMS / "echo.json"))
        client.tear_down()


def test_capabilities(bench: Bench) -> None:
    answer = bench.stub.Capabilities(p4runtime_pb2.CapabilitiesRequest(), timeout=DEADLINE_S)
    assert answer.p4runtime_api_version == "1.4.1"
