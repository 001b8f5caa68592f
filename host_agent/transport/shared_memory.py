"""Shared memory as a link: rings of datagrams to a switch on the same machine (`netsum_common.rings`)."""

import contextlib
import mmap
import os
import socket
from collections.abc import Collection
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from host_agent.errors import MisuseError
from host_agent.protocol.core import WorkerCore
from host_agent.transport.exchange import LINKS, Operations, exchange
from host_agent.transport.in_place_link import InPlaceLink
from host_agent.transport.system_calls import POLLFD, POLLIN, poll
from host_agent.transport.udp import Bind, UdpLink
from netsum_common.compiled import Integer, Record, Records, compiled
from netsum_common.memory import fence, load32, load_acquire, prefetch, store_release
from netsum_common.rings import (
    DOWN_HEAD,
    DOWN_TAIL,
    FOR_DATAGRAMS,
    FOR_ROOM,
    SWITCH_SLEEPS,
    UP_HEAD,
    UP_TAIL,
    WORKER_SLEEPS,
    AttachError,
    RingShape,
    attach,
)
from netsum_common.sockets import monotonic_ns, ring_bell

LINK_VARIABLE: Final = "NETSUM_LINK"
# Distance of the row that is prefetched: the switch has it in another cache.
_ROWS_AHEAD: Final = 3
LEAST_ROWS: Final = 128
ATTACH_TIMEOUT_S: Final = 5.0
SPIN_NS: Final = 20_000
"""How long a worker looks for datagrams before it sleeps, where the job's workers and the switch have a processor each."""
_LINE_BYTES: Final = 64

RINGS: Final = np.dtype(
    [
        ("base", np.int64),  # where the memory is
        ("up_head", np.int64),
        ("down_head", np.int64),  # how far the switch has written, at the last look
        ("down_tail", np.int64),
        ("bell", np.int64),  # wakes the switch
        ("spin_ns", np.int64),  # how long to look for datagrams before sleeping
        ("gone", np.int64),  # 1: the switch has closed the connection
    ]
)
"""The worker's end of its rings."""

_read = types.ExternalFunction("read", types.intp(types.int32, types.uintp, types.uintp))


class MemoryRings(NamedTuple):
    """A link as compiled code sees it."""

    # wake, work: int64[1], int64[2]. As for every link.
    wake: npt.NDArray[np.int64]
    work: npt.NDArray[np.int64]
    rings: Records  # RINGS[1]. The state.
    # up_rows, up_lengths, down_rows, down_lengths: uint8[:, :], int32[:]. The rings themselves.
    up_rows: npt.NDArray[np.uint8]
    up_lengths: npt.NDArray[np.int32]
    down_rows: npt.NDArray[np.uint8]
    down_lengths: npt.NDArray[np.int32]
    # POLLFD[3]. The eventfd with which the switch wakes this worker, that of `Link.wake`, and the connection.
    poll_fds: Records
    one: npt.NDArray[np.int64]  # int64[1]. 1.


@compiled
def fetch(memory: MemoryRings) -> None:
    """Read how far the switch has written, and let it overwrite datagrams that were taken."""
    ring = memory.rings[0]
    store_release(ring.base + DOWN_TAIL, np.uint32(ring.down_tail))
    ring.down_head = np.int64(load_acquire(ring.base + DOWN_HEAD))


@compiled
def next_datagram(memory: MemoryRings) -> tuple[Integer, Integer]:
    """Return where the next datagram is and its length."""
    ring = memory.rings[0]
    if ring.down_tail == ring.down_head:
        return np.int64(0), np.int64(-1)
    last = memory.down_lengths.size - 1
    at = ring.down_tail & last
    length = np.int64(memory.down_lengths[at])
    prefetch(memory.down_rows[ring.down_tail + _ROWS_AHEAD & last].ctypes.data, length)
    ring.down_tail = ring.down_tail + 1 & 0xFFFFFFFF
    return np.int64(memory.down_rows[at].ctypes.data), length


