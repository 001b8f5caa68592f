"""Batches of messages for `recvmmsg` and `sendmmsg`, from compiled code.

Layouts are those of 64-bit Linux (`recvmmsg(2)`, `udp(7)`). The functions are taken by name from the running process, so
that code which calls them can be kept in Numba's cache. Addresses are integers.
"""

# The integers of compiled code are NumPy's.
# mypy: disable-error-code="no-any-return"

import socket
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import types

from netsum_common.compiled import Array, Integer, compiled_inline

IO_VECTOR: Final = np.dtype([("base", np.uint64), ("length", np.uint64)])  # `struct iovec`.

MESSAGE: Final = np.dtype(
    {
        "names": [
            *("name", "name_length", "vectors", "vector_count"),
            *("control", "control_length", "flags", "length"),
        ],
        "formats": [np.uint64, np.uint32, np.uint64, np.uint64, np.uint64, np.uint64, np.uint32, np.uint32],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)
"""`struct mmsghdr`: a `msghdr` and the number of bytes moved."""

CONTROL: Final = np.dtype(
    {
        "names": ["length", "level", "type", "sent_segment", "received_segment"],
        "formats": [np.uint64, np.int32, np.int32, np.uint16, np.int32],
        "offsets": [0, 8, 12, 16, 16],
        "itemsize": 24,
    }
)
"""`struct cmsghdr` with the length of the datagrams in a message of several: 16 bits to send, an int as received."""

VECTOR_BYTES: Final = IO_VECTOR.itemsize
MESSAGE_BYTES: Final = MESSAGE.itemsize
CONTROL_BYTES: Final = CONTROL.itemsize
SEGMENT_CONTROL_BYTES: Final = 18
"""Length of a control message with a 16-bit number, as `UDP_SEGMENT` has it."""
SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104
MSG_DONTWAIT: Final = 0x40
BUFFER_BYTES: Final = 8 << 20  # The buffer size requested from the kernel for each direction of a UDP socket.

_FORCED: Final = {socket.SO_RCVBUF: 33, socket.SO_SNDBUF: 32}  # SO_RCVBUFFORCE and SO_SNDBUFFORCE.
_CLOCK_MONOTONIC: Final = 1
_NS_PER_S: Final = 1_000_000_000

recvmmsg = types.ExternalFunction(
    "recvmmsg", types.int32(types.int32, types.uintp, types.uint32, types.int32, types.uintp)
)
sendmmsg = types.ExternalFunction(
    "sendmmsg", types.int32(types.int32, types.uintp, types.uint32, types.int32)
)
sched_yield = types.ExternalFunction("sched_yield", types.int32())
_write = types.ExternalFunction("write", types.intp(types.int32, types.uintp, types.uintp))
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uintp))
_errno_location = types.ExternalFunction("__errno_location", types.CPointer(types.int32)())


@compiled_inline
def last_errno() -> Integer:
    """Return the `errno` of this thread."""
    return np.int64(_errno_location()[0])


@compiled_inline
def monotonic_ns(work: Array) -> Integer:
    """Return the same time as `time.monotonic_ns`. `work`: two int64 to work in."""
    _clock_gettime(np.int32(_CLOCK_MONOTONIC), np.uintp(work.ctypes.data))
    return work[0] * _NS_PER_S + work[1]


def places_of(array: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return the address of each element along the first axis."""
    return np.uint64(array.ctypes.data) + np.arange(len(array), dtype=np.uint64) * np.uint64(array.strides[0])


def enlarge(opened: socket.socket, option: int) -> None:
    """Request a large buffer (`SO_RCVBUF` or `SO_SNDBUF`): beyond the system's limit where that is permitted, else up to it."""
    try:
        opened.setsockopt(socket.SOL_SOCKET, _FORCED[option], BUFFER_BYTES)
    except PermissionError:
        opened.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)


@compiled_inline
def ring_bell(descriptor: Integer, one: Array) -> None:
    """Wake the thread that waits for an eventfd. `one` is an int64 array of a single 1."""
    _write(np.int32(descriptor), np.uintp(one.ctypes.data), np.uintp(8))
