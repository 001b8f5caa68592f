"""The two back ends of the compiler beside each other: random packets, random entries, the same packets out, the same memory."""

import os
import random
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from llvmlite import ir as ll

from netsum_common.lane_counts import LINK_LANES
from netsum_common.targets import TARGETS
from sim.switch import Exact, Packets, TableEntry, ir, load_program
from sim.switch.bpf import emit, syscall
from sim.switch.bpf.controls import IN_SECOND
from sim.switch.bpf.emit import FLAGS, OBSERVED, BpfFn
from sim.switch.bpf.loading import Kernel
from sim.switch.bpf.programs import REPLICA
from sim.switch.bpf.switch import XdpSwitch
from sim.switch.codegen.emit import I32, I64, Fn
from tests.dataplane.dataplane import xdp
from tests.dataplane.dataplane.embedded import EmbeddedTarget
from tests.dataplane.dataplane.frames import (
    ARP,
    CONGESTED,
    IPV4,
    LANES,
    MAX,
    SUM,
    TCP,
    UDP,
    UNKNOWN,
    ethernet,
    internet_checksum,
    ipv4,
    udp,
)
from tests.dataplane.dataplane.jobs import SWITCH_IP, SWITCH_MAC, Job, worker_at
from tests.dataplane.dataplane.target import PORTS, Entry, Packet, program_files
from tests.dataplane.dataplane.tree import PARENT_PORT, PlacedJob
from tests.dataplane.test_hostile_packets import mutated

pytestmark = [pytest.mark.root, pytest.mark.skipif(xdp.why_not() is not None, reason=str(xdp.why_not()))]

LONG = "NETSUM_LONG_TESTS" in os.environ
COUNT = 500_000 if LONG else 5_000
BATCH, EPOCHS = 500, 4
RUNS = 500_000
FLOOD, CPU = 300, 510


OWN = Entry("switch_address", {"address": SWITCH_IP}, "own_address", {"mac": SWITCH_MAC})


class Both:
    """The embedded engine and the kernel, with the same entries."""

    kind = TARGETS["xdp"]
    growth_bytes = kind.growth_bytes

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.targets = [EmbeddedTarget(lanes), xdp.XdpTarget(lanes)]
        self.can = self.targets[0].can
        self.targets[0].set_default("packet_growth", "limit", {"bytes": self.growth_bytes})

    def close(self) -> None:
        for target in self.targets:
            target.close()

    def set_up(self, group: int, replicas: Sequence[tuple[int, int]], entries: Iterable[Entry]) -> None:
        rows = list(entries)
        for target in self.targets:
            target.set_up(group, replicas, rows)

    def tear_down(self, group: int, entries: Iterable[Entry]) -> None:
        rows = list(entries)
        for target in self.targets:
            target.tear_down(group, rows)

    def check(self, packets: list[Packet]) -> None:
        """Run packets through both, and compare the output and the memory."""
        batch = Packets.of(packets)
        one, other = (list(target.switch.inject(batch, 0)) for target in self.targets)
        if one != other:  # An assertion would have pytest compute the difference of all, for seconds.
            apart = enumerate(zip([*one, None], [*other, None], strict=False))
            raise AssertionError(next((n, a, b) for n, (a, b) in apart if a != b))
        first, second = (target.switch for target in self.targets)
        for name in first.program.registers:
            assert (first.register_view(name) == second.register_view(name)).all(), name

    def check_counters(self) -> None:
        """Compare all counters."""
        first, second = (target.switch for target in self.targets)
        for counter in first.program.counters.values():
            for index in range(counter.size if counter.table is None else 0):
                assert first.counter_read(counter.name, index) == second.counter_read(counter.name, index)
        for table in first.program.tables.values():
            for entry in first.table_entries(table.name) if table.with_counters else []:
                read = [s.direct_counter_read(table.name, entry) for s in (first, second)]
                assert read[0] == read[1], entry


@pytest.fixture(params=LINK_LANES)
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    made = Both(request.param)
    try:
        for target in made.targets:
            target.insert([OWN])
        yield made
    finally:
        made.close()


def random_jobs(source: random.Random, both: Any, epoch: int) -> list[Job]:
    """Make jobs of random sizes at random, sometimes the same, slots; some below a parent, some with a quorum."""
    jobs: list[Job] = []
    for job_id in range(1, source.randint(3, 6)):
        workers = source.randint(1, PORTS - 1 if job_id % 3 == 0 else 12)
        given = {
            "job_id": job_id,
            "epoch": epoch,
            "token": source.getrandbits(32),
            "workers": workers,
            "slot_base": source.choice((0, 8, 1000, 4092)),
            "slot_count": source.randint(1, 4),
        }
        job = (PlacedJob if job_id % 3 == 0 else Job)(both, **given)
        job.start()
        jobs.append(job)
    return jobs


