"""A link of its own kind, in memory of this process: workers reduce over it, and the embedded switch adds for them.

This file is all that the link needs. Besides the operations that the compiled loop calls, it has a `Link` whose `exchange`
carries the loop's packets to the switch, and the switch's packets to the workers' memories.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba.core.caching import NullCache

from controller.jobs import WorkerEndpoint
from host_agent.collectives import AllReduceRequest
from host_agent.errors import MissingWorkersError, PeerError
from host_agent.progress import Progress
from host_agent.protocol.core import WorkerCore
from host_agent.transport import exchange as loop
from host_agent.transport.exchange import LINKS, TIME_UP, Operations
from host_agent.transport.link import Link
from host_agent.wire import Admission
from sim.frames import FIRST_UDP_PORT, headers
from sim.network.programming import DEFAULT_IP, DEFAULT_MAC
from sim.switch.packets import Packets
from tests.integration.simulated.star import ip_at, mac_at, program_file
from tests.sim.network.switch_with_jobs import SwitchWithJobs

ROWS = 64
LANES = 64
HEADER_BYTES = 42
WORKERS = 3


class LinkMemory(NamedTuple):
    wake: Any
    work: Any
    up: Any
    up_lengths: Any
    down: Any
    down_lengths: Any
    # int64[3]: datagrams that have been sent, datagrams that have come, and of the latter those that were taken.
    counts: Any


def fetch(memory):  # type: ignore[no-untyped-def]
    if memory.counts[2] == memory.counts[1]:
        memory.counts[1:] = 0


def next_datagram(memory):  # type: ignore[no-untyped-def]
    at = memory.counts[2]
    if at == memory.counts[1]:
        return np.int64(0), np.int64(-1)
    memory.counts[2] += 1
    return np.int64(memory.down[at].ctypes.data), np.int64(memory.down_lengths[at])


def free_rows(memory):  # type: ignore[no-untyped-def]
    first = memory.counts[0]
    return memory.up[first:], memory.up_lengths[first:]


def send(memory, count):  # type: ignore[no-untyped-def]
    memory.counts[0] += count
    return False


def wait(memory, core, received, blocked, timeout_ns):  # type: ignore[no-untyped-def]
    return np.int64(0)  # `MemoryLink.exchange` runs the loop once at a time and waits between.


_compiled = numba.njit(nogil=True, error_model="numpy")
LINKS[LinkMemory] = Operations(*map(_compiled, (fetch, next_datagram, free_rows, send, wait)))


class LoopbackNetwork:
    """The embedded switch with the P4 program, and the memory of each worker at one of its ports."""

    def __init__(self, workers: int) -> None:
        self.switch = SwitchWithJobs(program_file(LANES))
        ports = range(1, workers + 1)
        places = [WorkerEndpoint(port, ip_at(port), mac_at(port), FIRST_UDP_PORT) for port in ports]
        self.admissions = self.switch.create_job("job", places, 16).admissions
        self.links: dict[int, MemoryLink] = {}
        self._lock = threading.Lock()

    def carry(self, link: MemoryLink) -> int:
        """Run a worker's datagrams through the switch; return their number."""
        with self._lock:
            count = int(link.ends.counts[0])
            link.ends.counts[0] = 0
            sent = [(link.port, link.frame(row)) for row in range(count)]
            for port, frame in self.switch.engine.inject(Packets.of(sent), time.monotonic_ns()):
                self.links[port].deliver(frame[HEADER_BYTES:])
            return count


class MemoryLink(Link):
    kind = "memory"

    def __init__(self, core: WorkerCore, network: LoopbackNetwork | None = None, port: int = 1) -> None:
        super().__init__(core)
        self.port = port
        self._network = network
        self._arrived: list[bytes] = []
        rows = [np.zeros((ROWS, core.row_bytes), np.uint8) for _ in range(2)]
        lengths = [np.zeros(ROWS, np.int32) for _ in range(2)]
        self.ends = LinkMemory(
            self._wake, np.zeros(2, np.int64), rows[0], lengths[0], rows[1], lengths[1], np.zeros(3, np.int64)
        )
        if network is not None:
            network.links[port] = self

    def exchange(self, seconds: float) -> int:
        until = time.monotonic() + seconds
        while True:
            self._fill()
            reason = super().exchange(0.0)
            sent = self._network.carry(self) if self._network is not None else 0
            if reason != TIME_UP or time.monotonic() >= until:
                return reason
            if not sent:
                time.sleep(0.0002)

    def frame(self, row: int) -> bytes:
        payload: bytes = self.ends.up[row, : self.ends.up_lengths[row]].tobytes()
        source, length = (mac_at(self.port), ip_at(self.port)), len(payload)
        target = (DEFAULT_MAC, DEFAULT_IP)
        return headers(source, target, FIRST_UDP_PORT, length=length + 28, udp_length=length + 8) + payload

    def deliver(self, datagram: bytes) -> None:
        self._arrived.append(datagram)

    def _fill(self) -> None:
        """Put arrived packets into the array from which the loop reads; the loop has read all earlier packets."""
        ends = self.ends
        ends.counts[1:] = 0
        arrived = self._arrived[:ROWS]
        del self._arrived[: len(arrived)]
        for row, datagram in enumerate(arrived):
            ends.down[row, : len(datagram)] = np.frombuffer(datagram, np.uint8)
            ends.down_lengths[row] = len(datagram)
        ends.counts[1] = len(arrived)

    @property
    def address(self) -> tuple[str, int]:
        return ip_at(self.port), FIRST_UDP_PORT

    def enter(self, core: WorkerCore) -> None:
        self._core = core

    def trouble(self) -> str:
        return "" if self._network is not None else "the memory has no other end"

    def clear_trouble(self) -> None:
        pass


@pytest.fixture(autouse=True)
def uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    """This module is in no stamp of the cache on disk."""
    for function in (loop.exchange, loop._exchange):
        monkeypatch.setattr(function, "_cache", NullCache())


@pytest.mark.parametrize("own_thread", [False, True])
def test_workers_reduce_over_another_link(own_thread: bool) -> None:
    network = LoopbackNetwork(WORKERS)
    arrays = np.random.default_rng(1).integers(-(10**6), 10**6, (WORKERS, 10_000)).astype(np.int32)
    workers = []
    for admission in network.admissions:
        core = WorkerCore(admission, 60 * 10**9)
        workers.append(Progress(core, MemoryLink(core, network, admission.worker_id + 1)))

    def reduce(rank: int) -> Any:
        worker, admission = workers[rank], network.admissions[rank]
        if own_thread:
            worker.start_thread()
        return worker.wait(worker.submit(AllReduceRequest(arrays[rank]).plan(admission, 0)))

    with ThreadPoolExecutor(WORKERS) as pool:
        for reduced in pool.map(reduce, range(WORKERS), timeout=120):
            assert np.array_equal(reduced, arrays.sum(axis=0, dtype=np.int32))
    for worker in workers:
        worker.close()
    job = network.switch.ledger.jobs[0]
    assert network.switch.counters(job)["results"] >= -(-arrays.shape[1] // LANES), "the switch added"


def test_the_error_says_what_the_link_reports() -> None:
    admission = Admission(1, 7, 9, 0, 1, 16, LANES)
    core = WorkerCore(admission, 10**6)
    progress = Progress(core, MemoryLink(core))
    with pytest.raises(PeerError, match="the memory has no other end") as raised:
        progress.wait(progress.submit(AllReduceRequest(np.ones(64, np.int32)).plan(admission, 0)))
    assert not isinstance(raised.value, MissingWorkersError)
    progress.close()
