"""Nonsense from controllers: whatever a message holds, it is carried out or refused with a reason, and reads still work."""

import queue
import threading
import time
from random import Random
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from netsum_common.p4rt import p4runtime_pb2
from sim.switch import Packets
from sim.switch.p4runtime import BatchError, Code, P4RuntimeError
from tests.sim.p4runtime.p4runtime_client import (
    DEADLINE_S,
    DELETE,
    DEVICE,
    INSERT,
    MODIFY,
    TABLES,
    TO_CPU,
    Bench,
    entity_of,
    probe,
)

READABLE = (
    "table_entry",
    "action_profile_member",
    "action_profile_group",
    "meter_entry",
    "counter_entry",
    "direct_counter_entry",
    "direct_meter_entry",
    "value_set_entry",
    "digest_entry",
)


def repeated(field: Any) -> bool:
    """Whether a field is repeated; protobuf 3.20 knows `label`, newer versions `is_repeated`."""
    return bool(
        field.label == FieldDescriptor.LABEL_REPEATED if hasattr(field, "label") else field.is_repeated
    )


class Nonsense:
    """Random messages whose ids are mostly those of the program, so that they get far."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.random = Random(seed)
        self.ids = [
            each.preamble.id
            for kind in bench.p4info.DESCRIPTOR.fields
            if kind.name not in ("pkg_info", "type_info", "externs")
            for each in getattr(bench.p4info, kind.name)
        ]

    def number(self, bits: int) -> int:
        small = self.random.random() < 0.7
        return self.random.randrange(5) if small else self.random.getrandbits(bits)

    def scalar(self, field: Any) -> Any:
        kind = field.cpp_type
        if field.name in ("table_id", "action_id", "id") or field.name.endswith(
            ("_profile_id", "counter_id", "meter_id")
        ):
            return self.random.choice(self.ids)
        if kind == FieldDescriptor.CPPTYPE_STRING:
            binary = field.type == FieldDescriptor.TYPE_BYTES
            return self.random.randbytes(self.random.randrange(4)) if binary else "x"
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return self.random.random() < 0.3
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            return self.random.randrange(4)
        signed = kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
        value = self.number(31)
        return -value if signed and self.random.random() < 0.1 else value

    def fill(self, message: Any, depth: int = 0) -> Any:
        for field in message.DESCRIPTOR.fields:
            if self.random.random() > 0.75 or (field.containing_oneof and self.random.random() < 0.3):
                continue
            if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
                if repeated(field):
                    getattr(message, field.name).append(self.scalar(field))
                else:
                    setattr(message, field.name, self.scalar(field))
            elif depth < 5:
                if repeated(field):
                    for _ in range(self.random.randrange(3)):
                        self.fill(getattr(message, field.name).add(), depth + 1)
                else:
                    getattr(message, field.name).SetInParent()
                    self.fill(getattr(message, field.name), depth + 1)
        return message

    def mutate(self, message: Any) -> None:
        """Change one field somewhere in a message."""
        given = [
            value
            for field, value in message.ListFields()
            if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
        ]
        if given and self.random.random() < 0.8:
            chosen = self.random.choice(given)
            if not hasattr(chosen, "DESCRIPTOR"):
                if self.random.random() < 0.2:
                    self.fill(chosen.add(), 4)
                    return
                chosen = self.random.choice(list(chosen))
            self.mutate(chosen)
            return
        field = self.random.choice(message.DESCRIPTOR.fields)
        if self.random.random() < 0.3:
            message.ClearField(field.name)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            added = getattr(message, field.name)
            self.fill(added.add() if repeated(field) else added, 3)
        elif not repeated(field):
            setattr(message, field.name, self.scalar(field))


def corpus(bench: Bench) -> list[Any]:
    """Entities of every kind that make sense, whose keys come again."""
    entities = [
        bench.entry("exact_table", {1: 1, 2: 2}, ("count_and_forward", 1)),
        bench.entry("lpm_table", {1: ("lpm", 0x0A000000, 8)}, ("forward", 1)),
        bench.entry("ternary_table", {1: ("ternary", 1, 1), 2: 5}, ("metered_forward", 1), priority=1),
        bench.entry("range_table", {1: ("range", 1, 9), 2: ("optional", 1)}, ("forward", 1), priority=1),
        bench.entry("idle_table", {1: 1}, ("forward", 1), idle_timeout_ns=10**9),
        bench.entry("lpm_table", action=("forward", 1), is_default_action=True),
        p4runtime_pb2.CounterEntry(counter_id=bench.id("both_seen")),
        p4runtime_pb2.MeterEntry(meter_id=bench.id("packet_meter")),
        p4runtime_pb2.RegisterEntry(register_id=bench.id("octets")),
        p4runtime_pb2.ValueSetEntry(value_set_id=bench.id("special_a")),
        p4runtime_pb2.DigestEntry(digest_id=bench.id("learned_t")),
        p4runtime_pb2.MulticastGroupEntry(multicast_group_id=1),
        p4runtime_pb2.CloneSessionEntry(session_id=1),
        p4runtime_pb2.DirectCounterEntry(table_entry=bench.entry("exact_table", {1: 1, 2: 2})),
    ]
    for profile in ("profile", "spread"):
        member = p4runtime_pb2.ActionProfileMember(action_profile_id=bench.id(profile), member_id=1)
        member.action.CopyFrom(bench.action("forward", 1))
        entities.append(member)
    group = p4runtime_pb2.ActionProfileGroup(action_profile_id=bench.id("spread"), group_id=1)
    group.members.add(member_id=1, weight=1)
    pointing = bench.entry("selector_table", {1: 1})
    pointing.action.action_profile_group_id = 1
    one_shot = bench.entry("one_shot_table", {1: 1})
    each = one_shot.action.action_profile_action_set.action_profile_actions.add(weight=1)
    each.action.CopyFrom(bench.action("forward", 1))
    return [entity_of(entity) for entity in [*entities, group, pointing, one_shot]]


@pytest.mark.parametrize("seed", range(3))
def test_nonsense_is_carried_out_or_refused(bench: Bench, seed: int) -> None:
    device = bench.server.device
    nonsense = Nonsense(bench, seed)
    sense = corpus(bench)
    accepted, outcomes = 0, []
    for _ in range(1000):
        updates = []
        for _ in range(nonsense.random.choice([1, 1, 3])):
            update = p4runtime_pb2.Update(type=nonsense.random.choice([INSERT, MODIFY, DELETE]))
            if nonsense.random.random() < 0.1:
                nonsense.fill(update)
            else:
                update.entity.CopyFrom(nonsense.random.choice(sense))
                for _ in range(nonsense.random.choice([0, 0, 1, 2])):
                    nonsense.mutate(update)
            updates.append(update)
        try:
            device.write(updates, nonsense.random.choice([0, 0, 0, 1]))
            accepted += 1
        except BatchError as error:
            outcomes.append(error)
        wanted = nonsense.random.choice([nonsense.fill(p4runtime_pb2.Entity()), updates[0].entity])
        try:
            list(device.read([wanted]))
        except P4RuntimeError as error:
            outcomes.append(BatchError([error]))
    assert all(each.status().ByteSize() < 8192 for each in outcomes)
    codes = {each.code for error in outcomes for each in error.outcomes if each is not None}
    assert Code.UNKNOWN not in codes
    assert {Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE, Code.NOT_FOUND, Code.ALREADY_EXISTS} <= codes
    assert accepted > 100
    for name in READABLE:
        entity = p4runtime_pb2.Entity()
        message = getattr(entity, name)
        message.SetInParent()
        if name.startswith("direct"):
            message.table_entry.SetInParent()
        list(device.read([entity]))
    bench.inject(3, probe(TABLES))


def test_packets_and_writes_at_once(bench: Bench) -> None:
    """Packets pass while entries come and go: every packet meets a table as it was before or after some batch."""
    stop = threading.Event()
    seen, faults = set(), []

    def forward() -> None:
        try:
            while not stop.is_set():
                left = bench.one(TABLES, a=0x0A000001)
                seen.add(None if left is None else left[0])
        except Exception as fault:
            faults.append(fault)

    threads = [threading.Thread(target=forward) for _ in range(2)]
    for thread in threads:
        thread.start()
    entries = [
        bench.entry("lpm_table", {1: ("lpm", 0x0A000000, 8 + n)}, ("forward", 10 + n)) for n in range(8)
    ]
    deadline = time.monotonic() + DEADLINE_S
    rounds = 0
    while rounds < 20 or len(seen) < 2:
        assert time.monotonic() < deadline, seen
        bench.write(p4runtime_pb2.Update.INSERT, *entries)
        assert len(bench.read(bench.entry("lpm_table"))) == 8
        bench.write(p4runtime_pb2.Update.DELETE, *entries)
        rounds += 1
    stop.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert faults == []
    assert seen == {None, 17}
    assert bench.one(TABLES, a=0x0A000001) is None


def test_a_controller_that_does_not_listen_does_not_stop_the_switch(bench: Bench) -> None:
    """Packets for it pile up to a limit and are then dropped; others are served as before."""
    request = p4runtime_pb2.StreamMessageRequest()
    request.arbitration.device_id = DEVICE
    request.arbitration.election_id.low = 99
    requests: queue.Queue[Any] = queue.Queue()
    requests.put(request)
    deaf = bench.stub.StreamChannel(iter(requests.get, None))
    notice = bench.client.get_stream_packet("arbitration", timeout=DEADLINE_S)
    while notice.arbitration.election_id.low != 99:
        notice = bench.client.get_stream_packet("arbitration", timeout=DEADLINE_S)
    packets = Packets.of([(1, probe(TO_CPU, payload=b"x" * 1400))] * 100)
    for _ in range(100):
        assert len(bench.chassis.inject(packets)) == 100
    assert bench.read(bench.entry("lpm_table")) == []
    requests.put(None)
    deaf.cancel()
    while notice.arbitration.election_id.low != 10:
        notice = bench.client.get_stream_packet("arbitration", timeout=DEADLINE_S)
    bench.write(p4runtime_pb2.Update.INSERT, bench.entry("lpm_table", {}, ("forward", 3)))
    assert bench.one(TABLES)[0] == 3
