"""Builds what is explored: an embedded switch, programmed by the controller's own entries, and worker cores, in one record."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from controller.entries import Entry, address_entry, admission_entries, result_group, rewrite_entries
from controller.jobs import Job, WorkerEndpoint
from controller.slots import SlotRange
from controller.table_writer import Change
from host_agent.protocol.core import WorkerCore
from host_agent.protocol.records import CORE, PASS, PASS_RING, SLOT
from host_agent.wire.constants import HEADER_BYTES, KIND_CONTRIBUTE, LANE_BYTES, OP_SUM, VERSION
from host_agent.wire.header import Header
from sim.explore.engine.frames import (
    HEADERS_BYTES,
    SWITCH_IP,
    SWITCH_MAC,
    WORKER_UDP_PORT,
    headers,
    host_ip,
    host_mac,
)
from sim.explore.engine.packets import index_size, intern
from sim.explore.engine.packing import unlisted_fields
from sim.explore.engine.world import (
    ALIVE,
    AT_LIFE,
    AT_OVERTAKER,
    AT_SEQUENCE,
    ELEMENTS,
    HEAD_BYTES,
    HOST_BYTES,
    MAX_ENTRIES,
    MAX_PACKETS,
    SLOT_BYTES,
    TX_ROWS,
    UP,
    World,
)
from sim.explore.scenario import Scenario
from sim.explore.work import Task, make_task
from sim.explore.worker_code import WorkerCode, shipped_worker
from sim.programming import InProcessWriter
from sim.switch import Switch, load_program
from sim.switch.layout import Context

__all__ = ["System", "lanes_of"]

_TIMEOUT_NS = 1 << 60
_FIRST_EPOCH = 1
_SHIFT_OF_EPOCH = 0x9E3779B1


def lanes_of(program: Path) -> int:
    """Return how many lanes a packet of a compiled netsum program carries."""
    return sum(".lane_" in name for name in load_program(program).registers)


class System:
    """The switch and the workers of a scenario.

    Parameters
    ----------
    scenario : Scenario
        What there is.
    program : Path
        The compiled P4 program (BMv2 JSON).
    worker : WorkerCode, optional
        The worker core's functions; by default the shipped ones.
    """

    def __init__(self, scenario: Scenario, program: Path, worker: WorkerCode | None = None) -> None:
        unlisted = unlisted_fields()
        if unlisted:
            raise AssertionError(f"sim.explore.packing does not say what {sorted(unlisted)} of the core are")
        self.scenario = scenario
        self.program = load_program(program)
        self.lanes = sum(".lane_" in name for name in self.program.registers)
        self.worker = worker or shipped_worker()
        self.world = World()
        self.jobs = [self._jobs_of(job) for job in range(scenario.jobs)]
        self.switch_address = address_entry(SWITCH_IP, SWITCH_MAC)
        self._build_hosts()
        self._build_switches()
        self._build_state()
        self.record = self.world.record[0]
        self.root = self._root()

    def _jobs_of(self, number: int) -> list[Job]:
        """Return a job in each of its epochs."""
        scenario = self.scenario
        hosts = range(number * scenario.workers, (number + 1) * scenario.workers)
        workers = tuple(
            WorkerEndpoint(host, host_ip(host), host_mac(host), WORKER_UDP_PORT, at, (SWITCH_IP, 28275))
            for at, host in enumerate(hosts)
        )
        slots = SlotRange(number * scenario.slots, scenario.slots)
        jobs = []
        for each in range(scenario.epochs):
            epoch = _FIRST_EPOCH + number * scenario.epochs + each
            token = epoch * _SHIFT_OF_EPOCH & 0xFFFFFFFF
            jobs.append(Job(f"job{number}", number + 1, epoch, token, slots, self.lanes, workers))
        return jobs

    def _build_hosts(self) -> None:
        scenario, world = self.scenario, self.world
        owners = scenario.hosts * scenario.epochs
        rounds, slots = len(scenario.rounds), scenario.slots
        cores, passes = np.zeros(owners, CORE), np.zeros((owners, PASS_RING), PASS)
        slot_records = np.zeros((owners, slots), SLOT)
        works = np.zeros((owners, rounds), PASS)
        words = rounds * ELEMENTS
        targets, expected = np.zeros((owners, words), np.uint32), np.zeros((owners, words), np.uint32)
        acceptable = np.ones((owners, rounds), np.uint8)
        tokens = np.zeros(owners, np.int64)
        exponents = np.zeros((owners, rounds), np.uint16)
        self.tasks: list[list[Task]] = []
        self.cores: list[WorkerCore] = []
        for owner in range(owners):
            host, epoch = divmod(owner, scenario.epochs)
            number, worker = divmod(host, scenario.workers)
            admission = self.jobs[number][epoch].admissions[worker]
            core = WorkerCore(admission, _TIMEOUT_NS, scenario.first_chunk)
            self.cores.append(core)
            cores[owner] = core.state[0]
            slot_records[owner] = core.records[1]
            tokens[owner] = admission.token
            tasks = []
            for at, round_ in enumerate(scenario.rounds):
                task = make_task(round_, at, self.lanes, number, epoch, worker, scenario.workers)
                record = task.work.lay_out(self.lanes, slots)
                record["payload"]["target"] = targets.ctypes.data + (owner * words + at * ELEMENTS) * 4
                record["payload"]["exponents"] = exponents.ctypes.data + (owner * rounds + at) * 2
                works[owner, at] = record[0]
                if task.expected is None:
                    acceptable[owner, at] = 0
                else:
                    expected[owner, at * ELEMENTS : at * ELEMENTS + task.expected.size] = task.expected
                tasks.append(task)
            self.tasks.append(tasks)
        row_bytes = self.cores[0].row_bytes
        place = world.place
        place("cores", cores), place("core_slots", slot_records), place("core_passes", passes)
        place("works", works), place("exponents", exponents), place("targets", targets)
        place("expected", expected), place("acceptable", acceptable), place("tokens", tokens)
        (
            place("tx", np.zeros((TX_ROWS, row_bytes), np.uint8)),
            place("tx_lengths", np.zeros(TX_ROWS, np.int32)),
        )
        place("rx", np.zeros((1, row_bytes), np.uint8)), place("rx_length", np.zeros(1, np.int32))
        lengths = (HEADER_BYTES, HEADER_BYTES + LANE_BYTES * self.lanes)
        templates = np.zeros((scenario.hosts, 3, HEADERS_BYTES), np.uint8)
        for host in range(scenario.hosts):
            for at, length in enumerate(lengths):
                templates[host, at] = np.frombuffer(headers(host, length), np.uint8)
            own = bytearray(headers(host, 0))  # what a frame to the host has: its addresses as destination
            own[0:6], own[30:34], own[36:38] = own[6:12], own[26:30], own[34:36]
            templates[host, 2] = np.frombuffer(bytes(own), np.uint8)
        place("headers", templates)
        world.put(
            hosts=scenario.hosts,
            epochs=scenario.epochs,
            owners=owners,
            slots=slots,
            rounds=rounds,
            workers=scenario.workers,
            lanes=self.lanes,
            row_bytes=row_bytes,
            words=words,
            blocks=rounds,
            first_chunk=scenario.first_chunk,
            gap=1,
            copies=scenario.copies,
            batches=scenario.batches,
            ahead=scenario.ahead,
            attrition=scenario.attrition,
            reduce=0,
            merge=0,
            collect=0,
            kills=scenario.kills,
            restarts=scenario.switch_restarts,
            receive=self.worker.receive,
            send=self.worker.send,
            begin=self.worker.begin,
        )

    def table_versions(self) -> list[tuple[list[Entry], set[int]]]:
        """Return what the switch's tables hold at each stage, and which owners are admitted then."""
        scenario = self.scenario
        if scenario.epochs == 1:
            entries = [
                e for jobs in self.jobs for e in (*admission_entries(jobs[0]), *rewrite_entries(jobs[0]))
            ]
            return [(entries, set(range(scenario.hosts)))]
        old, new = self.jobs[0]
        rewrites = rewrite_entries(old)
        stages = []
        for deleted in range(scenario.workers + 1):
            kept = set(range(deleted, scenario.workers))
            entries = [admission_entries(old)[worker] for worker in kept]
            stages.append((entries + rewrites, {worker * scenario.epochs for worker in kept}))
        for written in range(1, scenario.workers + 1):
            entries = admission_entries(new)[:written]
            stages.append((entries + rewrites, {worker * scenario.epochs + 1 for worker in range(written)}))
        return stages

    def _build_switches(self) -> None:
        world, stages = self.world, self.table_versions()
        self.switches: list[Switch] = []
        for entries, _ in stages:
            switch = Switch(self.program)
            writer = InProcessWriter(switch)
            writer.write(Change.INSERT, [self.switch_address, *entries], "the explorer")
            for jobs in self.jobs:
                writer.set_group(result_group(jobs[0]), "the explorer")
            self.switches.append(switch)
        frame_bytes = HEADERS_BYTES + HEADER_BYTES + LANE_BYTES * self.lanes + 64
        self.in_frame = np.zeros((1, frame_bytes), np.uint8)
        room = np.zeros((64, frame_bytes), np.uint8)
        flights = []
        for switch in self.switches:
            with switch.in_flight(room) as flight:  # the tables are now where the machine code finds them
                flights.append(flight)
        owners = world.get("owners")
        admitted = np.zeros((len(stages), owners + 1), np.uint8)
        for stage, (_, those) in enumerate(stages):
            admitted[stage, sorted(those)] = 1
        world.place("admitted", admitted)
        flight, at = flights[0], Context(self.program)
        contexts = np.zeros((len(stages), at.size), np.int64)
        for stage, other in enumerate(flights):
            # One machine, one set of registers, several sets of tables.
            contexts[stage] = flight.words
            for table in at.tables.values():
                words = slice(table["rows"], table["group_members"] + 1)
                contexts[stage, words] = other.words[words]
            for name in ("groups", "sessions", "replicas"):
                contexts[stage, at.words[name]] = other.words[at.words[name]]
        world.place("contexts", contexts)
        world.place("in_frame", self.in_frame)
        world.place("in_length", np.zeros(1, np.int32))
        world.place("in_port", np.zeros(1, np.uint16))
        world.place("out_ports", flight.out_ports)
        world.place("out_lengths", flight.out_lengths)
        world.place("out_frames", flight.out_frames)
        spans = self._register_spans(self.switches[0])
        world.place("span_at", np.array([s[0] for s in spans], np.int64))
        world.place("span_bytes", np.array([s[1] for s in spans], np.int64))
        world.place("span_job", np.array([s[2] for s in spans], np.int64))
        world.place("progress_at", np.array(self._progress_cells() or [(0, 0)], np.int64))
        world.put(
            code=flight.machine.address,
            context_bytes=at.size * 8,
            inputs=at.words["in_frames"],
            out_count=at.words["out_count"],
            out_stride=flight.out_frames.shape[1],
            in_stride=frame_bytes,
            span_count=len(spans),
            switch_bytes=sum(s[1] for s in spans),
            progress_cells=len(self._progress_cells()),
            versions=len(stages),
        )

    def _cells(self) -> list[tuple[int, int, str]]:
        """Return (job, pool index, register) of the cells that a state holds, in their order."""
        scenario = self.scenario
        cells = []
        for job in range(scenario.jobs):
            for index in range(2 * job * scenario.slots, 2 * (job + 1) * scenario.slots):
                for name in self.program.registers:
                    lane = name.rpartition("lane_")[2].split(".")[0]
                    if ".lane_" not in name or int(lane) < ELEMENTS:
                        cells.append((job, index, name))
        return cells

    def _register_spans(self, switch: Switch) -> list[tuple[int, int, int]]:
        """Return (address, bytes, job) of the cells of the jobs' pool indices; of the lanes, those that carry elements."""
        spans: list[tuple[int, int, int]] = []
        for job, index, name in self._cells():
            cells = switch.register_view(name)
            address = int(cells.ctypes.data) + index * cells.strides[0]
            if spans and sum(spans[-1][:2]) == address and spans[-1][2] == job:
                spans[-1] = (spans[-1][0], spans[-1][1] + cells.itemsize, job)
            else:
                spans.append((address, cells.itemsize, job))
        return spans

    def _progress_cells(self) -> list[tuple[int, int]]:
        """Return where in a state the lowest bytes of each pool index's chunk and of its workers' bits are."""
        offset, found = HEAD_BYTES, {}
        lowest = (lambda size: 0) if sys.byteorder == "little" else (lambda size: size - 1)
        for _, index, name in self._cells():
            size = self.switches[0].register_view(name).itemsize
            found[index, name.rpartition("_")[2]] = offset + lowest(size)
            offset += size
        indices = sorted({index for index, _ in found})
        return [
            (found[index, "chunk"], found[index, "seen"])
            for index in indices
            if {(index, "chunk"), (index, "seen")} <= found.keys()
        ]

    def _build_state(self) -> None:
        world, scenario = self.world, self.scenario
        host_bytes = HOST_BYTES + scenario.slots * SLOT_BYTES + len(scenario.rounds) * 3
        total = HEAD_BYTES + world.get("switch_bytes") + scenario.hosts * host_bytes
        fixed = (total + 7) // 8 * 8
        world.put(host_bytes=host_bytes, fixed_bytes=fixed)
        for name, entries in (("state", "entries"), ("from_state", "from_entries")):
            memory = world.place(name, np.zeros(fixed + 4 * MAX_ENTRIES, np.uint8))
            world.record[entries] = memory.ctypes.data + fixed
        for name in ("old_last", "new_last"):
            world.place(name, np.zeros(16, np.int64))
        for name in ("values", "canon"):
            world.place(name, np.zeros(64, np.int64))
        for name in ("queue", "snapshot"):
            world.place(name, np.zeros(MAX_ENTRIES, np.uint32))
        world.place("useful", np.zeros(MAX_ENTRIES, np.uint8))
        packet_bytes = self.in_frame.shape[1]
        world.put(packet_bytes=packet_bytes)
        world.place("packets", np.zeros((MAX_PACKETS, packet_bytes), np.uint8))
        world.place("lengths", np.zeros(MAX_PACKETS, np.int32))
        world.place("ways", np.zeros(MAX_PACKETS, np.int8))
        world.place("of", np.zeros(MAX_PACKETS, np.int16))
        world.place("ports", np.zeros(MAX_PACKETS, np.int16))
        world.place("chunks", np.zeros(MAX_PACKETS, np.int32))
        world.place("index", np.zeros(index_size(), np.int32))

    def counter_address(self, name: str, index: int) -> int:
        """Return where the machine code counts the packets of a counter, by the last component of its name."""
        full = InProcessWriter(self.switches[0]).counter_name(name)
        word = Context(self.program).words[f"counter {full}"]
        return int(self.world.arrays["contexts"][0, word]) + 16 * index

    def _root(self) -> npt.NDArray[Any]:
        """Return the state that everything begins with, and leave it as the one that is worked on."""
        world = self.world
        fixed, host_bytes = world.get("fixed_bytes"), world.get("host_bytes")
        state = world.arrays["state"]
        blank = np.zeros(host_bytes, np.uint8)
        blank[AT_LIFE] = ALIVE
        blank[AT_SEQUENCE] = 2
        blank[AT_OVERTAKER] = 1
        self.blank = blank
        for host in range(self.scenario.hosts):
            at = HEAD_BYTES + world.get("switch_bytes") + host * host_bytes
            state[at : at + host_bytes] = blank
        world.put(entry_count=0)
        if self.scenario.unknown_sources:
            self._add_unknown_sources()
        count = world.get("entry_count")
        return state[: fixed + 4 * (count + count % 2)].copy()

    def _add_unknown_sources(self) -> None:
        """Put packets into flight that must change nothing."""
        job = self.jobs[0][0]
        good = Header(
            VERSION,
            KIND_CONTRIBUTE,
            OP_SUM,
            1,
            job.job_id,
            job.token,
            0,
            0,
            0,
            self.scenario.first_chunk,
            0,
            0x1000,
        )
        lanes = np.full(self.lanes, 0x01010101, np.uint32).tobytes()
        last = self.scenario.workers - 1
        fakes = {
            "another epoch's token": (0, good._replace(token=job.token ^ 1)),
            "another worker's id": (0, good._replace(worker_id=last)),
            "a job that is not there": (0, good._replace(job_id=200)),
            "a pool index outside the job's range": (0, good._replace(pool_index=2 * self.scenario.slots)),
            "an unknown version": (0, good._replace(version=2)),
            "a RESULT from a worker": (0, good._replace(kind=2, num_workers=self.scenario.workers)),
        }
        for host, header in fakes.values():
            datagram = header.to_bytes() + lanes
            frame = np.frombuffer(headers(host, len(datagram)) + datagram, np.uint8).copy()
            owner = self.world.get("owners")
            number = intern(
                self.world.record[0], np.int64(UP), owner, host, frame.ctypes.data, np.int64(frame.size)
            )
            entries = self.world.arrays["state"][self.world.get("fixed_bytes") :].view(np.uint32)
            entries[self.world.get("entry_count")] = number << 12 | 1
            self.world.put(entry_count=self.world.get("entry_count") + 1)
