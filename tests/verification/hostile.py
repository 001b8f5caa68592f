"""Workers and switches in virtual time, with a hook for every packet that passes: a star, or a tree of switches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from host_agent.collectives import Collective
from host_agent.protocol.core import WorkerCore
from host_agent.protocol.records import NEVER
from host_agent.schedule import Outcome, Schedule
from host_agent.wire import Admission
from host_agent.wire.constants import FLAG_LANES, HEADER_FIELDS, KIND_CONTRIBUTE, KIND_RESULT
from host_agent.wire.header import HEADER_WORDS
from host_agent.wire.lengths import FRAME_HEADERS_BYTES
from netsum_common.errors import NetsumError
from sim.frames import FIRST_UDP_PORT, headers
from sim.network.programming import DEFAULT_IP, DEFAULT_MAC
from sim.switch import Packets
from tests.integration.simulated.star import Cables, StarSwitch, ip_at, mac_at
from tests.integration.simulated.tree import Fabric, TreeNetwork

ROUND_NS = 20_000
TIMEOUT_NS = 40_000_000
LIMIT_NS = 50 * TIMEOUT_NS
_ROWS = 64


class Planned(Protocol):
    """A request, or what plans like one."""

    def plan(self, admission: Admission, sequence: int) -> Collective[Any]: ...


class Engine(Protocol):
    """A switch that packets can be given to."""

    def inject(self, packets: Packets, now_ns: int) -> Packets: ...


def _places() -> dict[str, tuple[int, int, int]]:
    """Word, shift and mask of each field of the header."""
    places, at = {}, 0
    for name, bits in HEADER_FIELDS:
        places[name] = at // 32, 32 - at % 32 - bits, (1 << bits) - 1
        at += bits
    return places


_PLACES = _places()


@dataclass
class Datagrams:
    """Datagrams on their way up or down, one a row; `words` are those of header and lanes, in network byte order."""

    words: npt.NDArray[Any]  # >u4 (n, header + lanes + 1)
    lengths: npt.NDArray[np.int32]  # 0: lost.
    workers: npt.NDArray[
        np.int64
    ]  # The datagrams' workers; between switches: the cable's number, from theirs on.

    def field(self, name: str) -> npt.NDArray[np.int64]:
        """A field of all headers."""
        word, shift, mask = _PLACES[name]
        return self.words[:, word].astype(np.int64) >> shift & mask

    def set_field(self, row: int, name: str, value: int) -> None:
        word, shift, mask = _PLACES[name]
        self.words[row, word] = int(self.words[row, word]) & ~(mask << shift) | (value & mask) << shift

    @property
    def kinds(self) -> npt.NDArray[np.int64]:
        return self.field("kind")

    @property
    def with_lanes(self) -> npt.NDArray[np.int64]:
        """The rows of CONTRIBUTEs and RESULTs with lanes."""
        carries = (self.field("flags") & FLAG_LANES != 0) & np.isin(
            self.kinds, (KIND_CONTRIBUTE, KIND_RESULT)
        )
        return np.flatnonzero(carries & (self.lengths > 0))

    @property
    def lanes(self) -> npt.NDArray[Any]:
        return self.words[:, HEADER_WORDS:-1]  # A row is one word longer than the longest datagram.


Tamper = Callable[[Datagrams, str], None]
"""Changes datagrams in place; "up" to a switch or "down" to its children."""


class Port(NamedTuple):
    """A port of a switch."""

    switch: str
    number: int


class HostileNetwork:
    """A job on switches; every datagram is shown to `tamper` before it arrives, also between switches.

    `stations`: each worker's port, its addresses and its switch's. `parents`: the far end of each cable from a switch to its
    parent.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine],
        admissions: Sequence[Admission],
        stations: Sequence[tuple[Port, tuple[str, str], tuple[str, str]]],
        parents: Mapping[Port, Port],
    ) -> None:
        self.make_core: Callable[[Admission, int], WorkerCore] = WorkerCore
        self.engines, self.admissions = engines, list(admissions)
        self.workers = len(self.admissions)
        self._stations = stations
        self._worker_at = {port: worker for worker, (port, *_) in enumerate(stations)}
        self._up, self._down = parents, {top: bottom for bottom, top in parents.items()}
        cables = enumerate(parents.items(), self.workers)
        self._cables = {port: number for number, pair in cables for port in pair}
        self._headers: dict[tuple[int, int], npt.NDArray[np.uint8]] = {}

    def run(
        self, plans: Sequence[Sequence[Planned]], tamper: Tamper | None = None, timeout_ns: int = TIMEOUT_NS
    ) -> list[list[Outcome]]:
        """Run each worker's requests; returns the outcomes by worker."""
        cores = [self.make_core(admission, timeout_ns) for admission in self.admissions]
        workers = [_Worker(core) for core in cores]
        for worker, requests in zip(workers, plans, strict=True):
            for sequence, request in enumerate(requests):
                worker.schedule.add(request.plan(worker.core.admission, sequence))
        self._row_bytes = cores[0].row_bytes
        self._arriving: dict[str, list[Packets]] = {name: [] for name in self.engines}
        now_ns = 0
        while any(len(worker.schedule) for worker in workers):
            now_ns += ROUND_NS
            if now_ns > LIMIT_NS:
                for worker in workers:
                    worker.give_up(NetsumError("the run does not end"))
                break
            self._send(workers, tamper, now_ns)
            arriving, self._arriving = self._arriving, {name: [] for name in self.engines}
            for name, batches in arriving.items():
                for batch in batches:
                    self._pass_on(name, self.engines[name].inject(batch, now_ns), workers, tamper, now_ns)
            for worker in workers:
                worker.end(now_ns)
            if not any(arriving.values()) and not any(self._arriving.values()):
                # Nothing is under way: go on when the first timer expires.
                timers = [worker.timer_ns for worker in workers]
                now_ns = max(now_ns, min((each for each in timers if each < NEVER), default=0) - ROUND_NS)
        return [worker.outcomes for worker in workers]

    def _send(self, workers: "list[_Worker]", tamper: Tamper | None, now_ns: int) -> None:
        """Let the workers' datagrams leave, and come to their switches."""
        sent = [worker.transmit(now_ns) for worker in workers]
        up = Datagrams(
            np.concatenate([rows for rows, _ in sent]).view(">u4"),
            np.concatenate([lengths for _, lengths in sent]),
            np.arange(len(workers)).repeat([lengths.size for _, lengths in sent]),
        )
        if tamper is not None and up.lengths.size:
            tamper(up, "up")
        for name in self.engines:
            here = [
                int(row)
                for row in np.flatnonzero(up.lengths > 0)
                if self._stations[up.workers[row]][0].switch == name
            ]
            if here:
                self._arriving[name].append(self._frames(up, here))

    def _pass_on(
        self, name: str, out: Packets, workers: "list[_Worker]", tamper: Tamper | None, now_ns: int
    ) -> None:
        """Bring what leaves a switch to workers, now, and to other switches, in the next round."""
        if not len(out):
            return
        ports = [Port(name, int(port)) for port in out.ports]
        payload = np.zeros((len(out), self._row_bytes), np.uint8)
        width = min(out.frames.shape[1] - FRAME_HEADERS_BYTES, self._row_bytes)
        payload[:, :width] = out.frames[:, FRAME_HEADERS_BYTES : FRAME_HEADERS_BYTES + width]
        for way, ends in (("up", self._up), ("down", self._down), ("down", self._worker_at)):
            rows = [row for row, port in enumerate(ports) if port in ends]
            if not rows:
                continue
            numbers: Mapping[Port, int] = self._worker_at if ends is self._worker_at else self._cables
            passing = Datagrams(
                payload[rows].view(">u4"),
                out.lengths[rows] - FRAME_HEADERS_BYTES,
                np.array([numbers[ports[row]] for row in rows], np.int64),
            )
            if tamper is not None:
                tamper(passing, way)
            words = passing.words.view(np.uint8)
            for at, row in enumerate(rows):
                length = int(passing.lengths[at])
                if not length:
                    continue
                if ends is self._worker_at:
                    workers[self._worker_at[ports[row]]].core.on_datagram(words[at, :length], now_ns)
                    continue
                far = ends[ports[row]]
                assert isinstance(far, Port)
                frame = out.frames[row, :FRAME_HEADERS_BYTES].tobytes() + words[at, :length].tobytes()
                self._arriving[far.switch].append(Packets.of([(far.number, frame)]))

    def _frames(self, datagrams: Datagrams, rows: Sequence[int]) -> Packets:
        payload = datagrams.words.view(np.uint8)
        frames = np.zeros((len(rows), FRAME_HEADERS_BYTES + payload.shape[1]), np.uint8)
        ports = np.zeros(len(rows), np.uint16)
        for row, at in enumerate(rows):
            worker, length = int(datagrams.workers[at]), int(datagrams.lengths[at])
            ports[row] = self._stations[worker][0].number
            frames[row, :FRAME_HEADERS_BYTES] = self._header(worker, length)
            frames[row, FRAME_HEADERS_BYTES : FRAME_HEADERS_BYTES + length] = payload[at, :length]
        return Packets(ports, datagrams.lengths[rows] + np.int32(FRAME_HEADERS_BYTES), frames)

    def _header(self, worker: int, length: int) -> npt.NDArray[np.uint8]:
        known = self._headers.get((worker, length))
        if known is None:
            _, own, switch = self._stations[worker]
            written = headers(own, switch, FIRST_UDP_PORT, length=20 + 8 + length, udp_length=8 + length)
            known = self._headers[worker, length] = np.frombuffer(written, np.uint8)
        return known


