"""Linux system calls from compiled code, and the structures that they take.

Declared as external symbols of libc, so compiled code calls them directly and can still be cached on disk. Pointers
are passed as integers.
"""

from __future__ import annotations

import errno
from typing import Final

import numpy as np
import numpy.typing as npt
from numba import types

from common.compiled import compiled_inline
from host_agent.compiled import Integer, Records

MSG_DONTWAIT: Final = 0x40
POLLIN: Final = 0x001
POLLOUT: Final = 0x004
ERRNO_AGAIN: Final = errno.EAGAIN
ERRNO_INTERRUPTED: Final = errno.EINTR
ERRNO_IO: Final = errno.EIO
ERRNO_REFUSED: Final = errno.ECONNREFUSED

DEFAULT_FLOATING_POINT: Final = -1
"""FE_DFL_ENV of glibc: round to nearest, subnormal numbers are numbers."""
FENV_WORDS: Final = 8
"""64-bit words that are enough for a fenv_t."""

_CLOCK_MONOTONIC: Final = 1
_NS_PER_S: Final = 1_000_000_000

IOVEC: Final = np.dtype([("base", np.uintp), ("bytes", np.uintp)])
"""struct iovec."""

MMSGHDR: Final = np.dtype(
    {
        "names": ["iov", "iov_count", "control", "control_bytes", "bytes"],
        "formats": [np.uintp, np.uintp, np.uintp, np.uintp, np.uint32],
        "offsets": [16, 24, 32, 40, 56],
        "itemsize": 64,
    }
)
"""struct mmsghdr on 64-bit machines: iov, iovlen, control and controllen of its msghdr, and msg_len; the rest is zero."""

CONTROL: Final = np.dtype(
    {
        "names": ["bytes", "level", "type", "sent_segment", "received_segment"],
        "formats": [np.uintp, np.int32, np.int32, np.uint16, np.int32],
        "offsets": [0, 8, 12, 16, 16],
        "itemsize": 24,
    }
)
"""struct cmsghdr with the length of the datagrams in a message of several: 16 bits to send, an int as received."""

SEGMENT_CONTROL_BYTES: Final = 18
"""CMSG_LEN of a 16-bit number."""
SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104

POLLFD: Final = np.dtype([("fd", np.int32), ("events", np.int16), ("revents", np.int16)])
"""struct pollfd."""

recvmmsg = types.ExternalFunction(
    "recvmmsg", types.int32(types.int32, types.intp, types.uint32, types.int32, types.intp)
)
sendmmsg = types.ExternalFunction("sendmmsg", types.int32(types.int32, types.intp, types.uint32, types.int32))
copy_bytes = types.ExternalFunction("memcpy", types.intp(types.intp, types.intp, types.intp))
fegetenv = types.ExternalFunction("fegetenv", types.int32(types.intp))
fesetenv = types.ExternalFunction("fesetenv", types.int32(types.intp))
_ppoll = types.ExternalFunction("ppoll", types.int32(types.intp, types.uintp, types.intp, types.intp))
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))
_errno_location = types.ExternalFunction("__errno_location", types.CPointer(types.int32)())


@compiled_inline
def last_errno() -> Integer:
    """Return errno of this thread."""
    return np.int64(_errno_location()[0])


@compiled_inline
def monotonic_ns(timespec: npt.NDArray[np.int64]) -> Integer:
    """Return what `time.monotonic_ns` does. `timespec` is two int64 to work in."""
    _clock_gettime(_CLOCK_MONOTONIC, timespec.ctypes.data)
    return timespec[0] * _NS_PER_S + timespec[1]


@compiled_inline
def poll(fds: Records, timeout_ns: int, timespec: npt.NDArray[np.int64]) -> Integer:
    """Wait until a descriptor of `fds` (POLLFD) is ready, a signal comes or the time is up; returns what ppoll does."""
    timeout_ns = max(timeout_ns, 0)
    timespec[0] = timeout_ns // _NS_PER_S
    timespec[1] = timeout_ns % _NS_PER_S
    return np.int64(_ppoll(fds.ctypes.data, fds.size, timespec.ctypes.data, 0))
