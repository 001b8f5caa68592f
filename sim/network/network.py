"""A network: its construction, its runs, and its records."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, Unpack

import numpy as np
import numpy.typing as npt

from controller.jobs import Job
from host_agent.protocol.records import CORE, PASS, PASS_RING, SLOT
from host_agent.wire import Admission
from host_agent.wire.header import ECT
from sim.frames import FIRST_UDP_PORT, headers
from sim.network.engine import loop
from sim.network.engine.engine_records import (
    FLOW,
    GAPS,
    GENERATOR,
    MESSAGE,
    NEVER,
    PLACE,
    PS_PER_NS,
    PS_PER_S,
    SCRIPT,
    STALL,
    WORKER,
)
from sim.network.engine.events import CONTROL, GENERATE, push
from sim.network.engine.workers import NEEDS_PYTHON, drive
from sim.network.graph import ENDPOINTS_PER_NODE, Graph, NetworkError, Node, UnfinishedError
from sim.network.network_memory import NetworkMemory, RecordRows, address_of, together
from sim.network.outputs import Outputs
from sim.network.packet_trace import PacketTrace
from sim.network.parameters import BackgroundTraffic
from sim.network.programs import NetworkPrograms
from sim.network.worker import WORKER_DEFAULTS, Plan, Worker, WorkerOptions

_SLICE: Final = 1 << 20  # Events between two checks whether the run was interrupted.


class PeriodSkipper(Protocol):
    """The interface of `FastForward` that the network and its jobs use."""

    control: int  # Python's changes of the network so far.
    skipped_events: int  # Events that were skipped so far.

    def add_job(
        self, workers: list[Worker], ends: Iterable[tuple[Node, Node]], parts: dict[Node, Job], repeats: bool
    ) -> None:
        """Add a job: its workers, their hosts and switches, its part on each switch, and whether its collectives repeat."""

    def touched(self, number: int) -> None:
        """Note that a worker has begun or ended collectives."""

    def skip(self, number: int, until_ps: int) -> None:
        """Skip periods from a worker's sample on, until a time."""


