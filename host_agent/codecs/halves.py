"""32-bit words as lanes, whole or in halves.

A sum of int32 that might not fit travels in halves: the low 16 bits, unsigned, in one pass, the high 16 bits, signed,
in another. Neither sum over 4,096 workers comes near 2^31, so the switch adds exactly; what does not fit int32 is seen
here, after the last addition.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from host_agent.codecs.codec import Codec, decoder, encoder, exponent_finder
from host_agent.codecs.exponent import int32_exponent, may_overflow
from host_agent.codecs.payload import known_exponent, source_of, target_of
from host_agent.codecs.raw import words_from_lanes, words_to_lanes
from host_agent.wire.constants import EXPONENT_BIAS
from host_agent.wire.header import swap
from netsum_common.compiled import Integer, Record, Words, compiled

_MAX: Final = 0x7FFFFFFF
_MIN: Final = -0x80000000


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

    Returns how many elements do not fit int32; they become the nearest value that does.
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


# A plain 0 has another type in Numba: functions that take it would be compiled twice.
_AS_IT_IS: Final[Integer] = np.int64(0)


@exponent_finder
def _exponent(payload: Record, block: int, lane_count: int) -> Integer:
    return int32_exponent(source_of(payload, block, lane_count, np.int32))


@encoder
def _encode(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    if may_overflow(known_exponent(payload, block), headroom):
        low_halves_to_lanes(source_of(payload, block, lane_count, np.int32), lanes)
    else:
        words_to_lanes(source_of(payload, block, lane_count, np.uint32), _AS_IT_IS, lanes)


@decoder
def _decode(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    words = target_of(payload, block, lane_count, np.uint32)
    if lanes.size == 0:
        words[:] = np.uint32(0)
    else:
        # Low halves stay here as they are until the pass over the high halves joins them.
        words_from_lanes(lanes, _AS_IT_IS, words)


@encoder
def _encode_high(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    high_halves_to_lanes(source_of(payload, block, lane_count, np.int32), lanes)


@decoder
def _decode_high(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    payload.overflowed += join_halves(lanes, target_of(payload, block, lane_count, np.int32))


INT32: Final = Codec(
    "int32",
    _encode,
    _decode,
    _exponent,
    exponents=(EXPONENT_BIAS + 1, EXPONENT_BIAS + 32),
    reduces=(("int32", "sum"),),
)
"""int32 sums; of blocks whose sum may not fit, the low halves."""

INT32_HIGH: Final = Codec("int32 high halves", _encode_high, _decode_high)
"""The high halves of the blocks that a pass lists."""