def other_entries(source: random.Random) -> list[Entry]:
    """Make random entries of the other tables."""
    stations = {worker_at(source.randrange(40)).mac: source.choice((*range(PORTS), CPU)) for _ in range(20)}
    routes = {(source.getrandbits(32), source.randint(0, 32)): source.randrange(PORTS) for _ in range(12)}
    cut = {
        (address >> 32 - length << 32 - length if length else 0, length): p
        for (address, length), p in routes.items()
    }
    return [
        *(Entry("l2_forward", {"dst": mac}, "forward", {"port": port}) for mac, port in stations.items()),
        Entry("l2_forward", {"dst": 0xFFFFFFFFFFFF}, "flood", {"mcast_group": FLOOD}),
        *(
            Entry("l3_route", {"dst": prefix}, "route", {"port": p, "src_mac": source.getrandbits(48), "dst_mac": 7})
            for prefix, p in cut.items()
            if prefix[1]
        ),
        Entry("job_quorum", {"job_id": 1}, "set_quorum", {"workers": source.randint(1, 3)}),
        Entry("job_quorum", {"job_id": 2}, "set_quorum", {"workers": 2}),
    ]  # fmt: skip


def random_packet(source: random.Random, jobs: list[Job], lanes: int) -> Packet:
    """Make a packet: mostly of a job, some of other traffic, a third of all broken."""
    job, kind = source.choice(jobs), source.random()
    if kind < 0.75:
        worker, chunk = source.randrange(len(job.workers)), source.randint(0, 3 * job.slot_count)
        quorum = int(source.random() < 0.2)
        fields: dict[str, object] = {
            "op": source.choice((SUM, SUM, MAX, 3)),
            "exponent": source.randint(0, 3),
            "quorum": quorum,
            "completer": source.choice((worker, UNKNOWN)),
        }
        values = None
        if source.random() < 0.7:
            values = [*struct.unpack(f"{lanes}i", source.randbytes(4 * lanes))]
        flags = (LANES if values else 0) | (CONGESTED if source.random() < 0.1 else 0)
        if kind < 0.6:
            packet = job.contribution(worker, chunk, values, flags=flags, **fields)
        else:
            packet = job.probe(worker, chunk, **fields)
        if isinstance(job, PlacedJob) and source.random() < 0.4:
            packet = (
                job.result_of_parent(chunk, values)
                if source.random() < 0.5
                else job.status_of_parent(chunk, source.getrandbits(8), source.getrandbits(16))
            )
    elif kind < 0.85:
        source_ip, target_ip = source.getrandbits(32), source.choice((SWITCH_IP, source.getrandbits(32)))
        payload = source.randbytes(source.randint(0, 200))
        packet = source.randrange(PORTS), ethernet(
            source.choice((worker_at(source.randrange(40)).mac, 0xFFFFFFFFFFFF, SWITCH_MAC)),
            source.getrandbits(40),
            IPV4,
            ipv4(source_ip, target_ip, source.choice((TCP, UDP)), udp(1, 2, payload), ttl=source.randint(0, 3)),
        )  # fmt: skip
    elif kind < 0.92:
        echo = struct.pack("!BBHI", source.choice((0, 8)), 0, source.getrandbits(16), 1) + source.randbytes(
            24
        )
        echo = echo[:2] + struct.pack("!H", internet_checksum(echo[:2] + bytes(2) + echo[4:])) + echo[4:]
        packet = (
            source.randrange(PORTS),
            ethernet(SWITCH_MAC, 0x020000000001, IPV4, ipv4(1, SWITCH_IP, 1, echo)),
        )
    else:
        question = struct.pack("!HHBBHQ", 1, IPV4, 6, 4, source.choice((1, 1, 2)), 0x020000000001)[:-2]
        body = (question + source.randbytes(16))[:14] + struct.pack("!IHII", 1, 0, 0, SWITCH_IP)
        packet = source.randrange(PORTS), ethernet(0xFFFFFFFFFFFF, 0x020000000001, ARP, body)
    return mutated(source, packet) if source.random() < 0.3 else packet