class Network(Graph):
    """Hosts, links and switches in virtual time.

    Parameters
    ----------
    lanes : int
        Maximum number of int32 values in a packet.
    """

    def __init__(self, seed: int = 1, *, lanes: int = 256) -> None:
        memory = NetworkMemory(seed, lanes)
        super().__init__(memory)
        self.world = memory.world
        self.workers: list[Worker] = []
        self.seed = seed
        self._worker_rows = RecordRows(self.world, "workers", WORKER)
        self._scripts = RecordRows(self.world, "scripts", SCRIPT)
        self._generators = RecordRows(self.world, "generators", GENERATOR)
        self.flows = RecordRows(self.world, "flows", FLOW)
        self.stalls = RecordRows(self.world, "stalls", STALL)
        self.messages = RecordRows(self.world, "messages", MESSAGE)
        self.places = RecordRows(self.world, "places", PLACE)
        self.outputs = Outputs(self.world)
        self._programs = NetworkPrograms(memory, self._switch_rows, self.programmed)
        self.trace = PacketTrace(memory)
        self.forward: PeriodSkipper | None = None  # Skips periods; None: all events are run.
        self._until_ps = NEVER
        self._waited_for = 0
        self._controls: dict[int, tuple[Callable[..., None], tuple[Any, ...]]] = {}
        self._control_number = 0
        self._headers: list[Any] = []
        # (job's name, rank) of further workers that must end before a run is done; callers that wait for workers set it.
        self.pending: set[tuple[str, int]] = set()
        self._successors = np.zeros(0, np.int32)

    # Traffic, and what happens to packets.

    def add_script(
        self,
        action: int,
        *,
        link: int = -1,
        nth: int = 1,
        delay_ns: int = 0,
        **which: int,
    ) -> None:
        """Drop or delay the n-th packet on a link (−1: any) that a script matches (`engine.scripts`).

        `which`: a packet's kind, chunk and worker, and flags that must be set.
        """
        matched = {"kind": -1, "chunk": -1, "worker": -1, "flags": 0} | which
        self._scripts.add(link=link, nth=nth, action=action, delay_ps=delay_ns * PS_PER_NS, **matched)
        self.world["script_count"] = len(self._scripts)
        for number in range(len(self._links)) if link < 0 else (link,):
            self._links[number]["scripted"] = self._links[number]["faulty"] = 1

    def add_traffic(self, source: Node, target: Node, traffic: BackgroundTraffic) -> int:
        """Send packets from a host to another; returns the number of the generator."""
        number = self._generators.add(
            source=source.number,
            target=target.number,
            packet_bytes=traffic.packet_bytes,
            interval_ps=traffic.packet_bytes * 8 * PS_PER_S // traffic.rate_bps * traffic.burst,
            until_ps=traffic.stop_ns * PS_PER_NS,
            burst=traffic.burst,
            gaps=GAPS.index(traffic.gaps),
        )
        push(self.world[0], traffic.start_ns * PS_PER_NS, GENERATE, number, 0)
        return number

    def tap(self, number: int, *, frame_bytes: int | None = None) -> None:
        """Record the packets of one direction of a link from now on, up to `frame_bytes` bytes of each."""
        self._links[number]["tapped"] = 1
        self.trace.start(frame_bytes)

    def trace_all(self, *, frame_bytes: int = 0) -> None:
        """Record the packets of all links from now on."""
        self.world["trace_all"] = 1
        self.trace.start(frame_bytes)

    # Messages of `sim.network.messages`.

    def add_successors(self, numbers: npt.NDArray[Any]) -> int:
        """Add the numbers of messages that wait for others, sorted by the message waited for; return the first one's index."""
        first = len(self._successors)
        self._successors = self._memory.keep(
            "successors", np.concatenate([self._successors, numbers.astype(np.int32)])
        )
        return first

    def flow_window(self, packets: int) -> int:
        """Return the ring size of all flows: the first caller's `packets`, rounded up to a power of two."""
        world = self.world[0]
        if not world["flow_window"]:
            world["flow_window"] = 1 << (packets - 1).bit_length()
        return int(world["flow_window"])

    def add_rings(self, rings: npt.NDArray[Any]) -> None:
        """Replace the rings of all flows by a larger array, which also has those of added flows."""
        old = self._memory.get("flow_rings")
        if old is not None:
            rings[: len(old)] = old
        self._memory.keep("flow_rings", rings)

    def reserve(self, events: int) -> None:
        """Make room for this many more events."""
        self.build()
        self._memory.reserve(events)

    # Workers.

    def free_place(self, hosts: Sequence[Node]) -> int:
        """Return the lowest worker number that is free on all hosts; `ENDPOINTS_PER_NODE` if there is none."""
        self.build()
        taken = (self._endpoints[[host.number for host in hosts]] >= 0).any(axis=0)
        return int(np.argmin(taken)) if not taken.all() else ENDPOINTS_PER_NODE

    def add_job(
        self,
        job: Job | Sequence[Admission],
        hosts: Sequence[Node],
        switches: Node | Sequence[Node],
        plans: Callable[[int], Iterable[Plan]],
        **given: Unpack[WorkerOptions],
    ) -> list[Worker]:
        """Add workers of a job.

        `plans`: called with a worker's rank; returns its collectives, of which `at_once` are submitted ahead.
        """
        self.build()
        options: WorkerOptions = {**WORKER_DEFAULTS, **given}
        admissions = job.admissions if isinstance(job, Job) else job
        if isinstance(switches, Node):
            switches = [switches] * len(hosts)
        added = []
        slots = max((admission.slot_count for admission in admissions), default=0)
        sizes = [CORE.itemsize, slots * SLOT.itemsize, PASS_RING * PASS.itemsize]
        memory = together(sizes, len(admissions))
        for admission, host, switch, room in zip(admissions, hosts, switches, memory, strict=True):
            worker = Worker(
                self,
                len(self.workers),
                admission,
                plans(admission.rank),
                options["name"] or (job.name if isinstance(job, Job) else str(admission.job_id)),
                options,
            )
            state, all_slots, passes = room
            worker.core.move_to(
                state.view(CORE),
                all_slots[: admission.slot_count * SLOT.itemsize].view(SLOT),
                passes.view(PASS),
            )
            self._place_worker(worker, host, switch, options)
            worker.record["rank"], worker.record["checked"] = admission.rank, int(options["checked"])
            self.workers.append(worker)
            self.at(self.now_ns + options["start_ns"](admission.rank), self.poll_worker, worker.number)
            added.append(worker)
        return added

    def _place_worker(self, worker: Worker, host: Node, switch: Node, options: WorkerOptions) -> None:
        place, cost = options["place"], options["cost"](worker.admission.rank)
        if not 0 <= place < ENDPOINTS_PER_NODE:
            raise NetworkError(f"a host has at most {ENDPOINTS_PER_NODE} workers at a time")
        port = FIRST_UDP_PORT + place
        service = ECT * int(worker.core.state["congestion"][0])
        ends = (host.mac, host.ip), (switch.mac, switch.ip)
        template = np.frombuffer(headers(*ends, port, service=service), np.uint8).copy()
        self._headers.append(template)
        state, slots, passes = worker.core.records
        self._memory.need(4 * len(slots) + 1024)
        self._worker_rows.add(
            node=host.number,
            link=self.link_towards(host, switch),
            core=address_of(state),
            slots=address_of(slots),
            slot_count=len(slots),
            passes=address_of(passes),
            row_bytes=worker.core.row_bytes,
            headers=address_of(template),
            target=switch.number,
            alive=1,
            timer_ps=NEVER,
            sample_at=NEVER,
            send_ps=round(cost.send_ns * PS_PER_NS),
            receive_ps=round(cost.receive_ns * PS_PER_NS),
            byte_ps=round(cost.byte_ns * PS_PER_NS),
            slower=round(cost.slower * 100),
            added_bytes=options["added_bytes"],
        )
        self._endpoints[host.number, place] = worker.number

    # Running.

    @property
    def now_ps(self) -> int:
        """The virtual time."""
        return int(self.world["now_ps"][0])

    @property
    def now_ns(self) -> int:
        """The virtual time, in whole nanoseconds."""
        return self.now_ps // PS_PER_NS

    @property
    def events_run(self) -> int:
        """Number of events run or skipped, without timers that only set themselves anew."""
        return int(self.world["events"][0])

    def at(self, time_ns: int, action: Callable[..., None], *arguments: Any) -> None:
        """Call a function at a time, before the packets that arrive at the same time."""
        number = self.control(action, *arguments)
        self._memory.make_room()
        push(self.world[0], time_ns * PS_PER_NS, CONTROL, 0, number)

    def control(self, action: Callable[..., None], *arguments: Any) -> int:
        """Register a call; return its number, by which the caller schedules a CONTROL event."""
        self._control_number += 1
        self._controls[self._control_number] = action, arguments
        return self._control_number

    def run(
        self,
        until: Callable[[], bool] | None = None,
        *,
        limit_ns: int | None = None,
        max_events: int | None = None,
    ) -> None:
        """Run until all workers and messages are done.

        Parameters
        ----------
        until
            Run until this function returns true instead; it is called after every event, which is slow.
        limit_ns, max_events
            Limits of the run; a longer run raises an error.

        Raises
        ------
        UnfinishedError
            Workers or messages are not done, and no event is left, or the limit of time is reached.
        NetworkError
            There were more than `max_events`.
        """
        finished = until or self.all_done
        budget = 1 if until is not None else _SLICE
        last = None if max_events is None else self.events_run + max_events
        until_ps = NEVER - 1 if limit_ns is None else limit_ns * PS_PER_NS
        self._until_ps = until_ps
        self._refresh()
        while not finished():
            reason = self._advance(until_ps, budget)
            if reason == loop.TIME_UP or (reason == loop.NOTHING_LEFT and not finished()):
                workers = {(each.job, each.admission.rank) for each in self.workers if not each.done}
                messages = int(self.world["messages_left"][0])
                left = limit_ns if reason == loop.TIME_UP else None
                raise UnfinishedError(self.pending | workers, messages, left)
            if last is not None and self.events_run >= last:
                raise NetworkError(f"the run does not end: {max_events} events")

    def drain(self) -> None:
        """Run all remaining events, so that packets in flight arrive."""
        self._refresh()
        while self._advance(NEVER - 1, _SLICE) != loop.NOTHING_LEFT:
            pass

    def all_done(self) -> bool:
        """Whether all workers are done and all messages delivered."""
        if self.pending or self.world["messages_left"][0]:
            return False
        # The worker that was not done in the last check comes first: with many workers, most checks end there.
        count = len(self.workers)
        for at in range(self._waited_for, self._waited_for + count):
            if not self.workers[at % count].done:
                self._waited_for = at % count
                return False
        return True

    def poll_worker(self, number: int) -> None:
        """Resolve a worker's finished collectives, begin due ones, and send its packets."""
        worker = self.workers[number]
        if not worker.alive:
            return
        self._memory.make_room()
        while True:
            worker.poll()
            if drive(self.world[0], number) != NEEDS_PYTHON:
                break
        if self.forward is not None:
            self.forward.touched(number)

    def _advance(self, until_ps: int, budget: int) -> int:
        world = self.world[0]
        reason = int(loop.advance(self.world, until_ps, budget, self._memory.margin))
        while reason == loop.SUM_DUE:
            self.outputs.compute()
            reason = int(loop.compare(self.world))
        if reason == loop.WORKER_DUE:
            self.poll_worker(int(world["subject"]))
        elif reason == loop.SAMPLE_DUE:
            assert self.forward is not None
            self.forward.skip(int(world["subject"]), self._until_ps)
        elif reason == loop.CONTROL_DUE:
            if self.forward is not None:
                self.forward.control += 1
            action, arguments = self._controls.pop(int(world["subject"]))
            action(*arguments)
            self._refresh()
        elif reason == loop.SWITCH_UNFINISHED:
            self._programs.finish(int(world["subject"]))
        elif reason == loop.NEEDS_ROOM:
            self._memory.grow()
            self._memory.make_room()
        elif reason == loop.TRACE_FULL:
            self.trace.flush()
        return reason

    def _refresh(self) -> None:
        self.build()
        self._memory.make_room()
        self._programs.refresh()

    # Looking.

    @property
    def memory(self) -> NetworkMemory:
        """The arrays that compiled code reads and writes."""
        return self._memory

    @property
    def generator_records(self) -> npt.NDArray[Any]:
        """The records of the sources of background traffic (`engine_records.GENERATOR`)."""
        return self._generators.rows

    @property
    def worker_records(self) -> npt.NDArray[Any]:
        """The records of the workers (`engine_records.WORKER`)."""
        return self._worker_rows.rows
