"""A network: build it, run it, look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from controller.addresses import ipv4_int
from controller.jobs import Job, WorkerEndpoint
from host_agent.schedule import Outcome
from host_agent.wire import Admission
from sim.errors import SimulationError
from sim.network.engine import loop
from sim.network.engine.core import TAKE_IN, TRANSMIT
from sim.network.engine.dice import chance_of
from sim.network.engine.events import CONTROL, GENERATE, HEAP_WORDS, push
from sim.network.engine.packets import HEADERS_BYTES, PAYLOAD_AT, release
from sim.network.engine.records import (
    COUNTS,
    FLOW,
    GENERATOR,
    LINK,
    MESSAGE,
    NEVER,
    NODE,
    PACKET,
    PS_PER_NS,
    PS_PER_S,
    SCRIPT,
    SWITCH,
    TRACE,
    WORKER,
    WORLD,
)
from sim.network.engine.switches import HOST_NODE, SWITCH_NODE, send_output
from sim.network.engine.workers import NEEDS_PYTHON, drive
from sim.network.frames import FIRST_UDP_PORT, headers
from sim.network.memory import Rows, address_of
from sim.network.parameters import HostCost, LinkParameters, SwitchCost
from sim.network.programming import ProgrammedSwitch
from sim.network.routes import next_links
from sim.network.worker import Plan, Worker

__all__ = ["Network", "NetworkError", "Node"]

ENDPOINTS_PER_NODE: Final = 16
_HEADER_ONLY_BYTES: Final = HEADERS_BYTES + 28
"""No frame without lanes is longer: headers, the protocol's header, a STATUS."""
_FIRST_PACKETS: Final = 4096
_TRACE_ROWS: Final = 1 << 16
_SLICE: Final = 1 << 20
"""Events between two looks at whether the run was interrupted."""


class NetworkError(SimulationError):
    """A network cannot be built or run as asked; the message says why."""


@dataclass(frozen=True)
class Node:
    """A host or switch of a network."""

    name: str
    number: int
    ip: str
    mac: str
    is_switch: bool