class _Worker:
    """A worker's core and schedule; one that has raised takes no further part."""

    def __init__(self, core: WorkerCore) -> None:
        self.core, self.schedule = core, Schedule(core)
        self.outcomes: list[Outcome] = []
        self._broken = False
        self._rows = np.zeros((_ROWS, core.row_bytes), np.uint8)
        self._lengths = np.zeros(_ROWS, np.int32)

    @property
    def timer_ns(self) -> int:
        """Time of the worker's next action if no packet arrives."""
        return NEVER if self._broken or not len(self.schedule) else self.core.next_timer_ns()

    def transmit(self, now_ns: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
        """Return the rows and lengths of the datagrams that leave."""
        count = 0
        if not self._broken:
            try:
                self.schedule.begin(now_ns)
                count = self.core.transmit(now_ns, self._rows, self._lengths)
                self.outcomes += self.schedule.take_ended(now_ns)
            except Exception as error:
                self.give_up(error)
                count = 0
        return self._rows[:count].copy(), self._lengths[:count].copy()

    def end(self, now_ns: int) -> None:
        """Take the outcomes of collectives that have ended."""
        if not self._broken:
            try:
                self.outcomes += self.schedule.take_ended(now_ns)
            except Exception as error:
                self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """Drop all collectives."""
        self._broken = True
        self.outcomes += self.schedule.drop(error)


class HostileStar(HostileNetwork):
    """A job on one switch."""

    def __init__(self, switch: StarSwitch, workers: int, slots: int = 4, *, quorum: int = 0) -> None:
        own = DEFAULT_MAC, DEFAULT_IP
        places = range(1, workers + 1)
        stations = [(Port("s1", port), (mac_at(port), ip_at(port)), own) for port in places]
        admissions = switch.admit(workers, slots, quorum=quorum)
        super().__init__({"s1": switch.engine}, admissions, stations, {})
        self.lanes = switch.capabilities.lanes


class HostileTree(HostileNetwork):
    """A job on a tree of switches."""

    def __init__(self, tree: Fabric, slots: int = 4) -> None:
        network = TreeNetwork(tree, Cables(), 0)
        topology = network.network.topology
        stations, parents = [], {}
        for host, spec in topology.hosts.items():
            place, switch = Port(*topology.place(host)), topology.switches[topology.place(host)[0]]
            stations.append((place, (spec.mac, spec.ip), (switch.mac, switch.ip)))
        for low, high in tree.edges:
            bottom, top = topology.neighbours(low)[high], topology.neighbours(high)[low]
            parents[Port(low, bottom)] = Port(high, top)
        engines = {name: switch.engine for name, switch in tree.switches.items()}
        super().__init__(engines, network.start_job(slots).admissions, stations, parents)
        self.lanes = tree.lanes
