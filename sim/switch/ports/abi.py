"""Linux's interface for compiled code: structures as NumPy types, functions by symbol.

Layouts are those of 64-bit Linux (`epoll_wait(2)`, `ip(7)`, `packet(7)`); those of messages are in `netsum_common.sockets`.
"""

# Numba's decorators are untyped, and the integers of compiled code are NumPy's.
# mypy: disable-error-code="no-any-return"

import platform

import numpy as np
from numba import types

from netsum_common.compiled import Array, Integer, compiled, compiled_inline

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

ADDRESS_BYTES = ADDRESS.itemsize
LINK_ADDRESS_BYTES = LINK_ADDRESS.itemsize
EPOLLERR = 0x8
_SOL_SOCKET, _SO_ERROR = 1, 4
_CLOCK_REALTIME = 0
_NS_PER_S = 1_000_000_000

EVENT_WORDS, EVENT_DATA_WORD = (3, 1) if platform.machine() == "x86_64" else (4, 2)
"""32-bit words of a `struct epoll_event` and where its data begins: packed on x86-64 alone. Word 0 has the flags."""

epoll_wait = types.ExternalFunction(
    "epoll_wait", types.int32(types.int32, types.uintp, types.int32, types.int32)
)
_read = types.ExternalFunction("read", types.intp(types.int32, types.uintp, types.uintp))
_getsockopt = types.ExternalFunction(
    "getsockopt", types.int32(types.int32, types.int32, types.int32, types.uintp, types.uintp)
)
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uintp))


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
