"""Capture files (pcap) with times in nanoseconds, in this machine's byte order."""

import struct
from typing import Final

NS_PER_S: Final = 1_000_000_000
FILE_HEADER: Final = struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1)
"""Version 2.4, UTC, at most 256 KiB of a packet, Ethernet."""


def record(time_ns: int, frame: bytes, length: int = 0) -> bytes:
    """Return the record of a packet, of whose `length` bytes, if there are more, `frame` are the first."""
    size = len(frame)
    return struct.pack("=IIII", *divmod(time_ns, NS_PER_S), size, max(length, size)) + frame
