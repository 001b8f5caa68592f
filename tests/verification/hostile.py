"""Workers on the embedded engine in virtual time, with a hook for every packet that passes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from host_agent.collectives import Collective
from host_agent.protocol.core import WorkerCore
from host_agent.schedule import Outcome, Schedule
from host_agent.wire import Admission
from host_agent.wire.constants import FLAG_LANES, HEADER_BYTES, KIND_CONTRIBUTE, KIND_RESULT
from sim.frames import FIRST_UDP_PORT, headers
from sim.network.programming import DEFAULT_IP, DEFAULT_MAC
from sim.switch import Packets
from tests.integration.simulated.star import StarSwitch, ip_at, mac_at

FRAME_HEADERS = 42
ROUND_NS = 20_000
TIMEOUT_NS = 40_000_000
Words = npt.NDArray[np.uint32]


class Planned(Protocol):
    """A request, or what plans like one."""

    def plan(self, admission: Admission, sequence: int) -> Collective[Any]: ...


@dataclass
class Datagrams:
    """Datagrams on their way up or down, one a row; `words` are those of header and lanes, in network byte order."""

    words: npt.NDArray[Any]  # >u4 (n, 5 + lanes)
    lengths: npt.NDArray[np.int32]  # 0: lost.
    workers: npt.NDArray[np.int64]

    @property
    def kinds(self) -> npt.NDArray[Any]:
        return self.words[:, 0] >> 24 & 0xF

    @property
    def with_lanes(self) -> npt.NDArray[np.int64]:
        """The rows of CONTRIBUTEs and RESULTs with lanes."""
        marks = self.words[:, 0]
        carries = (marks >> 16 & FLAG_LANES != 0) & np.isin(self.kinds, (KIND_CONTRIBUTE, KIND_RESULT))
        return np.flatnonzero(carries & (self.lengths > 0))

    @property
    def lanes(self) -> npt.NDArray[Any]:
        return self.words[:, HEADER_BYTES // 4 : -1]  # A row is one word longer than the longest datagram.


Tamper = Callable[[Datagrams, str], None]
"""Changes datagrams in place; "up" to the switch or "down" to the workers."""


class HostileStar:
    """A job on one switch; every datagram is shown to `tamper` before it arrives."""

    def __init__(self, switch: StarSwitch, workers: int, slots: int = 4) -> None:
        self.engine = switch.engine
        self.lanes = switch.capabilities.lanes
        self.admissions = switch.admit(workers, slots)
        self._headers: dict[tuple[int, int], npt.NDArray[np.uint8]] = {}

    def run(
        self, plans: Sequence[Sequence[Planned]], tamper: Tamper | None = None, timeout_ns: int = TIMEOUT_NS
    ) -> list[list[Outcome]]:
        """Run each worker's requests; returns the outcomes by worker."""
        cores = [WorkerCore(admission, timeout_ns) for admission in self.admissions]
        schedules = [Schedule(core) for core in cores]
        outcomes: list[list[Outcome]] = [[] for _ in cores]
        for admission, schedule, requests in zip(self.admissions, schedules, plans, strict=True):
            for sequence, request in enumerate(requests):
                schedule.add(request.plan(admission, sequence))
        row_bytes = cores[0].row_bytes
        rows = np.zeros((64, row_bytes), np.uint8)
        lengths = np.zeros(64, np.int32)
        broken: list[Exception | None] = [None] * len(cores)
        now_ns = 0
        while any(len(schedule) for schedule in schedules):
            now_ns += ROUND_NS
            frames, sizes, workers = [], [], []
            for worker, (core, schedule) in enumerate(zip(cores, schedules, strict=True)):
                if broken[worker]:
                    continue
                try:
                    schedule.begin(now_ns)
                    count = core.transmit(now_ns, rows, lengths)
                    outcomes[worker] += schedule.take_ended(now_ns)
                except Exception as error:
                    broken[worker] = error
                    outcomes[worker] += schedule.drop(error)
                    continue
                frames.append(rows[:count].copy())
                sizes.append(lengths[:count].copy())
                workers.append(np.full(count, worker))
            sent = np.concatenate(frames) if frames else rows[:0]
            up = Datagrams(
                np.ascontiguousarray(sent).view(">u4"),
                np.concatenate(sizes) if sizes else lengths[:0],
                np.concatenate(workers) if workers else np.zeros(0, np.int64),
            )
            if tamper is not None and up.lengths.size:
                tamper(up, "up")
            out = self.engine.inject(self._frames(up), now_ns)
            if not len(out):
                continue
            payload = np.zeros((len(out), row_bytes), np.uint8)
            width = min(out.frames.shape[1] - FRAME_HEADERS, row_bytes)
            payload[:, :width] = out.frames[:, FRAME_HEADERS : FRAME_HEADERS + width]
            down = Datagrams(payload.view(">u4"), out.lengths - FRAME_HEADERS, out.ports.astype(np.int64) - 1)
            if tamper is not None:
                tamper(down, "down")
            for worker, (core, schedule) in enumerate(zip(cores, schedules, strict=True)):
                for at in np.flatnonzero((down.workers == worker) & (down.lengths > 0)):
                    core.on_datagram(payload[at, : down.lengths[at]], now_ns)
                if broken[worker]:
                    continue
                try:
                    outcomes[worker] += schedule.take_ended(now_ns)
                except Exception as error:
                    broken[worker] = error
                    outcomes[worker] += schedule.drop(error)
        return outcomes

    def _frames(self, datagrams: Datagrams) -> Packets:
        kept = np.flatnonzero(datagrams.lengths > 0)
        payload = datagrams.words.view(np.uint8)
        frames = np.zeros((kept.size, FRAME_HEADERS + payload.shape[1]), np.uint8)
        for row, at in enumerate(kept):
            worker, length = int(datagrams.workers[at]), int(datagrams.lengths[at])
            frames[row, :FRAME_HEADERS] = self._header(worker, length)
            frames[row, FRAME_HEADERS : FRAME_HEADERS + length] = payload[at, :length]
        ports = (datagrams.workers[kept] + 1).astype(np.uint16)
        return Packets(ports, datagrams.lengths[kept] + np.int32(FRAME_HEADERS), frames)

    def _header(self, worker: int, length: int) -> npt.NDArray[np.uint8]:
        known = self._headers.get((worker, length))
        if known is None:
            source = mac_at(worker + 1), ip_at(worker + 1)
            known = self._headers[worker, length] = np.frombuffer(
                headers(
                    *(source, (DEFAULT_MAC, DEFAULT_IP), FIRST_UDP_PORT),
                    length=20 + 8 + length,
                    udp_length=8 + length,
                ),
                np.uint8,
            )
        return known