@pytest.mark.skipif(os.cpu_count() == 1, reason="needs two processors")
def test_two_processors_that_add_to_a_slot_lose_nothing(tmp_path: Path) -> None:
    """The lock: of a program that forgets who contributed, so the kernel's repetitions of one packet all add."""
    assert sums_of_two_processors(tmp_path) == {2 * RUNS}


def sums_of_two_processors(tmp_path: Path) -> set[int]:
    """Add 1 to each lane of a slot `RUNS` times on each of two processors at once; return what lanes and counters hold."""
    program = load_program(program_files(64)[0])
    actions = {
        number: replace(action, primitives=tuple(p for p in action.primitives if not forgets(p)))
        for number, action in program.actions.items()
    }
    switch = XdpSwitch(replace(program, actions=actions), tmp_path)
    try:
        names = {
            name.rpartition(".")[2]: name for name in (*program.tables, *(a.name for a in actions.values()))
        }
        switch.table_insert(
            names["switch_address"], TableEntry((Exact(SWITCH_IP),), 0, names["own_address"], (SWITCH_MAC,))
        )
        worker = worker_at(0)
        key = (worker.port, worker.ip, 1, 0, 7)
        admitted = TableEntry(tuple(map(Exact, key)), 0, names["admit"], (1, 3, 2, 5, 0, 64, 1))
        switch.table_insert(names["worker_admission"], admitted)
        job = Job(lanes_alone(64), 1, 5, 7, 2, 0, 32)
        port, packet = job.contribution(0, 0, [1] * 64)
        stub = switch.kernel.stub("arrive", {"ingress_port": port, FLAGS: OBSERVED})

        together = Barrier(2)

        def run(processor: int) -> None:
            os.sched_setaffinity(0, {processor})
            together.wait()
            for _ in range(RUNS // 1000):
                syscall.run_once(stub, packet, 1000)

        threads = [Thread(target=run, args=(n,)) for n in sorted(os.sched_getaffinity(0))[:2]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lanes = {int(switch.register_view(n)[0]) for n in program.registers if ".lane_" in n}
        entry = switch.table_entries(names["worker_admission"])[0]
        contributions = next(n for n in program.counters if n.endswith(".contributions"))
        counted = {
            switch.counter_read(contributions, 1)[0],
            switch.direct_counter_read(names["worker_admission"], entry)[0],
            switch.kernel.port_counts(port)[0],
            switch.statistics["dropped_ingress"],
        }
        return lanes | counted
    finally:
        switch.close()


def forgets(primitive: ir.Primitive) -> bool:
    """Return whether a primitive notes who contributed."""
    array = primitive.args[0] if primitive.op == "register_write" else None
    return isinstance(array, ir.Named) and array.name.endswith("slot_seen")


def lanes_alone(lanes: int) -> Any:
    """Return the part of a target that a job needs to make packets."""
    return SimpleNamespace(lanes=lanes)


def test_random_packets_with_random_entries_do_the_same_in_both(both: Both) -> None:
    compare(both, COUNT)


def compare(both: Both, count: int) -> None:
    """Run random packets with random entries through both back ends; AssertionError if they differ."""
    source = random.Random(both.lanes)
    for epoch in range(1, EPOCHS + 1):
        jobs = random_jobs(source, both, epoch)
        entries = other_entries(source)
        both.set_up(FLOOD, [(port, 0) for port in range(PORTS)], entries)
        default = source.choice([("drop", {}), ("flood", {"mcast_group": FLOOD})])
        for target in both.targets:
            target.set_default("l2_forward", *default)
        for _ in range(count // BATCH // EPOCHS):
            packets = [random_packet(source, jobs, both.lanes) for _ in range(BATCH)]
            if source.random() < 0.1:
                packets.append((CPU, struct.pack("!H", source.randrange(PORTS)) + packets[0][1]))
            both.check(packets)
        for job in jobs:
            job.end()
        both.tear_down(FLOOD, entries)
    both.check_counters()
    assert PARENT_PORT < PORTS


def instead_of(name: str, *replaced: str) -> Callable[..., Any]:
    """Make a mutant of `BpfFn.helper`: some helpers of the kernel are not called, or with one argument changed."""
    original, change = BpfFn.helper, {"left out": None, "one less": -1, "other sign": 0}[name]

    def helper(self: Any, called: str, *arguments: Any) -> Any:
        if called not in replaced:
            return original(self, called, *arguments)
        if change is None:
            return ll.Constant(I64, 0)
        last = arguments[-1]
        less = self.b.or_(self.b.sub(last, ll.Constant(I64, 1)), ll.Constant(I64, 1))  # An even length.
        other = less if change else self.b.neg(last)
        return original(self, called, *arguments[:-1], other)

    return helper


def saturate_unsigned(self: Any, op: str, left: Any, right: Any, *, unsigned: bool) -> Any:
    return SATURATE(self, op, left, right, unsigned=True)


def replica_after(self: Any, name: str, values: dict[str, int]) -> int:
    return STUB(self, name, {k: v + (k == REPLICA) for k, v in values.items()})


def load_behind(self: Any, xdp: Any, at: Any, target: Any, size: int) -> None:
    LOAD(self, xdp, self.b.add(at, ll.Constant(I64, 1)), target, size)


def reach_behind(self: Any, at: Any, size: int, failed: int) -> Any:
    return REACH(self, self.b.add(at, ll.Constant(I32, 1)), size, failed)


def note_in_the_other_copy(self: Any, table: Any) -> None:
    NOTE(self, table)
    words = self.kernel.part(f"default {table.table.name}").view(np.uint64)
    words[0] ^= np.uint64(IN_SECOND)


SATURATE, STUB, WITHIN, LOAD, REACH = BpfFn.saturate, Kernel.stub, BpfFn.within, BpfFn.load_bytes, BpfFn.reach
NOTE = XdpSwitch._note_entries
MUTANTS: dict[str, tuple[type, str, Any]] = {
    "byte order of a lane that is read": (BpfFn, "load_slot", Fn.load_slot),
    "byte order of a lane that is written": (BpfFn, "store_slot", Fn.store_slot),
    "sums are of unsigned numbers": (BpfFn, "saturate", saturate_unsigned),
    "sums go round": (BpfFn, "saturate", lambda fn, op, a, b, unsigned: fn.b.add(a, b)),
    "headers are written one byte too far": (BpfFn, "reach", reach_behind),
    "a packet grows that should shrink": (
        BpfFn,
        "helper",
        instead_of("other sign", "xdp_adjust_tail", "xdp_adjust_head"),
    ),
    "state of the last packet is left": (BpfFn, "clear", lambda fn, target, size: None),
    "a copy is made for the next worker": (Kernel, "stub", replica_after),
    "no count of what passes": (BpfFn, "add", lambda fn, space, place, amount: None),
    "lanes are loaded from one byte too far": (BpfFn, "load_bytes", load_behind),
    "a table with entries is not looked up": (XdpSwitch, "_note_entries", lambda switch, table: None),
    "a table's only entry is in the other copy": (XdpSwitch, "_note_entries", note_in_the_other_copy),
    "an index is cut too short": (BpfFn, "within", lambda fn, at, n: WITHIN(fn, at, (n + 1) // 2)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_of_the_back_end_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[mutant])
    both = Both(64)
    try:
        for target in both.targets:
            target.insert([OWN])
        with pytest.raises(AssertionError):
            compare(both, 2000)
    finally:
        both.close()


@pytest.mark.skipif(os.cpu_count() == 1, reason="needs two processors")
def test_a_lock_that_is_left_out_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BpfFn, "helper", instead_of("left out", "spin_lock", "spin_unlock"))
    # On a busy machine the two may run one after the other.
    assert any(sums_of_two_processors(tmp_path) != {2 * RUNS} for _ in range(50))


@pytest.mark.skipif(os.cpu_count() == 1, reason="needs two processors")
def test_counts_of_two_processors_in_one_place_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emit, "PROCESSOR", "truncate")  # 0 on each.
    assert any(sums_of_two_processors(tmp_path) != {2 * RUNS} for _ in range(50))


def test_what_the_verifier_says_is_shown_with_the_place_in_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that is not cut makes an address that the verifier does not know; p4c's file says the line, or it is a name."""
    program = load_program(program_files(64)[0])
    monkeypatch.setattr(
        BpfFn, "within", lambda fn, at, n: fn.opaque(at) if 1024 < n < 1 << 14 else WITHIN(fn, at, n)
    )
    with pytest.raises(syscall.VerifierError, match=r"verifier refuses .* at table .*\.worker_admission$"):
        XdpSwitch(program, tmp_path)
    tables = {
        name: replace(table, place="admission.p4(12)") if name.endswith("worker_admission") else table
        for name, table in program.ingress.tables.items()
    }
    with pytest.raises(syscall.VerifierError, match=r"verifier refuses .*, at admission\.p4\(12\)$"):
        XdpSwitch(replace(program, ingress=replace(program.ingress, tables=tables)), tmp_path)
