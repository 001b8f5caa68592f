"""Rings of datagrams in memory that a switch shares with a worker on the same machine: the layout, and the way to it.

The memory of a worker holds two rings, one from the worker up to the switch and one down. Each has an array of lengths and an
array of rows; the side that writes a ring has a head, the one that reads it a tail, numbers of rows since the beginning
modulo 2^32. Row n is at n modulo the number of rows, a power of two. A row of length 0 is skipped.

The switch makes the memory, so that its size is certain, and passes it over a Unix socket in the abstract namespace: it has
no file, belongs to one network namespace, and ends with the process. Both sides check the user at the other end. The worker
proves its address by passing the UDP socket that is bound to it. A side that ends closes the Unix socket, however it ends.
"""

import array
import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from netsum_common.errors import NetsumError

UP_HEAD, UP_TAIL, DOWN_HEAD, DOWN_TAIL, SWITCH_SLEEPS, WORKER_SLEEPS = range(0, 6 * 128, 128)
"""Offsets of these 32-bit words, each in cache lines of its own. A side that sleeps says so in two of them, and is woken by
its eventfd; the other side takes the word back to 0."""
FOR_DATAGRAMS, FOR_ROOM = 1, 2  # Reasons for a side to sleep.

MOST_ROWS: Final = 4096
MOST_ROW_BYTES: Final = 1 << 13
MAXIMUM_MESSAGE_BYTES: Final = 1024
MOST_DESCRIPTORS: Final = 33  # Memory, and a bell of each worker of a job.
_LENGTHS_AT: Final = 1024
_REQUEST: Final = struct.Struct("=4sII")
_MAGIC: Final = b"nsr1"
_GRANTED: Final = b"granted"
_CREDENTIALS: Final = struct.Struct("=3i")
_F_ADD_SEALS: Final = 1033
_SEALS: Final = 0x1 | 0x2 | 0x4
"""F_SEAL_SEAL, F_SEAL_SHRINK and F_SEAL_GROW: no worker can take pages away under the switch."""


class RingShape(NamedTuple):
    """The size of the rings of a worker."""

    # rows, row_bytes: of each ring; the first a power of two.
    rows: int
    row_bytes: int

    @property
    def is_possible(self) -> bool:
        """Whether a switch makes such rings."""
        rows_fit = 2 <= self.rows <= MOST_ROWS and self.rows & (self.rows - 1) == 0
        return rows_fit and 64 <= self.row_bytes <= MOST_ROW_BYTES and self.row_bytes % 64 == 0

    @property
    def up_lengths(self) -> int:
        """Offset of the lengths of the ring to the switch, int32[rows]."""
        return _LENGTHS_AT

    @property
    def down_lengths(self) -> int:
        """Offset of the lengths of the ring to the worker."""
        return _LENGTHS_AT + 4 * self.rows

    @property
    def up_rows(self) -> int:
        """Offset of the rows of the ring to the switch."""
        return -(-(_LENGTHS_AT + 8 * self.rows) // mmap.PAGESIZE) * mmap.PAGESIZE

    @property
    def down_rows(self) -> int:
        """Offset of the rows of the ring to the worker."""
        return self.up_rows + self.rows * self.row_bytes

    @property
    def total(self) -> int:
        """Bytes of the whole memory."""
        return self.down_rows + self.rows * self.row_bytes


class Grant(NamedTuple):
    """A switch's answer to a worker: descriptors of the memory, of the eventfd that wakes the switch, and of the worker's."""

    memory: int
    switch_bell: int
    worker_bell: int

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in self:
            os.close(descriptor)


class AttachError(NetsumError):
    """A switch shares no memory with this process; the message says why."""


def make_grant(shape: RingShape) -> Grant:
    """Make the memory and the eventfds for a worker; the memory cannot change its size."""
    return Grant(make_memory("netsum-rings", shape.total), make_bell(), make_bell())


def make_memory(name: str, size: int) -> int:
    """Make memory of a size that cannot change."""
    memory = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, size)
    fcntl.fcntl(memory, _F_ADD_SEALS, _SEALS)
    return memory


