"""Linux system calls of the worker's loop, by symbol, so that compiled code can be kept on disk; see `netsum_common.sockets`."""

import errno
from typing import Final

import numpy as np
import numpy.typing as npt
from numba import types

from netsum_common.compiled import Integer, Records, compiled_inline

POLLIN: Final = 0x001
POLLOUT: Final = 0x004
ERRNO_AGAIN: Final = errno.EAGAIN
ERRNO_INTERRUPTED: Final = errno.EINTR
ERRNO_IO: Final = errno.EIO
ERRNO_REFUSED: Final = errno.ECONNREFUSED

DEFAULT_FLOATING_POINT: Final = -1  # FE_DFL_ENV of glibc: round to nearest, subnormal numbers are numbers.
FENV_WORDS: Final = 8  # 64-bit words that are enough for a fenv_t.

_NS_PER_S: Final = 1_000_000_000

POLLFD: Final = np.dtype([("fd", np.int32), ("events", np.int16), ("revents", np.int16)])  # struct pollfd.

fegetenv = types.ExternalFunction("fegetenv", types.int32(types.intp))
fesetenv = types.ExternalFunction("fesetenv", types.int32(types.intp))
_ppoll = types.ExternalFunction("ppoll", types.int32(types.intp, types.uintp, types.intp, types.intp))


@compiled_inline
def poll(fds: Records, timeout_ns: int, timespec: npt.NDArray[np.int64]) -> Integer:
    """Wait until a descriptor of `fds` (POLLFD) is ready, a signal comes or the time is up; returns what ppoll does."""
    timeout_ns = max(timeout_ns, 0)
    timespec[0] = timeout_ns // _NS_PER_S
    timespec[1] = timeout_ns % _NS_PER_S
    return np.int64(_ppoll(fds.ctypes.data, fds.size, timespec.ctypes.data, 0))
