"""A network in virtual time: a heap of events, seeded faults, and no wait."""

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from host_agent import Admission
from host_agent.collectives import Collective
from host_agent.protocol.core import WorkerCore
from host_agent.protocol.records import NEVER
from host_agent.schedule import Outcome, Schedule

from .frames import HEADERS_BYTES, IPV4_AND_UDP_BYTES, headers
from .switch import VirtualSwitch

ARRIVAL, TIMER = 0, 1
"""Priorities: what arrives at a time comes before the timers of that time."""

Plan = Callable[[Admission, int], Collective]
"""Plans a worker's next collective, given its admission and sequence number."""


@dataclass(frozen=True)
class Faults:
    """What a cable does to a frame. Probabilities are per frame and direction."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay_ns: int = 10_000
    jitter_ns: int = 0
    """Up to so much more, evenly: enough of it reorders."""
    straggle: float = 0.0
    straggle_ns: int = 0
    """Up to so much more, for some."""
    mtu_up: int = 9000
    mtu_down: int = 9000
    """Longer packets (IPv4 header and on) are lost without a word."""
    service_ns: int = 0
    """How long the switch is busy with a packet, while others queue."""


class Host:
    """A worker: the real core and the real order of collectives, driven by events."""

    def __init__(
        self,
        network: "Network",
        admission: Admission,
        port: int,
        plans: Iterable[Plan],
        timeout_ns: int,
        at_once: int,
        first_chunk: int,
    ) -> None:
        self.network = network
        self.admission = admission
        self.port = port
        self.core = WorkerCore(admission, timeout_ns, first_chunk)
        self.schedule = Schedule(self.core)
        self.outcomes: list[Outcome] = []
        self.alive = True
        self._plans = list(plans)
        self._planned = 0
        self._at_once = at_once
        self._tx = np.zeros((16, self.core.row_bytes), np.uint8)
        self._tx_bytes = np.zeros(16, np.int32)
        self._rx = np.zeros((1, self.core.row_bytes), np.uint8)
        self._rx_bytes = np.zeros(1, np.int32)
        self._timer_ns = NEVER

    @property
    def done(self) -> bool:
        failed = self.core.failed and len(self.schedule) == 0
        return not self.alive or failed or len(self.outcomes) == len(self._plans)

    def start(self) -> None:
        if self.alive:
            self._drive()

    def receive(self, datagram: bytes) -> None:
        if not self.alive:
            return
        length = min(len(datagram), self.core.row_bytes)
        self._rx[0, :length] = np.frombuffer(datagram, np.uint8, length)
        self._rx_bytes[0] = len(datagram)
        self.core.on_datagrams(self._rx, self._rx_bytes, 1, self.network.now_ns)
        self._drive()

    def on_timer(self) -> None:
        if self.alive and self.network.now_ns >= self._timer_ns:
            self._timer_ns = NEVER
            self._drive()

    def _drive(self) -> None:
        now_ns = self.network.now_ns
        while True:
            for outcome in self.schedule.take_ended(now_ns):
                outcome.resolve()
                self.outcomes.append(outcome)
            while self._planned < len(self._plans) and len(self.schedule) < self._at_once:
                if self.core.failed:
                    break
                self.schedule.add(self._plans[self._planned](self.admission, self._planned))
                self._planned += 1
            self.schedule.begin(now_ns)
            count = self.core.transmit(now_ns, self._tx, self._tx_bytes)
            for row, length in zip(self._tx[:count], self._tx_bytes[:count], strict=True):
                self.network.to_switch(self.port, row[:length].tobytes())
            if self.core.failed:
                if not len(self.schedule):
                    break
            elif count < len(self._tx) - 1:
                break  # that was all
        timer_ns = self.core.next_timer_ns()
        if timer_ns < self._timer_ns:
            self._timer_ns = timer_ns
            self.network.at(timer_ns, TIMER, self.on_timer)


class Network:
    """Hosts, cables and one switch.

    Events are in order of (time, priority, sequence), faults come from one seeded generator: a run repeats exactly.
    """

    def __init__(self, switch: VirtualSwitch, faults: Faults, seed: int) -> None:
        self.switch = switch
        self.faults = faults
        self.random = random.Random(seed)
        self.now_ns = 0
        self.hosts: list[Host] = []
        self.switch_alive = True
        self.events_run = 0
        self._switch_free_ns = 0
        self._events: list[tuple[int, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._headers: dict[tuple[int, int], bytes] = {}

    def add_job(
        self,
        admissions: list[Admission],
        plans: Callable[[int], Iterable[Plan]],
        *,
        timeout_ns: int = 10**12,
        at_once: int = 1,
        first_chunk: int = 0,
        first_port: int = 0,
        start_ns: Callable[[int], int] = lambda worker: 0,
    ) -> list[Host]:
        """Add the hosts of a job; `plans` gives the collectives of a worker, `at_once` of them are submitted ahead."""
        hosts = []
        for admission in admissions:
            worker = admission.worker_id
            host = Host(self, admission, first_port + worker, plans(worker), timeout_ns, at_once, first_chunk)
            self.at(self.now_ns + start_ns(worker), TIMER, host.start)
            hosts.append(host)
        self.hosts += hosts
        return hosts

    def at(self, time_ns: int, priority: int, action: Callable[..., None], *arguments: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (time_ns, priority, self._sequence, action, arguments))

    def to_switch(self, port: int, datagram: bytes) -> None:
        key = port, len(datagram)
        if key not in self._headers:
            self._headers[key] = headers(*key)
        if len(datagram) + IPV4_AND_UDP_BYTES <= self.faults.mtu_up:
            self._cable(self._arrive_at_switch, port, self._headers[key] + datagram)

    def _cable(self, arrive: Callable[..., None], *arguments: Any) -> None:
        """Carry a frame, or lose it, or carry it twice."""
        faults, chance = self.faults, self.random.random
        copies = 0 if chance() < faults.drop else 1
        if faults.duplicate and chance() < faults.duplicate:
            copies += 1
        for _ in range(copies):
            delay_ns = faults.delay_ns
            if faults.jitter_ns:
                delay_ns += int(chance() * faults.jitter_ns)
            if faults.straggle and chance() < faults.straggle:
                delay_ns += int(chance() * faults.straggle_ns)
            self.at(self.now_ns + delay_ns, ARRIVAL, arrive, *arguments)

    def run(self, until: Callable[[], bool] | None = None, max_events: int = 2_000_000) -> None:
        """Run until all hosts are done (or `until`); a run that goes on for ever is a failure."""
        finished = until or (lambda: all(host.done for host in self.hosts))
        while self._events and not finished():
            self.now_ns, _, _, action, arguments = heapq.heappop(self._events)
            action(*arguments)
            self.events_run += 1
            assert self.events_run < max_events, "the run does not end"
        assert finished(), "nothing is left to happen, but not all hosts are done"

    def drain(self) -> None:
        """Let everything that is still on its way arrive."""
        self.run(until=lambda: not self._events)

    def _arrive_at_switch(self, port: int, frame: bytes) -> None:
        if self.faults.service_ns == 0:
            self._pass_switch(port, frame)
        else:
            self._switch_free_ns = max(self._switch_free_ns, self.now_ns) + self.faults.service_ns
            self.at(self._switch_free_ns, ARRIVAL, self._pass_switch, port, frame)

    def _pass_switch(self, port: int, frame: bytes) -> None:
        if not self.switch_alive:
            return
        for out_port, out_frame in self.switch.inject(port, frame, self.now_ns):
            datagram = out_frame[HEADERS_BYTES:]
            for host in self.hosts:
                if host.port == out_port and len(datagram) + IPV4_AND_UDP_BYTES <= self.faults.mtu_down:
                    self._cable(host.receive, datagram)
