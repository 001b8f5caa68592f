"""Reading the kernel's ring buffer of packets to the controller."""

import mmap
import select
import struct

_BUSY, _DISCARDED = 1 << 31, 1 << 30
_HEADER = 8


class Ring:
    """The reader's side of a map of kind RINGBUF."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._size = size
        self._read = mmap.mmap(descriptor, mmap.PAGESIZE, mmap.MAP_SHARED)
        # The writer's position, then the data twice, so that no packet is cut at the end.
        self._written = mmap.mmap(
            descriptor, mmap.PAGESIZE + 2 * size, mmap.MAP_SHARED, mmap.PROT_READ, offset=mmap.PAGESIZE
        )
        self._poller = select.epoll()
        self._poller.register(descriptor, select.EPOLLIN)

    def close(self) -> None:
        """Let go of it."""
        self._poller.close()

    def packets(self, timeout_s: float) -> list[bytes]:
        """Return the packets that are there, after waiting for one if there is none."""
        found = self._take()
        if not found and self._poller.poll(timeout_s):
            found = self._take()
        return found

    def _take(self) -> list[bytes]:
        found = []
        (at,) = struct.unpack_from("=Q", self._read)
        (end,) = struct.unpack_from("=Q", self._written)
        while at < end:
            start = mmap.PAGESIZE + at % self._size
            (length,) = struct.unpack_from("=I", self._written, start)
            if length & _BUSY:
                break
            size = length & ~_DISCARDED
            if not length & _DISCARDED:
                found.append(bytes(self._written[start + _HEADER : start + _HEADER + size]))
            at += (_HEADER + size + 7) // 8 * 8
            struct.pack_into("=Q", self._read, 0, at)
        return found
