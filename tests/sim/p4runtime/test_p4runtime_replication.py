"""Multicast groups and clone sessions over gRPC."""

from typing import Any

import pytest

from netsum_common.p4rt import p4runtime_pb2
from tests.sim.p4runtime.p4runtime_client import CLONE, DELETE, INSERT, MODIFY, MULTICAST, Bench, parse, probe


def group(identifier: int, *replicas: tuple[int, int], **rest: Any) -> p4runtime_pb2.MulticastGroupEntry:
    entry = p4runtime_pb2.MulticastGroupEntry(multicast_group_id=identifier, **rest)
    for port, instance in replicas:
        entry.replicas.add(egress_port=port, instance=instance)
    return entry


def session(identifier: int, *replicas: tuple[int, int], **rest: Any) -> p4runtime_pb2.CloneSessionEntry:
    entry = p4runtime_pb2.CloneSessionEntry(session_id=identifier, **rest)
    for port, instance in replicas:
        entry.replicas.add(egress_port=port, instance=instance)
    return entry


def copies(bench: Bench, identifier: int) -> list[tuple[int, int]]:
    left = bench.inject(3, probe(MULTICAST, b=identifier))
    return sorted((port, parse(frame)["mark"]) for port, frame in left)


def test_multicast_groups(bench: Bench) -> None:
    assert copies(bench, 7) == []
    bench.write(INSERT, group(7, (1, 10), (2, 20), (2, 21)))
    assert copies(bench, 7) == [(1, 10), (2, 20), (2, 21)]
    assert bench.read(group(7)) == [group(7, (1, 10), (2, 20), (2, 21))]
    bench.write(MODIFY, group(7, (5, 50), metadata=b"all of job 3"))
    assert copies(bench, 7) == [(5, 50)]
    bench.write(INSERT, group(8))
    assert bench.read(group(0)) == [group(7, (5, 50), metadata=b"all of job 3"), group(8)]
    bench.write(DELETE, group(7))
    assert copies(bench, 7) == []
    assert bench.read(group(0)) == [group(8)]
    assert bench.read_refused(group(7)) == "NOT_FOUND"


def test_ports_may_be_byte_strings_and_come_back_as_such(bench: Bench) -> None:
    entry = p4runtime_pb2.MulticastGroupEntry(multicast_group_id=7)
    entry.replicas.add(port=b"\x01\x02", instance=4)
    bench.write(INSERT, entry)
    assert copies(bench, 7) == [(258, 4)]
    assert bench.read(group(7)) == [entry]


@pytest.mark.parametrize(
    ("kind", "entry", "code"),
    [
        (INSERT, group(0, (1, 1)), "INVALID_ARGUMENT"),
        (INSERT, group(1 << 15, (1, 1)), "OUT_OF_RANGE"),
        (INSERT, group(1, (1, 1), (1, 1)), "INVALID_ARGUMENT"),
        (INSERT, group(1, (512, 1)), "INVALID_ARGUMENT"),
        (INSERT, group(1, (1, 1 << 16)), "INVALID_ARGUMENT"),
        (MODIFY, group(1, (1, 1)), "NOT_FOUND"),
        (DELETE, group(1), "NOT_FOUND"),
        (INSERT, session(0, (1, 1)), "INVALID_ARGUMENT"),
        (INSERT, session(1 << 15, (1, 1)), "INVALID_ARGUMENT"),
        (INSERT, session(1, (1, 1), (1, 1)), "INVALID_ARGUMENT"),
        (INSERT, session(1, (1, 1), class_of_service=1), "UNIMPLEMENTED"),
        (INSERT, session(1, (1, 1), packet_length_bytes=-1), "INVALID_ARGUMENT"),
        (MODIFY, session(1, (1, 1)), "NOT_FOUND"),
        (DELETE, session(1), "NOT_FOUND"),
    ],
)
def test_wrong_groups_and_sessions_are_refused(shared: Bench, kind: Any, entry: Any, code: str) -> None:
    assert shared.refused(kind, entry)[0] == code
    assert shared.read(group(0)) == shared.read(session(0)) == []


def test_groups_and_sessions_cannot_be_there_twice_and_need_ports(bench: Bench) -> None:
    bench.write(INSERT, group(1), session(1))
    assert bench.refused(INSERT, group(1))[0] == "ALREADY_EXISTS"
    assert bench.refused(INSERT, session(1))[0] == "ALREADY_EXISTS"
    portless = group(2)
    portless.replicas.add(instance=1)
    assert bench.refused(INSERT, portless)[0] == "INVALID_ARGUMENT"
    empty = p4runtime_pb2.Entity(packet_replication_engine_entry=p4runtime_pb2.PacketReplicationEngineEntry())
    assert bench.refused(INSERT, empty)[0] == "INVALID_ARGUMENT"


def test_clone_sessions(bench: Bench) -> None:
    packet = probe(CLONE, b=9, payload=b"x" * 100)
    assert [port for port, _ in bench.inject(3, packet)] == [1]
    bench.write(INSERT, session(9, (4, 1), (5, 2), packet_length_bytes=30))
    left = bench.inject(3, packet)
    assert sorted((port, len(frame)) for port, frame in left) == [(1, len(packet)), (4, 30), (5, 30)]
    assert bench.read(session(9)) == [session(9, (4, 1), (5, 2), packet_length_bytes=30)]
    bench.write(MODIFY, session(9, (6, 1)))
    assert sorted(port for port, _ in bench.inject(3, packet)) == [1, 6]
    bench.write(INSERT, session(10, (7, 0)))
    assert bench.read(session(0)) == [session(9, (6, 1)), session(10, (7, 0))]
    bench.write(DELETE, session(9))
    assert [port for port, _ in bench.inject(3, packet)] == [1]
    assert bench.read_refused(session(9)) == "NOT_FOUND"