def make_bell() -> int:
    """Make an eventfd that wakes one side."""
    return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)


def name_of(switch: tuple[str, int]) -> str:
    """Return the name, in the abstract namespace, of the socket beside a UDP port of a switch."""
    return f"\0netsum/{switch[0]}:{switch[1]}"


def peer_of(peer: socket.socket) -> tuple[int, int]:
    """Return the process at the other end of a Unix socket, and its user."""
    process, user, _ = _CREDENTIALS.unpack(
        peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return process, user


def is_trusted(peer: socket.socket) -> bool:
    """Whether the process at the other end runs as this process's user, or as root."""
    return peer_of(peer)[1] in (0, os.geteuid())


def send_message(peer: socket.socket, message: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send a message with descriptors."""
    control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    peer.sendmsg([message], control)


def receive_message(peer: socket.socket) -> tuple[bytes, list[int]]:
    """Receive a message and its descriptors, which are closed on exec; no bytes at the end of the connection."""
    room = socket.CMSG_SPACE(MOST_DESCRIPTORS * array.array("i").itemsize)
    message, control, _, _ = peer.recvmsg(MAXIMUM_MESSAGE_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return message, list(descriptors)


def shape_requested(message: bytes) -> RingShape | None:
    """Return a worker's request; None if a message is no request, or asks for rings that a switch does not make."""
    if len(message) != _REQUEST.size or not message.startswith(_MAGIC):
        return None
    shape = RingShape(*_REQUEST.unpack(message)[1:])
    return shape if shape.is_possible else None


def answer(peer: socket.socket, granted: Sequence[int] | None, refusal: str = "") -> None:
    """Answer a worker's request, with descriptors if it is granted."""
    if granted is None:
        send_message(peer, refusal.encode())
    else:
        send_message(peer, _GRANTED, granted)


def attach(
    switch: tuple[str, int], own: socket.socket, shape: RingShape, timeout_s: float
) -> tuple[socket.socket, Grant]:
    """Ask a switch on this machine for rings.

    `own`: the UDP socket that is bound to the worker's address. `shape`: how large the rings must be. Returns the connection,
    which lasts as long as the rings are used, and the descriptors that the switch passed. Raises AttachError if no switch
    listens there, or it refuses.
    """
    peer, descriptors = ask(switch, own, _REQUEST.pack(_MAGIC, *shape), timeout_s)
    if len(descriptors) != len(Grant._fields) or os.fstat(descriptors[0]).st_size < shape.total:
        peer.close()
        for descriptor in descriptors:
            os.close(descriptor)
        raise AttachError(f"the switch at {switch[0]}:{switch[1]} passed too little memory")
    return peer, Grant(*descriptors)


def ask(
    switch: tuple[str, int], own: socket.socket, request: bytes, timeout_s: float
) -> tuple[socket.socket, list[int]]:
    """Send a worker's request to a switch on this machine; return the connection, and the descriptors that it granted.

    `own`: as for `attach`. Raises AttachError if no switch listens there, or it refuses.
    """
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    descriptors: list[int] = []
    try:
        peer.settimeout(timeout_s)
        peer.connect(name_of(switch))
        if not is_trusted(peer):
            raise AttachError(f"another user's process listens for the switch at {switch[0]}:{switch[1]}")
        send_message(peer, request, [own.fileno()])
        message, descriptors = receive_message(peer)
        if message != _GRANTED:
            reason = message.decode(errors="replace") or "it closed the connection"
            raise AttachError(f"the switch at {switch[0]}:{switch[1]} shares no memory: {reason}")
        peer.setblocking(False)
        return peer, descriptors
    except (OSError, AttachError) as error:
        peer.close()
        for descriptor in descriptors:
            os.close(descriptor)
        if isinstance(error, AttachError):
            raise
        raise AttachError(
            f"no switch shares memory at {switch[0]}:{switch[1]} ({error.strerror or error})"
        ) from None
