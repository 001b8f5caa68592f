"""Frames that pass ports, for compiled code: checksums completed, counts named."""

# The integers of compiled code are NumPy's.
# mypy: disable-error-code="no-any-return,return-value"

from typing import NamedTuple

import numpy as np

from netsum_common.compiled import Array, Integer, compiled
from netsum_common.frames import get16, put16

STATISTICS = (
    "received",
    "received_bytes",
    "dropped_in",
    "oversized",
    "merged",
    "sent",
    "sent_bytes",
    "dropped_out",
    "queue_full",
    "port_down",
    "not_udp",
    "refused",
)
"""The counters of each port, the columns of the statistics array; see `PortDriver.statistics`."""

(
    RECEIVED,
    RECEIVED_BYTES,
    DROPPED_IN,
    OVERSIZED,
    MERGED,
    SENT,
    SENT_BYTES,
    DROPPED_OUT,
    QUEUE_FULL,
    PORT_DOWN,
    NOT_UDP,
    REFUSED,
) = range(len(STATISTICS))


class PortRecord(NamedTuple):
    """Common part of all kinds of ports: rows for frames that arrive, random states of losses, counts."""

    # frames, lengths, ports, times: uint8[:, :], int32[:], uint16[:], int64[:]. The frames, their lengths, the switch ports
    # they came in by, and when: nanoseconds since 1970.
    frames: Array
    lengths: Array
    ports: Array
    times: Array
    # draws_in, draws_out, drop_ppm: uint64[:], uint64[:], int. Random state of each port and way, and how many of a million
    # packets to lose.
    draws_in: Array
    draws_out: Array
    drop_ppm: int
    statistics: Array  # int64[:, :]. Counts of each port, by the columns of `STATISTICS`.
    work: Array  # int64[2]. To work in.


@compiled
def finish_checksum(frame: Array, start: Integer, field: Integer, end: Integer) -> None:
    """Complete a checksum that was left to hardware: of the bytes from `start` to `end`, put at `field`.

    The field holds the sum of the pseudo header.
    """
    total = np.int64(0)
    for at in range(start, end - 1, 2):
        total += get16(frame, at)
    if (end - start) & 1:
        total += np.int64(frame[end - 1]) << 8
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    # 0 says "none" in UDP, and its complement is the same number.
    put16(frame, field, 0xFFFF if total == 0xFFFF else total ^ 0xFFFF)
