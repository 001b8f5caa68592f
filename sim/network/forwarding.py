"""Fast-forward: skips whole periods of a run that repeats except for time and chunk numbers.

The state of a part of a network, with times and chunk numbers relative to the present ones, determines its future. If the state
equals an earlier one, the events since then repeat until an event from outside interrupts them. They need not be run: times
advance by whole periods, counters by their growth in one period, and the arrays have fewer blocks left to reduce.
docs/simulator.md lists the parts of the state and why they suffice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from controller.jobs import Job
from host_agent.protocol.records import COUNTERS
from host_agent.wire.constants import HEADER_BYTES, HEADER_OFFSET_CHUNK, HEADER_OFFSET_EXPONENT, POOL_VERSIONS
from sim.frames import HEADERS_BYTES
from sim.network.engine.engine_records import NEVER, PS_PER_NS
from sim.network.engine.events import HEAP_WORDS
from sim.network.engine.packets import FRAME_AT, PAYLOAD_AT, SLOT_PROTOCOL
from sim.network.engine.periods import (
    CHUNKS,
    COUNTS,
    IRREGULAR,
    SLOT_WORDS,
    WORKER_WORDS,
    blocks_left,
    count_workers,
    describe_workers,
    next_loss,
    packets_under_way,
    shift_events,
    skip_workers,
)
from sim.network.graph import Node
from sim.network.network import Network
from sim.network.worker import Worker

Array = npt.NDArray[Any]

_GOES_ON: Final = ("packets_sent", "bytes_sent", "packets_received", "bytes_received", "chunks", "completed")
_MAY_COUNT: Final = np.array([*(name in _GOES_ON for name in COUNTERS), True])
_FATES: Final = ("jitter_ps", "duplicate", "straggle", "bursts", "scripted")
"""Fields of faults that rule out fast-forward on a link; losses do not, as the next lost packet is known ahead."""
_LINK_COUNTS: Final = ("packets", "bytes", "busy_total_ps", "thrown_loss")
_LINK_TROUBLES: Final = ("lost", "lost_in_queue", "lost_too_long", "lost_while_down", "duplicated", "marked")
_SWITCH_COUNTS: Final = ("packets", "busy_total_ps", "lost_in_queue", "unreachable")
_LEAST_PERIODS: Final = 3  # A pass with fewer periods of slots left is run to its end.
_FRAME_BYTES: Final = PAYLOAD_AT + HEADER_BYTES
_CHUNK_AT: Final = HEADERS_BYTES + HEADER_OFFSET_CHUNK
_EXPONENT_AT: Final = HEADERS_BYTES + HEADER_OFFSET_EXPONENT


@dataclass
class _Snapshot:
    """The state of a group and its counters at a time."""

    now_ps: int
    control: int  # How often Python had changed the network by then.
    state: list[Array]
    workers: Array  # int64 (workers, COUNTS)
    links: Array  # int64 (links, counters)
    switches: Array
    counters: list[Array]


@dataclass(frozen=True)
class _Job:
    workers: list[Worker]
    nodes: list[Node]  # Nodes that its packets pass.
    parts: dict[Node, Job]
    repeats: bool


@dataclass
class _Group:
    """Jobs connected by shared switches or hosts; no two groups share any."""

    number: int
    workers: Array
    links: Array
    switches: Array  # Rows of `engine_records.SWITCH`.
    registers: list[tuple[str, Array]]  # The cells of its slots, by the register's last name.
    counters: list[Array]
    alone: bool  # No other traffic passes its nodes.
    leader: int = -1  # The worker at whose RESULTs the state is compared.
    before: _Snapshot | None = None
    samples: int = 0  # Samples since `before`, which is replaced after 1, 2, 4, … samples (Brent 1980).
    most_samples: int = 1
    # The number of the next packet that each link loses.
    losses: dict[int, int] = field(default_factory=dict)

    def discard(self) -> None:
        self.before, self.samples, self.most_samples = None, 0, 1


class FastForward:
    """Skips periods of a network's jobs.

    `skipped_events`, `skipped_chunks`, `jumps`: the number of events, of all workers' chunks, and of jumps skipped so far.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self.skipped_events = self.skipped_chunks = self.jumps = 0
        # Python's changes of the network so far; states before and after a change are not compared.
        self.control = 0
        self._jobs: list[_Job] = []
        self._groups: list[_Group] | None = None

    def add_job(
        self,
        workers: list[Worker],
        ends: Iterable[tuple[Node, Node]],
        parts: dict[Node, Job],
        repeats: bool,
    ) -> None:
        """Add a job: skip its periods or, if it does not repeat, run it and all jobs of its group in full.

        `ends`: each worker's host and the switch that it sends to. `parts`: the job's part on each switch that adds.
        `repeats`: whether all blocks are sent alike, which excludes jobs with blocks of zeros, values that are not finite, or a
        quorum.
        """
        network = self._network
        nodes = {each for pair in ends for way in network.there_and_back(*pair) for each in way}
        self._jobs.append(_Job(workers, [*nodes, *parts], parts, repeats))
        self._groups = None

    def touched(self, number: int) -> None:
        """Note that Python has polled a worker, which may have begun a pass."""
        group = self._group_of(number)
        if group is None:
            return
        group.discard()
        rows = self._network.worker_records
        leader = rows[group.leader] if group.leader >= 0 else None
        if leader is None or leader["sample_at"] == NEVER or not leader["alive"]:
            group.leader = number
            self._sample_later(group)

    def skip(self, number: int, until_ps: int) -> None:
        """Compare the state at a worker's RESULT with an earlier one; if the two are equal, skip periods."""
        group = self._group_of(number)
        if group is None or group.leader != number:
            self._network.worker_records[number]["sample_at"] = NEVER
            return
        if self._no_loss_is_near(group):
            self._compare(group, until_ps)
        else:
            group.discard()
        self._sample_later(group)

    def _sample_later(self, group: _Group) -> None:
        worker = self._network.workers[group.leader]
        slots = POOL_VERSIONS * worker.admission.slot_count
        left = self._left(np.array([group.leader]))[0]
        samples = left > _LEAST_PERIODS * slots and group.alone and not self._network.world["trace_room"]
        worker.record["sample_at"] = worker.core.state["chunks"][0] + slots if samples else NEVER

    def _left(self, numbers: Array) -> Array:
        left = np.zeros(len(numbers), np.int64)
        blocks_left(self._network.world, numbers, left)
        return left

    def _no_loss_is_near(self, group: _Group) -> bool:
        """Whether no link will lose any of its next packets, as many as three samples take."""
        links = self._network.link_records[group.links]
        if any(links[name].any() for name in _FATES):
            return False
        worker = self._network.workers[group.leader]
        least = 2 * _LEAST_PERIODS * POOL_VERSIONS * worker.admission.slot_count
        return all(
            self._next_loss(group, at, least) > links[at]["thrown_loss"] + least
            for at in np.flatnonzero(links["loss"]).tolist()
        )

    def _next_loss(self, group: _Group, at: int, most: int) -> int:
        """Return the number of the next packet that a link of a group loses; search the next `most` packets only."""
        link = int(group.links[at])
        row = self._network.link_records[link]
        known, thrown = group.losses.get(at, 0), int(row["thrown_loss"])
        if known <= thrown + most:
            seed, chance = int(self._network.world["seed"][0]), int(row["loss"])
            if known <= thrown or next_loss(seed, link, known - 1, chance, 1) != known:
                known = group.losses[at] = int(next_loss(seed, link, max(thrown, known - 1), chance, most))
        return known

    def _compare(self, group: _Group, until_ps: int) -> None:
        found = self._snapshot(group)
        if found is None:
            group.discard()
            return
        now, control_ps = found
        before = group.before
        if before is not None and before.control == now.control:
            if all(map(np.array_equal, before.state, now.state)):
                self._skip(group, before, now, min(until_ps, control_ps - 1))
                group.discard()
                return
            group.samples += 1
            if group.samples < group.most_samples:
                return
            group.most_samples *= 2
        group.before, group.samples = now, 0

    def _snapshot(self, group: _Group) -> tuple[_Snapshot, int] | None:
        """Return a group's snapshot and the time of Python's next event; None while the state is not regular, as after a loss."""
        network, now_ps = self._network, self._network.now_ps
        slots = sum(network.workers[each].admission.slot_count for each in group.workers)
        words = np.empty(WORKER_WORDS * len(group.workers) + SLOT_WORDS * slots, np.int64)
        length = describe_workers(network.world, group.workers, words)
        if length == IRREGULAR:
            return None
        rows = network.link_records[group.links]
        busy_ps = np.maximum(rows["busy_ps"] - now_ps, 0)
        switches = network.switch_records[group.switches]
        if not rows["up"].all() or not switches["alive"].all() or switches["pending"].any():
            return None
        packets, control_ps = self._under_way(group)
        described = self._packets(packets, group)
        if described is None:
            return None
        state = [
            np.array([now_ps % PS_PER_NS]),
            words[:length],
            busy_ps,
            np.where(busy_ps > 0, rows["remainder"], 0),
            np.maximum(switches["busy_ps"] - now_ps, 0),
            *described,
            *self._cells(group),
        ]
        counts = np.empty((len(group.workers), COUNTS), np.int64)
        count_workers(network.world, group.workers, counts)
        names = (*_LINK_COUNTS, *_LINK_TROUBLES)
        return _Snapshot(
            now_ps,
            self.control,
            state,
            counts,
            np.stack([rows[name] for name in names], axis=1),
            np.stack([switches[name] for name in _SWITCH_COUNTS], axis=1),
            [each.copy() for each in group.counters],
        ), control_ps

    def _under_way(self, group: _Group) -> tuple[Array, int]:
        """Return (time, tie, link, packet) of packets on a group's links by arrival, and the time of Python's next event."""
        network = self._network
        out = np.empty((int(network.world["packet_room"][0]), 4), np.int64)
        count, control_ps = packets_under_way(network.world, self._group_of_link, group.number, out)
        found = out[:count]
        return found[np.lexsort((found[:, 1], found[:, 0]))], int(control_ps)

    def _packets(self, packets: Array, group: _Group) -> list[Array] | None:
        """Describe packets in flight without their values; return None if one is not of the slot protocol."""
        memory = self._network.memory
        records = memory.get("packets")
        assert records is not None
        rows = records[packets[:, 3]]
        if (rows["kind"] != SLOT_PROTOCOL).any():
            return None
        frames = memory.frames[packets[:, 3], FRAME_AT:_FRAME_BYTES]
        chunks = frames[:, _CHUNK_AT : _CHUNK_AT + 4].copy().view(">u4")[:, 0]
        frames[:, _CHUNK_AT : _CHUNK_AT + 4] = 0
        frames[:, _EXPONENT_AT : _EXPONENT_AT + 2] = 0
        names = ("length", "wire_bytes", "target", "marked")
        return [
            packets[:, 0] - self._network.now_ps,
            packets[:, 2],
            chunks.astype(np.uint32) - self._chunk(group),
            frames,
            *[rows[name] for name in names],
        ]

    def _chunk(self, group: _Group) -> np.uint32:
        """Return the number to which a group's other chunk numbers are relative."""
        next_chunk = int(self._network.workers[group.leader].core.state["next_chunk"][0])
        return np.uint32(next_chunk & 0xFFFFFFFF)

    def _cells(self, group: _Group) -> list[Array]:
        return [
            cells - self._chunk(group) if name == "slot_chunk" else cells.copy()
            for name, cells in group.registers
        ]

    def _skip(self, group: _Group, before: _Snapshot, now: _Snapshot, last_ps: int) -> None:
        """Advance a group by as many periods as end by `last_ps`, before a pass ends, and before a packet is lost."""
        network = self._network
        period_ps = now.now_ps - before.now_ps
        workers, links = now.workers - before.workers, now.links - before.links
        troubles = workers[:, ~_MAY_COUNT].any() or links[:, len(_LINK_COUNTS) :].any()
        if troubles or not workers[:, CHUNKS].all():
            return
        times = min(
            int((self._left(group.workers) // workers[:, CHUNKS]).min()), (last_ps - now.now_ps) // period_ps
        )
        for at in np.flatnonzero(network.link_records["loss"][group.links]).tolist():
            thrown, more = int(now.links[at, 3]), int(links[at, 3])
            if more and times > 0:
                times = min(times, (self._next_loss(group, at, times * more) - 1 - thrown) // more)
        if times <= 0:
            return
        shift_ps, world = times * period_ps, network.world
        packets, _ = self._under_way(group)
        records = network.memory.get("packets")
        heap = network.memory.get("heap")
        assert records is not None
        assert heap is not None
        for name in ("arrive_ps", "sent_ps"):
            records[name][packets[:, 3]] += shift_ps
        shift_events(world, self._group_of_link, self._group_of_worker, group.number, shift_ps)
        events = heap.reshape(-1, HEAP_WORDS)[: int(world["heap_count"][0])]
        events[:] = events[np.lexsort((events[:, 1], events[:, 0]))]
        skip_workers(world, group.workers, times * workers, shift_ps)
        rows, switches, handled = network.link_records, network.switch_records, now.switches - before.switches
        # A link that no packet has passed in the period is idle: a busy one would differ in the state.
        rows["busy_ps"][group.links[links[:, 0] > 0]] += shift_ps
        switches["busy_ps"][group.switches[handled[:, 0] > 0]] += shift_ps
        for at, name in enumerate(_LINK_COUNTS):
            rows[name][group.links] += times * links[:, at]
        for at, name in enumerate(_SWITCH_COUNTS):
            switches[name][group.switches] += times * handled[:, at]
        for cells, old, new in zip(group.counters, before.counters, now.counters, strict=True):
            cells += (new - old) * np.uint64(times)
        events_skipped = times * int(links[:, 0].sum())  # A packet that is sent arrives once.
        world["events"] += events_skipped
        self.skipped_events += events_skipped
        self.skipped_chunks += times * int(workers[:, CHUNKS].sum())
        self.jumps += 1

    # Groups.

    def _group_of(self, number: int) -> _Group | None:
        if self._groups is None:
            self._build_groups()
        assert self._groups is not None
        at = self._group_of_worker[number] if number < len(self._group_of_worker) else -1
        return self._groups[at] if at >= 0 else None

    def _build_groups(self) -> None:
        network = self._network
        above = np.arange(len(network.nodes))

        def top(node: int) -> int:
            while above[node] != node:
                above[node] = above[above[node]]
                node = int(above[node])
            return node

        def join(nodes: Sequence[Node]) -> None:
            for node in nodes:
                above[top(node.number)] = top(nodes[0].number)

        for job in self._jobs:
            join(job.nodes)
        busy = []
        pairs = [network.flows.rows[["source", "target"]], network.generator_records[["source", "target"]]]
        for source, target in np.unique(np.concatenate(pairs)).tolist():
            for way in ((source, target), (target, source)):
                nodes = network.way(*(network.nodes[each] for each in way))
                join(nodes)
                busy.append(nodes[0])
        tops: dict[int, list[_Job]] = {}
        for job in self._jobs:
            tops.setdefault(top(job.nodes[0].number), []).append(job)
        crowded = {top(node.number) for node in busy}
        numbers = {node: number for number, node in enumerate(tops)}
        of_node = np.array([numbers.get(top(node.number), -1) for node in network.nodes], np.int64)
        links = network.link_records
        self._group_of_link = np.where(
            of_node[links["from_node"]] == of_node[links["to_node"]], of_node[links["from_node"]], -1
        )
        self._group_of_worker = np.full(len(network.workers), -1, np.int64)
        self._groups = [
            self._group(number, jobs, of_node, node not in crowded and all(job.repeats for job in jobs))
            for number, (node, jobs) in enumerate(tops.items())
        ]

    def _group(self, number: int, jobs: list[_Job], of_node: Array, alone: bool) -> _Group:
        network = self._network
        workers = [each.number for job in jobs for each in job.workers if each.alive]
        self._group_of_worker[workers] = number
        switches = np.flatnonzero(of_node[network.switch_records["node"]] == number)
        engines = {
            int(network.switch_records[at]["node"]): network.programmed[at] for at in switches.tolist()
        }
        registers: list[tuple[str, Array]] = []
        counters: list[Array] = []
        for node, part in (each for job in jobs for each in job.parts.items()):
            programmed = engines[node.number]
            assert programmed is not None
            first, last = (POOL_VERSIONS * each for each in (part.slots.base, part.slots.end))
            for name in programmed.engine.program.registers:
                short = name.rpartition(".")[2]
                if short.startswith("slot_") and short != "slot_exponent":
                    registers.append((short, programmed.engine.register_view(name)[first:last]))
        for programmed in engines.values():
            counters += programmed.engine.counter_arrays() if programmed is not None else []
        return _Group(
            number,
            np.array(workers, np.int64),
            np.flatnonzero(self._group_of_link == number),
            switches,
            registers,
            counters,
            alone,
        )
