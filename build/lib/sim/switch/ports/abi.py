"""What compiled code calls of Linux: structures as NumPy types, functions by symbol.

Layouts are those of 64-bit Linux (`recvmmsg(2)`, `epoll_wait(2)`, `ip(7)`, `packet(7)`). The functions are taken by name
from the running process, so that code which calls them can be kept in Numba's cache.
"""

# Numba's decorators are untyped, and the integers of compiled code are NumPy's.
# mypy: disable-error-code="no-any-return"

import platform

import numpy as np
from numba import types

from sim.switch.ports.compiled import Array, Integer, compiled, compiled_inline

IO_VECTOR = np.dtype([("base", np.uint64), ("length", np.uint64)])
"""`struct iovec`."""

MESSAGE = np.dtype(
    [
        ("name", np.uint64),
        ("name_length", np.uint32),
        ("pad0", np.uint32),
        ("vectors", np.uint64),
        ("vector_count", np.uint64),
        ("control", np.uint64),
        ("control_length", np.uint64),
        ("flags", np.uint32),
        ("pad1", np.uint32),
        ("length", np.uint32),
        ("pad2", np.uint32),
    ]
)
"""`struct mmsghdr`: a `msghdr` and the length of what was moved."""

ADDRESS = np.dtype([("family", np.uint16), ("port", np.uint16), ("ip", np.uint32), ("zero", np.uint64)])
"""`struct sockaddr_in`; port and address in network byte order."""

LINK_ADDRESS = np.dtype(
    [
        ("family", np.uint16),
        ("protocol", np.uint16),
        ("index", np.int32),
        ("hardware", np.uint16),
        ("kind", np.uint8),
        ("address_length", np.uint8),
        ("address", np.uint64),
    ]
)
"""`struct sockaddr_ll`: an interface; protocol in network byte order."""

CONTROL = np.dtype([("length", np.uint64), ("level", np.int32), ("type", np.int32), ("size", np.uint64)])
"""`struct cmsghdr` with room for one number: how long each datagram of a run of datagrams is."""

ADDRESS_BYTES = ADDRESS.itemsize
LINK_ADDRESS_BYTES = LINK_ADDRESS.itemsize
CONTROL_BYTES = CONTROL.itemsize
SEGMENT_CONTROL_BYTES = 18
"""Length of a control message with a 16-bit number, as `UDP_SEGMENT` has it."""

SOL_UDP = 17
UDP_SEGMENT = 103
UDP_GRO = 104
MSG_DONTWAIT = 0x40
EPOLLERR = 0x8
_SOL_SOCKET, _SO_ERROR = 1, 4
_CLOCK_REALTIME, _CLOCK_MONOTONIC = 0, 1
_NS_PER_S = 1_000_000_000

EVENT_WORDS, EVENT_DATA_WORD = (3, 1) if platform.machine() == "x86_64" else (4, 2)
"""32-bit words of a `struct epoll_event` and where its data begins: packed on x86-64 alone. Word 0 has the flags."""

recvmmsg = types.ExternalFunction(
    "recvmmsg", types.int32(types.int32, types.uintp, types.uint32, types.int32, types.uintp)
)
sendmmsg = types.ExternalFunction(
    "sendmmsg", types.int32(types.int32, types.uintp, types.uint32, types.int32)
)
epoll_wait = types.ExternalFunction(
    "epoll_wait", types.int32(types.int32, types.uintp, types.int32, types.int32)
)
copy_bytes = types.ExternalFunction("memcpy", types.uintp(types.uintp, types.uintp, types.uintp))
_read = types.ExternalFunction("read", types.intp(types.int32, types.uintp, types.uintp))
_getsockopt = types.ExternalFunction(
    "getsockopt", types.int32(types.int32, types.int32, types.int32, types.uintp, types.uintp)
)
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uintp))
_errno_location = types.ExternalFunction("__errno_location", types.CPointer(types.int32)())


@compiled_inline
def last_errno() -> Integer:
    """Return errno of this thread."""
    return np.int64(_errno_location()[0])


@compiled_inline
def monotonic_ns(work: Array) -> Integer:
    """Return what `time.monotonic_ns` does. `work` is two int64 to work in."""
    _clock_gettime(np.int32(_CLOCK_MONOTONIC), np.uintp(work.ctypes.data))
    return work[0] * _NS_PER_S + work[1]


@compiled_inline
def realtime_ns(work: Array) -> Integer:
    """Return what `time.time_ns` does. `work` is two int64 to work in."""
    _clock_gettime(np.int32(_CLOCK_REALTIME), np.uintp(work.ctypes.data))
    return work[0] * _NS_PER_S + work[1]


@compiled
def await_events(poller: int, events: Array, waker: int, timeout_ms: int, work: Array) -> Integer:
    """Wait on an epoll descriptor; return how many events there are.

    The eventfd `waker`, which only ends the wait, is emptied, and errors of sockets are taken off them: either would end
    the next wait at once.
    """
    ready = epoll_wait(poller, np.uintp(events.ctypes.data), events.shape[0], timeout_ms)
    for index in range(ready):
        descriptor = np.int32(events[index, EVENT_DATA_WORD])
        if descriptor == waker:
            _read(descriptor, np.uintp(work.ctypes.data), np.uintp(8))
        elif events[index, 0] & EPOLLERR:
            work[1] = 4
            place = np.uintp(work.ctypes.data)
            _getsockopt(descriptor, np.int32(_SOL_SOCKET), np.int32(_SO_ERROR), place, place + np.uintp(8))
    return max(ready, 0)
