"""What compiled code calls of Linux's sockets: structures as NumPy types, functions by symbol.

Layouts are those of 64-bit Linux (`recvmmsg(2)`, `epoll_wait(2)`, `ip(7)`). The functions are taken by name
from the running process, so that code which calls them can be kept in Numba's cache.
"""

import platform

import numpy as np
from numba import types

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

CONTROL = np.dtype([("length", np.uint64), ("level", np.int32), ("type", np.int32), ("size", np.uint64)])
"""`struct cmsghdr` with room for one number: how long each datagram of a run of datagrams is."""

ADDRESS_BYTES = ADDRESS.itemsize
CONTROL_BYTES = CONTROL.itemsize
SEGMENT_CONTROL_BYTES = 18
"""Length of a control message with a 16-bit number, as `UDP_SEGMENT` has it."""

SOL_UDP = 17
UDP_SEGMENT = 103
UDP_GRO = 104
MSG_DONTWAIT = 0x40

EVENT_WORDS, EVENT_DATA_WORD = (3, 1) if platform.machine() == "x86_64" else (4, 2)
"""32-bit words of a `struct epoll_event` and where its data begins: packed on x86-64 alone."""

recvmmsg = types.ExternalFunction(
    "recvmmsg", types.int32(types.int32, types.uintp, types.uint32, types.int32, types.uintp)
)
sendmmsg = types.ExternalFunction(
    "sendmmsg", types.int32(types.int32, types.uintp, types.uint32, types.int32)
)
epoll_wait = types.ExternalFunction(
    "epoll_wait", types.int32(types.int32, types.uintp, types.int32, types.int32)
)
