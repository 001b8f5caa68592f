"""The same requests to BMv2's server and to ours: the same entries are read, the same mistakes refused with the same code.

Where they differ on purpose, ours does what the specification says.
"""

import contextlib
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import text_format

from netsum_common.p4rt import code_pb2, p4info_pb2, p4runtime_pb2, p4runtime_pb2_grpc
from tests.raw_p4runtime import RawClient
from tests.sim.p4runtime.p4runtime_client import (
    DEADLINE_S,
    DELETE,
    DEVICE,
    INSERT,
    MODIFY,
    PROGRAMS,
    Bench,
    details,
)
from tests.sim.p4runtime.test_p4runtime_tables import REFUSED

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.skipif(
        shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on PATH"
    ),
]

DIFFERENT = {
    "value too wide": ("OUT_OF_RANGE", "INVALID_ARGUMENT"),
    "parameter too wide": ("OUT_OF_RANGE", "INVALID_ARGUMENT"),
    "range over everything": ("INVALID_ARGUMENT", None),
    "is_const": ("INVALID_ARGUMENT", None),
}
"""(ours, BMv2's), None being accepted."""


def free_port() -> Any:
    """A TCP port outside of those that the system hands out, so that no process gets it meanwhile."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port


class Bmv2Bench(Bench):
    """BMv2 with the same program, without ports."""

    def __init__(self, program: str = "entities") -> None:
        self.stack = contextlib.ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="bmv2-"))
        address = f"unix:{folder}/p4runtime"
        command = ["simple_switch_grpc", "--no-p4", "--device-id", str(DEVICE)]
        command += [
            "--thrift-port",
            str(free_port()),
            "--notifications-addr",
            f"ipc://{folder}/notifications",
        ]
        process = subprocess.Popen(
            [*command, "--", "--grpc-server-addr", address, "--cpu-port", "510"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.stack.callback(process.wait, DEADLINE_S)
        self.stack.callback(process.kill)
        channel = self.stack.enter_context(grpc.insecure_channel(address))
        grpc.channel_ready_future(channel).result(DEADLINE_S)
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        self.json = PROGRAMS / f"{program}.json"
        self.p4info_path = PROGRAMS / f"{program}.p4info.txtpb"
        self.p4info = text_format.Parse(self.p4info_path.read_text(), p4info_pb2.P4Info())
        self.client = RawClient(DEVICE, address, (0, 10))
        self.stack.callback(self.client.tear_down)
        self.client.set_fwd_pipe_config(str(self.p4info_path), str(self.json))


@pytest.fixture(scope="module")
def bmv2() -> Iterator[Bmv2Bench]:
    made = Bmv2Bench()
    yield made
    made.close()


def outcome(bench: Bench, kind: Any, entity: Any) -> str | None:
    """The code an update is refused with; None if it is accepted, and then undone."""
    try:
        bench.write(kind, entity)
    except grpc.RpcError as error:
        (detail,) = details(error)
        return str(code_pb2.Code.Name(detail.canonical_code))
    bench.write(DELETE, entity)
    return None


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_are_refused_alike(shared: Bench, bmv2: Bench, name: str) -> None:
    kind, entity, _ = REFUSED[name](shared)
    ours = outcome(shared, kind, entity)
    theirs = outcome(bmv2, kind, entity)
    assert (ours, theirs) == DIFFERENT.get(name, (ours, ours))


def test_entries_read_alike(shared: Bench, bmv2: Bench) -> None:
    def entries(bench: Bench) -> list[Any]:
        member = p4runtime_pb2.ActionProfileMember(action_profile_id=bench.id("spread"), member_id=3)
        member.action.CopyFrom(bench.action("forward", 1))
        group = p4runtime_pb2.ActionProfileGroup(action_profile_id=bench.id("spread"), group_id=4, max_size=5)
        group.members.add(member_id=3, weight=2)
        pointing = bench.entry("selector_table", {1: 1})
        pointing.action.action_profile_group_id = 4
        one_shot = bench.entry("one_shot_table", {1: 1})
        each = one_shot.action.action_profile_action_set.action_profile_actions.add(weight=2)
        each.action.CopyFrom(bench.action("forward", 1))
        multicast = p4runtime_pb2.MulticastGroupEntry(multicast_group_id=3)
        multicast.replicas.add(egress_port=1, instance=2)
        clone = p4runtime_pb2.CloneSessionEntry(session_id=3)
        clone.replicas.add(egress_port=1, instance=2)
        return [
            bench.entry(
                "exact_table",
                {1: 1, 2: 2},
                ("mark_and_forward", 0, 511),
                metadata=b"m",
                controller_metadata=9,
            ),
            bench.entry("lpm_table", {1: ("lpm", 0x0A000000, 8)}, ("forward", 1)),
            bench.entry("lpm_table", {}, ("drop",)),
            bench.entry("ternary_table", {2: 5}, ("forward", 1), priority=7),
            bench.entry("range_table", {1: ("range", 1, 9), 2: ("optional", 0)}, ("forward", 1), priority=1),
            bench.entry("idle_table", {1: 1}, ("forward", 1), idle_timeout_ns=3600 * 10**9),
            member,
            group,
            pointing,
            one_shot,
            multicast,
            clone,
            p4runtime_pb2.DigestEntry(digest_id=bench.id("learned_t")),
        ]

    for bench in (shared, bmv2):
        for entity in entries(bench):
            bench.write(INSERT, entity)
    for entity in entries(shared):
        if isinstance(entity, p4runtime_pb2.TableEntry):
            entity = p4runtime_pb2.TableEntry(table_id=entity.table_id)
        elif isinstance(entity, p4runtime_pb2.DigestEntry):
            entity = p4runtime_pb2.DigestEntry(digest_id=entity.digest_id)
        assert sorted(map(str, shared.read(entity))) == sorted(map(str, bmv2.read(entity)))
    for bench in (shared, bmv2):
        for entity in reversed(entries(bench)):
            bench.write(DELETE, entity)


@pytest.mark.parametrize("alias", ["exact_table", "lpm_table", "keyless_table", "range_table"])
def test_default_entries_read_alike(shared: Bench, bmv2: Bench, alias: str) -> None:
    wanted = shared.entry(alias, is_default_action=True)
    assert shared.read(wanted) == bmv2.read(wanted)
    if alias == "lpm_table":
        changed = shared.entry(alias, action=("forward", 3), is_default_action=True)
        for bench in (shared, bmv2):
            bench.write(MODIFY, changed)
        assert shared.read(wanted) == bmv2.read(wanted) == [changed]
        for bench in (shared, bmv2):
            bench.write(MODIFY, wanted)
        assert shared.read(wanted) == bmv2.read(wanted)


def test_counters_and_meters_read_alike(shared: Bench, bmv2: Bench) -> None:
    counter = p4runtime_pb2.CounterEntry(counter_id=shared.id("bytes_seen"))
    counter.index.index, counter.data.byte_count = 3, 77
    meter = p4runtime_pb2.MeterEntry(meter_id=shared.id("packet_meter"))
    meter.index.index = 2
    for field, value in {"cir": 1000, "cburst": 2, "pir": 2000, "pburst": 4}.items():
        setattr(meter.config, field, value)
    for bench in (shared, bmv2):
        bench.write(MODIFY, counter, meter)
    for wanted in (
        p4runtime_pb2.CounterEntry(counter_id=counter.counter_id),
        p4runtime_pb2.MeterEntry(meter_id=meter.meter_id),
    ):
        assert shared.read(wanted) == bmv2.read(wanted)


def test_the_program_reads_back_alike(bmv2: Bench) -> None:
    ours = Bench()
    try:
        for wanted in p4runtime_pb2.GetForwardingPipelineConfigRequest.ResponseType.values():
            request = p4runtime_pb2.GetForwardingPipelineConfigRequest(device_id=DEVICE, response_type=wanted)
            answers = [
                bench.stub.GetForwardingPipelineConfig(request, timeout=DEADLINE_S).config
                for bench in (ours, bmv2)
            ]
            assert answers[0] == answers[1]
    finally:
        ours.close()