@compiled
def _room(memory: MemoryRings) -> Integer:
    """Return how many rows are free for datagrams to the switch."""
    ring = memory.rings[0]
    waiting = ring.up_head - np.int64(load_acquire(ring.base + UP_TAIL)) & 0xFFFFFFFF
    return memory.up_lengths.size - waiting


@compiled
def free_rows(memory: MemoryRings) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return free rows that follow each other, and their lengths."""
    ring = memory.rings[0]
    size = memory.up_lengths.size
    room = _room(memory)
    first = ring.up_head & size - 1
    if first == size - 1 and room > 2:
        memory.up_lengths[first] = 0  # One row alone is not enough for the core: it is skipped.
        ring.up_head = ring.up_head + 1 & 0xFFFFFFFF
        first = np.int64(0)
        room -= 1
    end = min(first + room, size)
    return memory.up_rows[first:end], memory.up_lengths[first:end]


@compiled
def send(memory: MemoryRings, count: int) -> bool:
    """Let the switch see that many rows more; returns whether there is too little room for more."""
    ring = memory.rings[0]
    if count > 0:
        ring.up_head = ring.up_head + count & 0xFFFFFFFF
        store_release(ring.base + UP_HEAD, np.uint32(ring.up_head))
        fence()
        if load32(ring.base + SWITCH_SLEEPS) != 0:
            store_release(ring.base + SWITCH_SLEEPS, np.uint32(0))
            ring_bell(ring.bell, memory.one)
    return bool(_room(memory) <= 2)


@compiled
def _is_ready(memory: MemoryRings, blocked: bool) -> bool:
    ring = memory.rings[0]
    if np.int64(load_acquire(ring.base + DOWN_HEAD)) != ring.down_tail or memory.wake[0] != 0:
        return True
    return blocked and bool(_room(memory) > 2)


@compiled
def wait(memory: MemoryRings, core: Record, received: int, blocked: bool, timeout_ns: int) -> Integer:
    """Wait until the switch has written, or read if `blocked`; returns what ppoll does."""
    ring = memory.rings[0]
    if ring.spin_ns > 0:
        until_ns = monotonic_ns(memory.work) + min(ring.spin_ns, timeout_ns)
        while monotonic_ns(memory.work) < until_ns:
            if _is_ready(memory, blocked):
                return np.int64(1)
    store_release(ring.base + WORKER_SLEEPS, np.uint32(FOR_ROOM if blocked else FOR_DATAGRAMS))
    fence()
    ready: Integer = np.int64(1)
    if not _is_ready(memory, blocked):
        ready = poll(memory.poll_fds, timeout_ns, memory.work)
        if ready < 0:
            return ready
        if memory.poll_fds[0].revents != 0:
            _read(memory.poll_fds[0].fd, memory.work.ctypes.data, 8)
        if memory.poll_fds[2].revents != 0:
            ring.gone = 1
            memory.poll_fds[2].fd = -1
    store_release(ring.base + WORKER_SLEEPS, np.uint32(0))
    return ready


LINKS[MemoryRings] = Operations(fetch, next_datagram, free_rows, send, wait)


class LocalLink(InPlaceLink):
    """Shared memory with a switch on this machine, and UDP where it shares none.

    `bind`: local IPv4 address and UDP port, which is the worker's to the switch in any case. `ways`: those to be used,
    "program" (`InPlaceLink`) before "memory", rings. Raises MisuseError: as for `UdpLink`.
    """

    def __init__(self, core: WorkerCore, bind: Bind, ways: Collection[str]) -> None:
        self._ways = ways
        self._connection: socket.socket | None = None
        super().__init__(core, bind)

    @property
    def is_attached(self) -> bool:
        """Whether it uses shared memory."""
        return self._connection is not None or super().is_attached

    @property
    def kind(self) -> str:
        """The way that datagrams take; see `Link.kind`."""
        return "memory" if self._connection is not None else super().kind

    def trouble(self) -> str:
        """Return the error that the system reported about the path to the switch; empty if none."""
        if self._connection is None or not self.ends.rings["gone"][0]:
            return super().trouble()
        return self._taken_back()

    def _borrow(self) -> None:
        if "program" in self._ways:
            super()._borrow()
        else:
            self._attach()

    def _fall_back(self, reason: str) -> None:
        super()._fall_back(reason)
        self._attach()

    def _give_back(self, for_all: bool = True) -> None:
        super()._give_back(for_all)
        self._detach(for_all)

    def _attach(self) -> None:
        admission = self._core.admission
        shape = shape_for(self._core)
        try:
            self._connection, grant = attach(admission.switch, self._socket, shape, ATTACH_TIMEOUT_S)
        except AttachError as error:
            self.refusal = str(error)
            return
        self._grant = grant
        memory = mmap.mmap(grant.memory, shape.total)
        has_processor = admission.num_workers < len(os.sched_getaffinity(0))
        self.ends = rings_over(memory, shape, self._wake, SPIN_NS if has_processor else 0)
        self.ends.rings["bell"] = grant.switch_bell
        self.ends.poll_fds["fd"] = [grant.worker_bell, self._wake_fd, self._connection.fileno()]

    def _detach(self, for_all: bool) -> None:
        """Use UDP; `for_all`: end the connection in forked children too, which may still hold it."""
        if self._connection is not None:
            if for_all:
                with contextlib.suppress(OSError):  # The switch was first.
                    self._connection.shutdown(socket.SHUT_RDWR)
            self.ends = self._udp
            self._connection.close()
            self._grant.close()
            self._connection = None


WAYS: Final = {
    "auto": ("program", "memory"),
    "program": ("program", "memory"),
    "memory": ("memory",),
    "udp": (),
}
"""The kinds of shared memory to try, by value of NETSUM_LINK."""


def link_to(core: WorkerCore, bind: Bind) -> UdpLink:
    """Return the link that NETSUM_LINK asks for; "auto" is shared memory where the switch shares it, else UDP.

    Raises MisuseError if the variable has another value, or the switch shares no memory and it must; and as for `UdpLink`.
    """
    wanted = os.environ.get(LINK_VARIABLE) or "auto"
    if wanted not in WAYS:
        raise MisuseError(f"{LINK_VARIABLE}: expected auto, memory, udp or program, not {wanted!r}")
    if wanted == "udp":
        return UdpLink(core, bind)
    link = LocalLink(core, bind, WAYS[wanted])
    if wanted != "auto" and not link.is_attached:
        link.close()
        raise MisuseError(f"{LINK_VARIABLE} asks for shared memory, but {link.refusal}; unset it for UDP")
    return link


def load(core: WorkerCore) -> None:
    """Compile the loop for shared memory, or load it from the cache."""
    shape = shape_for(core)
    memory = mmap.mmap(-1, shape.total)
    exchange(*core.records, rings_over(memory, shape, np.zeros(1, np.int64), 0), 0)


def shape_for(core: WorkerCore) -> RingShape:
    """Return rings with room for all chunks in flight: their RESULTs and retransmissions."""
    lines = -(-core.row_bytes // _LINE_BYTES)
    # An odd number of cache lines keeps rows in different sets of the cache.
    return RingShape(max(LEAST_ROWS, 2 * core.admission.slot_count), _LINE_BYTES * (lines | 1))


def rings_over(memory: mmap.mmap, shape: RingShape, wake: npt.NDArray[np.int64], spin_ns: int) -> MemoryRings:
    """Return the rings in a memory, without descriptors."""

    def rows(at: int) -> Any:
        size = shape.rows * shape.row_bytes
        return np.frombuffer(memory, np.uint8, size, at).reshape(shape.rows, shape.row_bytes)

    state, poll_fds = np.zeros(1, RINGS), np.zeros(3, POLLFD)
    state["base"] = np.frombuffer(memory, np.uint8).ctypes.data
    state["spin_ns"] = spin_ns
    poll_fds["fd"] = -1
    poll_fds["events"] = POLLIN
    return MemoryRings(
        wake,
        np.zeros(2, np.int64),
        state,
        rows(shape.up_rows),
        np.frombuffer(memory, np.int32, shape.rows, shape.up_lengths),
        rows(shape.down_rows),
        np.frombuffer(memory, np.int32, shape.rows, shape.down_lengths),
        poll_fds,
        np.ones(1, np.int64),
    )
