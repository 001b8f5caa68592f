"""A switch's program, lent to the workers of one job on its machine: what they share, and the request for it.

Each worker calls the program's machine code on its own packets. The memory belongs to one epoch of one job and has no file. It
holds the machine code, the tables as they are when the first worker asks, registers that begin at 0 with a lock for each slot;
for each pool index the lanes of its last RESULT, and two mailboxes of each worker, for RESULTs and for STATUSes; and what each
worker alone uses: the context that the code is called with, packets under way, counters.

All workers of an epoch use it, or none does. Each asks, is granted the memory, maps it, and says READY; it sends nothing until
the switch has decided. The switch says RUN once all are ready. It says REFUSED and why, and lends nothing in that epoch any more,
as soon as one cannot, ends, or no longer waits for the others (WITHDRAWN and why). A worker that was READY and hears neither
before the connection ends sends nothing in that epoch.
"""

import mmap
import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from netsum_common.machine_objects import load_code

LENT: Final = np.dtype(
    [
        (name, np.int64)
        for name in (
            *("members", "slots", "row_bytes", "own_ip", "own_port"),
            "drop_ppm",  # how many packets of a million to lose, each way
            *("code", "code_bytes"),
            # Pairs (word of the context, offset of what it points at), for all workers and for parts that each has.
            *("shared_words", "shared_count", "private_words", "private_count"),
            *("private", "private_bytes", "context_words"),
            # Positions in the context.
            *("in_frames", "out_frames", "out_count", "now_us"),
            *("addresses", "locks", "signals", "boxes", "lanes"),
        )
    ]
)
"""The first bytes of the memory: sizes and offsets."""

ADDRESS: Final = np.dtype([("port", np.int64), ("ip", np.int64), ("udp_port", np.int64), ("state", np.int64)])
"""A worker's, by which frames are delivered to it, and its state."""
ADDRESS_BYTES: Final = ADDRESS.itemsize
AWAITED, PRESENT, GONE = range(3)
"""States of a worker: it has not attached yet; it has; its connection has ended."""

LINE_BYTES: Final = 64
LOCK_BYTES: Final = LINE_BYTES  # A slot's lock: 0, or 1 + the worker that holds it.
SIGNAL_BYTES: Final = 2 * LINE_BYTES
CAME, SLEEPS = 0, LINE_BYTES
"""A worker's signals: how often its mailboxes were filled, modulo 2^32; 1 while the worker sleeps."""
BOX_BYTES: Final = LINE_BYTES
"""A mailbox: how often it was filled, modulo 2^32; the datagram's length; its first bytes, or all of it."""
SHORT_BYTES: Final = BOX_BYTES - 8  # Longer datagrams have their lanes elsewhere.
READY: Final = b"ready"
WITHDRAWN: Final = b"withdrawn: "
RUN: Final = b"run"
REFUSED: Final = b"refused: "
MOST_MEMBERS: Final = 32
MOST_SLOTS: Final = 4096
_REQUEST: Final = struct.Struct("=4sQIIII")
_MAGIC: Final = b"nsp1"


class LendingRequest(NamedTuple):
    """A worker's request for a lent program."""

    key: int  # The same for all workers of a job's epoch, and secret.
    # member, members, slots: the worker's number, how many there are, and the job's slots, a power of two.
    member: int
    members: int
    slots: int
    row_bytes: int  # Room for a datagram.

    @property
    def is_possible(self) -> bool:
        """Whether a switch lends for such a job."""
        slots_fit = 1 <= self.slots <= MOST_SLOTS and self.slots & (self.slots - 1) == 0
        rows_fit = LINE_BYTES <= self.row_bytes <= 1 << 13 and self.row_bytes % LINE_BYTES == 0
        return self.member < self.members <= MOST_MEMBERS and slots_fit and rows_fit

    def to_bytes(self) -> bytes:
        """Write the request as a message."""
        return _REQUEST.pack(_MAGIC, *self)


def lending_requested(message: bytes) -> LendingRequest | None:
    """Return a worker's request; None if a message is none, or asks for what no switch lends."""
    if len(message) != _REQUEST.size or not message.startswith(_MAGIC):
        return None
    request = LendingRequest(*_REQUEST.unpack(message)[1:])
    return request if request.is_possible else None


class Borrowed:
    """A lent program in this process: `member`'s context is ready, and `run`, at `address`, may be called with it."""

    def __init__(self, descriptor: int, member: int) -> None:
        self.memory = mmap.mmap(descriptor, 0)
        self.bytes = np.frombuffer(self.memory, np.uint8)
        self.base = int(self.bytes.ctypes.data)
        self.lent = np.frombuffer(self.memory, LENT, 1)[0]
        lent = self.lent
        own = int(lent["private"]) + member * int(lent["private_bytes"])
        self.words: npt.NDArray[np.int64] = self._integers(own, int(lent["context_words"]))
        for name, start in (("shared", self.base), ("private", self.base + own)):
            pairs = self._integers(int(lent[f"{name}_words"]), 2 * int(lent[f"{name}_count"])).reshape(-1, 2)
            self.words[pairs[:, 0]] = start + pairs[:, 1]
        self.addresses = np.frombuffer(self.memory, ADDRESS, int(lent["members"]), int(lent["addresses"]))
        begin = int(lent["code"])
        self.engine, self.address = load_code(self.bytes[begin : begin + int(lent["code_bytes"])].tobytes())

    def _integers(self, at: int, count: int) -> npt.NDArray[np.int64]:
        return np.frombuffer(self.memory, np.int64, count, at)
