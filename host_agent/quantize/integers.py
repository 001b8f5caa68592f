"""32-bit words as lanes, whole or in halves.

A sum of int32 that might not fit travels in halves: the low 16 bits, unsigned, in one pass, the high 16 bits, signed,
in another. Neither sum over 32 workers comes near 2^31, so the switch adds exactly; what does not fit int32 is seen
here, after the last addition.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from host_agent.compiled import Words, compiled
from host_agent.wire.header import swap

_MAX: Final = 0x7FFFFFFF
_MIN: Final = -0x80000000


@compiled
def words_to_lanes(words: Words, flip: int, lanes: Words) -> None:
    """Write words as lanes, complemented if `flip` is -1."""
    mask = np.uint32(flip & 0xFFFFFFFF)
    for i in range(words.size):
        lanes[i] = swap(np.uint32(words[i] ^ mask))
    for i in range(words.size, lanes.size):
        lanes[i] = np.uint32(0)


@compiled
def words_from_lanes(lanes: Words, flip: int, words: Words) -> None:
    """Undo `words_to_lanes`."""
    mask = np.uint32(flip & 0xFFFFFFFF)
    for i in range(words.size):
        words[i] = swap(lanes[i]) ^ mask


@compiled
def low_halves_to_lanes(values: npt.NDArray[np.int32], lanes: Words) -> None:
    """Write the low 16 bits of int32 values, unsigned."""
    for i in range(values.size):
        lanes[i] = swap(np.uint32(values[i] & np.int32(0xFFFF)))
    for i in range(values.size, lanes.size):
        lanes[i] = np.uint32(0)


@compiled
def high_halves_to_lanes(values: npt.NDArray[np.int32], lanes: Words) -> None:
    """Write the high 16 bits of int32 values, signed."""
    for i in range(values.size):
        lanes[i] = swap(np.uint32(values[i] >> np.int32(16)))
    for i in range(values.size, lanes.size):
        lanes[i] = np.uint32(0)


@compiled
def join_halves(lanes: Words, values: npt.NDArray[np.int32]) -> int:
    """Add 2^16 times the sums of high halves in `lanes` to the sums of low halves in `values`.

    Returns
    -------
    int
        How many elements do not fit int32; they become the nearest value that does.
    """
    overflowed = 0
    for i in range(values.size):
        total = (np.int64(np.int32(swap(lanes[i]))) << 16) + np.int64(values[i])
        if total > _MAX:
            total = np.int64(_MAX)
            overflowed += 1
        elif total < _MIN:
            total = np.int64(_MIN)
            overflowed += 1
        values[i] = np.int32(total)
    return overflowed