class Network:
    """Hosts, links and switches in virtual time.

    Parameters
    ----------
    seed : int
        Of all dice.
    lanes : int
        The most int32 values that a packet carries.
    """

    def __init__(self, seed: int = 1, *, lanes: int = 256) -> None:
        self.world = np.zeros(1, WORLD)
        self.nodes: list[Node] = []
        self.workers: list[Worker] = []
        self.seed = seed
        self._links = Rows(self.world, "links", LINK)
        self._node_rows = Rows(self.world, "nodes", NODE)
        self._worker_rows = Rows(self.world, "workers", WORKER)
        self._switch_rows = Rows(self.world, "switches", SWITCH)
        self._scripts = Rows(self.world, "scripts", SCRIPT)
        self._generators = Rows(self.world, "generators", GENERATOR)
        self.flows = Rows(self.world, "flows", FLOW)
        self.messages = Rows(self.world, "messages", MESSAGE)
        self._programmed: list[ProgrammedSwitch | None] = []
        self._versions: list[int] = []
        self._waited_for = 0
        self._ports: list[dict[int, int]] = []
        self._controls: dict[int, tuple[Callable[..., None], tuple[Any, ...]]] = {}
        self._control_number = 0
        self._kept: dict[str, Any] = {}
        self._margin = 1024
        self._is_built = False
        self._headers: list[Any] = []
        self.pending = 0
        """What else must have ended before a run is done; counted by those who wait for it."""
        self._successors = np.zeros(0, np.int32)
        self.traces: list[tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]] = []
        world = self.world[0]
        world["core_take_in"], world["core_transmit"] = TAKE_IN.address, TRANSMIT.address
        world["seed"] = seed & (1 << 63) - 1
        # A row holds a frame behind its headers' place, and keeps rows out of each other's cache sets.
        lines = (PAYLOAD_AT + 20 + 4 * lanes + 8 + 63) // 64
        world["row_bytes"] = 64 * (lines | 1)
        self._set_room(_FIRST_PACKETS)
        scratch_bytes = 4 * (max(5 + lanes, 7) + 1)
        self._keep("scratch", np.zeros((64, scratch_bytes), np.uint8))
        world["scratch_rows"], world["scratch_bytes"] = 64, scratch_bytes
        self._keep("scratch_lengths", np.zeros(64, np.int32))
        self._keep("in_length", np.zeros(1, np.int32))
        self._keep("in_port", np.zeros(1, np.uint16))

    # Building.

    def add_host(self, name: str, ip: str, mac: str, cost: HostCost | None = None) -> Node:
        """Add a host; `cost` is that of peers and flows on it, workers have their own."""
        cost = cost or HostCost()
        return self._add_node(
            Node(name, len(self.nodes), ip, mac, False),
            kind=HOST_NODE,
            packet_ps=round((cost.send_ns + cost.receive_ns) / 2 * PS_PER_NS),
            byte_ps=round(cost.byte_ns * PS_PER_NS),
            slower=round(cost.slower * 100),
        )

    def add_switch(
        self,
        name: str,
        ip: str,
        mac: str,
        *,
        programmed: ProgrammedSwitch | None = None,
        cost: SwitchCost | None = None,
        added_bytes: int = 0,
    ) -> Node:
        """Add a switch.

        Parameters
        ----------
        programmed
            What runs in it; None: it only forwards.
        added_bytes
            On the wire, of each packet with lanes: lanes that are not simulated.
        """
        cost = cost or SwitchCost()
        service_ps = round(cost.service_ns * PS_PER_NS)
        number = self._switch_rows.add(
            node=len(self.nodes),
            latency_ps=round(cost.latency_ns * PS_PER_NS),
            service_ps=service_ps,
            queue_ps=NEVER if cost.queue_pkts is None or not service_ps else cost.queue_pkts * service_ps,
            alive=1,
            added_bytes=added_bytes,
            header_only_bytes=_HEADER_ONLY_BYTES,
        )
        self._programmed.append(programmed)
        self._versions.append(-1)
        self._ports.append({})
        return self._add_node(Node(name, len(self.nodes), ip, mac, True), kind=SWITCH_NODE, index=number)

    def connect(
        self,
        one: Node,
        other: Node,
        parameters: LinkParameters,
        *,
        one_port: int | None = None,
        other_port: int | None = None,
    ) -> tuple[int, int]:
        """Connect two nodes; returns the numbers of the links from the one to the other and back.

        Ports that are not given are the next free ones of a switch, from 1 on.
        """
        if self._is_built:
            raise NetworkError("connect everything before the first run")
        ports = [self._free_port(node, port) for node, port in ((one, one_port), (other, other_port))]
        numbers = []
        for source, target, port in ((one, other, ports[1]), (other, one, ports[0])):
            number = self._links.add(from_node=source.number, to_node=target.number, to_port=port)
            self.set_link(number, parameters)
            numbers.append(number)
        for node, port, number in ((one, ports[0], numbers[0]), (other, ports[1], numbers[1])):
            if node.is_switch:
                self._ports[self._switch_number(node)][port] = number
        return numbers[0], numbers[1]

    def set_link(self, number: int, parameters: LinkParameters) -> None:
        """Make one direction of a link what the parameters say, from now on."""
        link, faults = self._links[number], parameters.faults
        rate = parameters.rate_bps or 0

        def queue_ps(size: int | None) -> int:
            return NEVER if size is None or not rate else size * 8 * PS_PER_S // rate

        link["rate_bps"] = rate
        link["latency_ps"] = parameters.latency_ns * PS_PER_NS
        link["framing_bytes"] = parameters.framing_bytes
        link["mtu"] = parameters.mtu
        link["queue_ps"] = queue_ps(parameters.queue_bytes)
        link["mark_ps"] = queue_ps(parameters.mark_bytes)
        link["up"] = 1
        link["loss"] = chance_of(faults.loss)
        link["duplicate"] = chance_of(faults.duplicate)
        link["jitter_ps"] = faults.jitter_ns * PS_PER_NS
        link["straggle"] = chance_of(faults.straggle)
        link["straggle_ps"] = faults.straggle_ns * PS_PER_NS
        link["bursts"] = int(faults.bursts is not None)
        if faults.bursts is not None:
            link["to_bad"] = chance_of(faults.bursts.to_bad)
            link["to_good"] = chance_of(faults.bursts.to_good)
            link["loss_bad"] = chance_of(faults.bursts.loss_bad)
        link["faulty"] = int(faults.any or bool(link["scripted"]))

    def set_link_up(self, number: int, up: bool) -> None:
        """Take one direction of a link down, which loses what is on it, or up."""
        self._links[number]["up"] = int(up)

    def add_script(
        self,
        action: int,
        *,
        link: int = -1,
        kind: int = -1,
        chunk: int = -1,
        worker: int = -1,
        flags: int = 0,
        nth: int = 1,
        delay_ns: int = 0,
    ) -> None:
        """Drop or delay the n-th packet of a kind, chunk, worker and flags on a link; −1 is any (`engine.scripts`)."""
        self._scripts.add(
            link=link,
            kind=kind,
            chunk=chunk,
            worker=worker,
            flags=flags,
            nth=nth,
            action=action,
            delay_ps=delay_ns * PS_PER_NS,
        )
        self.world["script_count"] = len(self._scripts)
        for number in range(len(self._links)) if link < 0 else (link,):
            self._links[number]["scripted"] = self._links[number]["faulty"] = 1

    def tap(self, number: int, *, frame_bytes: int | None = None) -> None:
        """Write down the packets of one direction of a link from now on, so many bytes of each."""
        self._links[number]["tapped"] = 1
        self._start_trace(frame_bytes)

    def trace_all(self, *, frame_bytes: int = 0) -> None:
        """Write down the packets of all links from now on."""
        self.world["trace_all"] = 1
        self._start_trace(frame_bytes)

    def add_traffic(
        self,
        source: Node,
        target: Node,
        *,
        rate_bps: int,
        packet_bytes: int = 1514,
        burst: int = 1,
        random: bool = False,
        start_ns: int = 0,
        stop_ns: int = 10**12,
    ) -> int:
        """Send packets from a host to another at a rate, counting frames; returns the number of the generator."""
        interval_ps = packet_bytes * 8 * PS_PER_S // rate_bps * burst
        number = self._generators.add(
            source=source.number,
            target=target.number,
            packet_bytes=packet_bytes,
            interval_ps=interval_ps,
            until_ps=stop_ns * PS_PER_NS,
            burst=burst,
            random=int(random),
        )
        push(self.world[0], start_ns * PS_PER_NS, GENERATE, number, 0)
        return number

    # What `sim.network.messages` puts in.

    def add_successors(self, numbers: npt.NDArray[Any]) -> int:
        """Add messages that wait for others, in the order of those; returns the place of the first."""
        first = len(self._successors)
        self._successors = self._keep(
            "successors", np.concatenate([self._successors, numbers.astype(np.int32)])
        )
        return first

    def flow_window(self, packets: int) -> int:
        """Return how many packets of a flow may be outstanding: what the first that asked needed, a power of two."""
        world = self.world[0]
        if not world["flow_window"]:
            world["flow_window"] = 1 << (packets - 1).bit_length()
        return int(world["flow_window"])

    def add_rings(self, rings: npt.NDArray[Any]) -> None:
        """Replace the rings of all flows by an array that has room for those added, too."""
        old = self._kept.get("flow_rings")
        if old is not None:
            rings[: len(old)] = old
        self._keep("flow_rings", rings)

    def reserve(self, events: int) -> None:
        """See that so many more events can be scheduled."""
        self._build()
        while self.world["heap_room"][0] - self.world["heap_count"][0] < events + self._margin:
            self._make_room(more=True)

    # Workers.

    def endpoints(self, hosts: Sequence[Node], switch: Node, place: int = 0) -> list[WorkerEndpoint]:
        """Return where workers on these hosts are, as the switch sees them.

        Parameters
        ----------
        place
            Which of the workers of each host, 0 and up.
        """
        self._build()
        return [
            WorkerEndpoint(self._port_towards(switch, host), host.ip, host.mac, FIRST_UDP_PORT + place)
            for host in hosts
        ]

    def switch_of(self, host: Node) -> Node:
        """Return the switch that a host is connected to; the first, if there are several."""
        for link in self._links.rows:
            target = self.nodes[int(link["to_node"])]
            if link["from_node"] == host.number and target.is_switch:
                return target
        raise NetworkError(f"host {host.name} is not connected to a switch")

    def neighbours(self, switch: Node) -> dict[str, int]:
        """Return the port that leads to each neighbouring switch, by that switch's name."""
        found: dict[str, int] = {}
        for port, number in sorted(self._ports[self._switch_number(switch)].items()):
            other = self.nodes[self._links[number]["to_node"]]
            if other.is_switch:
                found.setdefault(other.name, port)
        return found

    def add_job(
        self,
        job: Job | Sequence[Admission],
        hosts: Sequence[Node],
        switches: Node | Sequence[Node],
        plans: Callable[[int], Iterable[Plan]],
        *,
        timeout_ns: int = 10**12,
        at_once: int = 1,
        first_chunk: int = 0,
        start_ns: Callable[[int], int] = lambda worker: 0,
        cost: Callable[[int], HostCost] = lambda worker: HostCost(),
        place: int = 0,
        added_bytes: int = 0,
        on_ended: Callable[[Worker, Outcome], None] | None = None,
    ) -> list[Worker]:
        """Add workers of a job.

        Parameters
        ----------
        job
            The job, or admissions of some of its workers.
        hosts
            Those of these workers, in the same order.
        switches
            The one that adds, or that of each worker.
        plans
            Called with a worker's rank: its collectives, of which `at_once` are submitted ahead.
        timeout_ns
            A collective fails if nothing of it completes for that long.
        start_ns, cost
            Called with a worker's rank: when it begins, counted from now, and what its host spends on packets.
        place
            Which of the workers of each host.
        added_bytes
            On the wire, of each packet with lanes: lanes that are not simulated.
        on_ended
            Called when a collective of a worker has ended.
        """
        self._build()
        admissions = job.admissions if isinstance(job, Job) else job
        if isinstance(switches, Node):
            switches = [switches] * len(hosts)
        added = []
        for admission, host, switch in zip(admissions, hosts, switches, strict=True):
            worker = Worker(
                self,
                len(self.workers),
                admission,
                plans(admission.rank),
                timeout_ns=timeout_ns,
                at_once=at_once,
                first_chunk=first_chunk,
                on_ended=on_ended,
            )
            self._place_worker(worker, host, switch, place, cost(admission.rank), added_bytes)
            self.workers.append(worker)
            self.at(self.now_ns + start_ns(admission.rank), self.look_after, worker.number)
            added.append(worker)
        return added

    def _place_worker(
        self, worker: Worker, host: Node, switch: Node, place: int, cost: HostCost, added_bytes: int
    ) -> None:
        if not 0 <= place < ENDPOINTS_PER_NODE:
            raise NetworkError(f"a host has at most {ENDPOINTS_PER_NODE} workers at a time")
        port = FIRST_UDP_PORT + place
        template = np.frombuffer(headers((host.mac, host.ip), (switch.mac, switch.ip), port), np.uint8).copy()
        self._headers.append(template)
        state, slots, passes = worker.core.records
        self._margin = max(self._margin, 4 * len(slots) + 1024)
        self._worker_rows.add(
            node=host.number,
            link=self._next_link[host.number, switch.number],
            core=address_of(state),
            slots=address_of(slots),
            slot_count=len(slots),
            passes=address_of(passes),
            row_bytes=worker.core.row_bytes,
            headers=address_of(template),
            target=switch.number,
            alive=1,
            timer_ps=NEVER,
            send_ps=round(cost.send_ns * PS_PER_NS),
            receive_ps=round(cost.receive_ns * PS_PER_NS),
            byte_ps=round(cost.byte_ns * PS_PER_NS),
            slower=round(cost.slower * 100),
            added_bytes=added_bytes,
        )
        self._endpoints[host.number, place] = worker.number

    # Running.

    @property
    def now_ps(self) -> int:
        """The time."""
        return int(self.world["now_ps"][0])

    @property
    def now_ns(self) -> int:
        """The time, in whole nanoseconds."""
        return self.now_ps // PS_PER_NS

    @property
    def events_run(self) -> int:
        """How many events have been run."""
        return int(self.world["events"][0])

    def at(self, time_ns: int, action: Callable[..., None], *arguments: Any) -> None:
        """Call a function at a time, before packets that arrive then."""
        self._control_number += 1
        self._controls[self._control_number] = action, arguments
        self._make_room()
        push(self.world[0], time_ns * PS_PER_NS, CONTROL, 0, self._control_number)

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
            Run until this is true instead; it is called after every event, which is slow.
        limit_ns, max_events
            A run that is longer is a failure.

        Raises
        ------
        NetworkError
            Nothing is left to happen, or a limit is reached, and not all is done.
        """
        finished = until or self.all_done
        budget = 1 if until is not None else _SLICE
        last = None if max_events is None else self.events_run + max_events
        until_ps = NEVER - 1 if limit_ns is None else limit_ns * PS_PER_NS
        self._refresh()
        while not finished():
            reason = self._advance(until_ps, budget)
            if reason == loop.NOTHING_LEFT and not finished():
                raise NetworkError("nothing is left to happen, and not everybody is done")
            if reason == loop.TIME_UP:
                raise NetworkError(f"not everybody is done after {limit_ns} ns of virtual time")
            if last is not None and self.events_run >= last:
                raise NetworkError(f"the run does not end: {max_events} events")

    def drain(self) -> None:
        """Let everything that is still on its way arrive."""
        self._refresh()
        while self._advance(NEVER - 1, _SLICE) != loop.NOTHING_LEFT:
            pass

    def all_done(self) -> bool:
        """Whether all workers are done and all messages delivered."""
        if self.pending or self.world["messages_left"][0]:
            return False
        # A worker that was not done the last time is looked at first: with many workers, most looks end there.
        count = len(self.workers)
        for at in range(self._waited_for, self._waited_for + count):
            if not self.workers[at % count].done:
                self._waited_for = at % count
                return False
        return True

    def look_after(self, number: int) -> None:
        """Resolve and begin collectives of a worker, and send what it has to send."""
        worker = self.workers[number]
        if not worker.alive:
            return
        self._make_room()
        while True:
            worker.attend()
            if drive(self.world[0], number) != NEEDS_PYTHON:
                return

    def _advance(self, until_ps: int, budget: int) -> int:
        world = self.world[0]
        reason = int(loop.advance(self.world, until_ps, budget, self._margin))
        if reason == loop.WORKER_DUE:
            self.look_after(int(world["attend"]))
        elif reason == loop.CONTROL_DUE:
            action, arguments = self._controls.pop(int(world["attend"]))
            action(*arguments)
            self._refresh()
        elif reason == loop.SWITCH_UNFINISHED:
            self._finish_switch(int(world["attend"]))
        elif reason == loop.NEEDS_ROOM:
            self._make_room(more=True)
        elif reason == loop.TRACE_FULL:
            self.keep_trace()
        return reason

    def _finish_switch(self, number: int) -> None:
        """Give a program the memory that it needs, run it on, and send what it puts out."""
        programmed = self._programmed[number]
        assert programmed is not None
        switch = self._switch_rows[number]
        with programmed.engine.in_flight(self._kept["frames"][:1]) as flight:
            flight.resume(int(self.world["switch_status"][0]))
            self._point_at(number, flight)
        send_output(self.world[0], number)
        release(self.world[0], int(switch["pending"]) - 1)
        switch["pending"] = 0

    # Memory.

    def _keep(self, field: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        self._kept[field] = array
        self.world[field] = address_of(array)
        return array

    def _make_room(self, *, more: bool = False) -> None:
        """See that there is room for what one event may need."""
        world = self.world[0]
        while more or min(world["free_count"], world["heap_room"] - world["heap_count"]) < self._margin:
            self._set_room(2 * int(world["packet_room"]))
            more = False

    def _set_room(self, packets: int) -> None:
        world = self.world[0]
        before = int(world["packet_room"])
        frames = np.zeros((packets, int(world["row_bytes"])), np.uint8)
        records = np.zeros(packets, PACKET)
        heap = np.zeros((2 * packets, HEAP_WORDS), np.int64)
        free = np.zeros(packets, np.int32)
        kept = int(world["free_count"])
        if before:
            frames[:before], records[:before] = self._kept["frames"], self._kept["packets"]
            heap[: 2 * before] = self._kept["heap"]
        free[: packets - before] = np.arange(packets - 1, before - 1, -1)
        if before:
            free[packets - before : packets - before + kept] = self._kept["free"][:kept]
        self._keep("frames", frames)
        self._keep("packets", records)
        self._keep("heap", heap)
        self._keep("free", free)
        world["packet_room"], world["heap_room"] = packets, 2 * packets
        world["free_count"] = kept + packets - before

    def _build(self) -> None:
        """Lay out what follows from the graph, once."""
        if self._is_built:
            return
        self._is_built = True
        world, count = self.world[0], len(self.nodes)
        world["node_count"] = count
        links = self._links.rows
        self._next_link = self._keep("next_link", next_links(count, links["from_node"], links["to_node"]))
        self._endpoints = self._keep("endpoints", np.full((count, ENDPOINTS_PER_NODE), -1, np.int32))
        world["endpoints_per_node"] = ENDPOINTS_PER_NODE
        addresses = sorted((ipv4_int(node.ip), node.number) for node in self.nodes)
        self._keep("addresses", np.array(addresses, np.int64).reshape(-1, 2))
        world["address_count"] = count
        port_links: list[int] = []
        for number, ports in enumerate(self._ports):
            size = max(ports, default=0) + 1
            self._switch_rows[number]["port_links"] = len(port_links)
            self._switch_rows[number]["port_count"] = size
            port_links += [ports.get(port, -1) for port in range(size)]
            self._margin = max(self._margin, 4 * size + 1024)
        self._keep("port_links", np.array(port_links or [-1], np.int32))

    def _refresh(self) -> None:
        """Take over what the control plane has changed, and where programs' memory is now."""
        self._build()
        self._make_room()
        for number, programmed in enumerate(self._programmed):
            if programmed is not None and programmed.engine.version != self._versions[number]:
                with programmed.engine.in_flight(self._kept["frames"][:64]) as flight:
                    self._point_at(number, flight)
                self._versions[number] = programmed.engine.version

    def _point_at(self, number: int, flight: Any) -> None:
        switch, at = self._switch_rows[number], flight.at
        values = {
            "code": flight.machine.address,
            "words": address_of(flight.words),
            "inputs": at["in_frames"],
            "out_count": at["out_count"],
            "now_us": at["now_us"],
            "digest_count": at["digest_count"],
            "ports": address_of(flight.out_ports),
            "lengths": address_of(flight.out_lengths),
            "frames": address_of(flight.out_frames),
            "stride": flight.out_frames.shape[1],
        }
        for name, value in values.items():
            switch[name] = value

    # Recording.

    def _start_trace(self, frame_bytes: int | None) -> None:
        if self.world["trace_room"][0]:
            return
        world = self.world[0]
        size = int(world["row_bytes"]) - PAYLOAD_AT + HEADERS_BYTES if frame_bytes is None else frame_bytes
        world["trace_frame_bytes"], world["trace_room"] = size, _TRACE_ROWS
        self._keep("trace", np.zeros(_TRACE_ROWS, TRACE))
        self._keep("trace_frames", np.zeros((_TRACE_ROWS, size), np.uint8))

    def keep_trace(self) -> None:
        """Move what was written down so far to `traces`."""
        count = int(self.world["trace_count"][0])
        if count:
            self.traces.append(
                (self._kept["trace"][:count].copy(), self._kept["trace_frames"][:count].copy())
            )
            self.world["trace_count"] = 0

    # Looking.

    @property
    def worker_records(self) -> npt.NDArray[Any]:
        """What the network holds of each worker (`records.WORKER`)."""
        return self._worker_rows.rows

    @property
    def link_records(self) -> npt.NDArray[Any]:
        """What it holds of each direction of a link (`records.LINK`)."""
        return self._links.rows

    @property
    def switch_records(self) -> npt.NDArray[Any]:
        """What it holds of each switch (`records.SWITCH`)."""
        return self._switch_rows.rows

    @property
    def generator_records(self) -> npt.NDArray[Any]:
        """What it holds of each generator of background traffic (`records.GENERATOR`)."""
        return self._generators.rows

    @property
    def node_records(self) -> npt.NDArray[Any]:
        """What it holds of each node (`records.NODE`)."""
        return self._node_rows.rows

    def link_name(self, number: int) -> str:
        """Return a name of one direction of a link: ``h1>s1``."""
        link = self._links[number]
        return f"{self.nodes[link['from_node']].name}>{self.nodes[link['to_node']].name}"

    def link_counts(self, number: int) -> dict[str, int]:
        """Return what was counted on one direction of a link."""
        return {name: int(self._links[number][name]) for name in COUNTS}

    def set_switch_alive(self, switch: Node, alive: bool) -> None:
        """Let a switch handle packets, or lose them all."""
        self._switch_rows[self._switch_number(switch)]["alive"] = int(alive)

    def node(self, name: str) -> Node:
        """Return a node by its name.

        Raises
        ------
        KeyError
            There is none.
        """
        return next((node for node in self.nodes if node.name == name), None) or _missing(name)

    def _add_node(self, node: Node, **values: int) -> Node:
        if self._is_built:
            raise NetworkError("add all hosts and switches before the first run")
        self._node_rows.add(**values)
        self.nodes.append(node)
        return node

    def _switch_number(self, node: Node) -> int:
        return int(self._node_rows[node.number]["index"])

    def _free_port(self, node: Node, port: int | None) -> int:
        if not node.is_switch:
            return 0
        taken = self._ports[self._switch_number(node)]
        chosen = port if port is not None else next(each for each in range(1, 512) if each not in taken)
        if chosen in taken:
            raise NetworkError(f"port {chosen} of {node.name} has a link already")
        return chosen

    def _port_towards(self, switch: Node, host: Node) -> int:
        link = int(self._next_link[switch.number, host.number])
        for port, number in self._ports[self._switch_number(switch)].items():
            if number == link:
                return port
        raise NetworkError(f"host {host.name} is not connected to {switch.name}")


def _missing(name: str) -> Node:
    raise KeyError(name)
