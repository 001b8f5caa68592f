"""Floats as integers in the same order, so that the switch's integer MAX is an exact MIN or MAX of floats.

As int32, the bits of the non-negative floats are in order and those of the negative ones in reverse; flipping the 31
low bits of the latter puts all in order, -0.0 just below +0.0. MIN is the complement of MAX of the complements (the
negation of the smallest integer overflows). NaN becomes the largest integer for MIN and MAX alike, so it comes
through as NaN; no number maps there.

float64 takes two passes: MAX of the high words; then MAX of the low words of those who hold the winning high word.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from host_agent.codecs.codec import Codec, decoder, encoder
from host_agent.codecs.payload import partial_of, source_of, target_of
from host_agent.codecs.raw import words_from_lanes
from host_agent.wire.constants import OP_MAX
from host_agent.wire.header import swap
from netsum_common.compiled import Integer, Record, Words, compiled

_MAX32: Final = np.int32(0x7FFFFFFF)
_MIN32: Final = np.int32(-0x80000000)
_INFINITY32: Final = np.int32(0x7F800000)
_NAN32: Final = np.int32(0x7FC00000)
_MAX64: Final = np.int64(0x7FFFFFFFFFFFFFFF)
_INFINITY64: Final = np.int64(0x7FF0000000000000)
_NAN64: Final = np.int64(0x7FF8000000000000)


@compiled
def float32_to_order(bits: npt.NDArray[np.int32], flip: int, lanes: Words) -> None:
    """Write a block of float32 (given as its bits, int32) as lanes; `flip` is 0 for MAX and -1 for MIN."""
    mask = np.int32(flip)
    for i in range(bits.size):
        key = bits[i] ^ ((bits[i] >> np.int32(31)) & _MAX32) ^ mask
        if (bits[i] & _MAX32) > _INFINITY32:
            key = _MAX32
        lanes[i] = swap(np.uint32(key))
    for i in range(bits.size, lanes.size):
        lanes[i] = np.uint32(0)


@compiled
def float32_from_order(lanes: Words, flip: int, bits: npt.NDArray[np.int32]) -> None:
    """Undo `float32_to_order`; NaN becomes the quiet NaN without payload."""
    mask = np.int32(flip)
    for i in range(bits.size):
        lane = np.int32(swap(lanes[i]))
        key = lane ^ mask
        key ^= (key >> np.int32(31)) & _MAX32
        if lane == _MAX32:
            key = _NAN32
        bits[i] = key


@compiled
def _float64_key(bits: np.int64, flip: int) -> np.int64:
    if (bits & _MAX64) > _INFINITY64:
        return _MAX64
    return bits ^ ((bits >> 63) & _MAX64) ^ flip


@compiled
def float64_high_to_order(bits: npt.NDArray[np.int64], flip: int, lanes: Words) -> None:
    """Write the high words of a block of float64 (given as its bits, int64) as lanes."""
    for i in range(bits.size):
        lanes[i] = swap(np.uint32(_float64_key(bits[i], flip) >> 32))
    for i in range(bits.size, lanes.size):
        lanes[i] = np.uint32(0)


@compiled
def float64_low_to_order(
    bits: npt.NDArray[np.int64], flip: int, winners: npt.NDArray[np.int32], lanes: Words
) -> None:
    """Write the low words of those elements whose high word is the winner's; the smallest integer for the others."""
    for i in range(bits.size):
        key = _float64_key(bits[i], flip)
        low = _MIN32
        if np.int32(key >> 32) == winners[i]:
            # As unsigned words are compared, the sign bit of the lane is turned.
            low = np.int32(key) ^ _MIN32
        lanes[i] = swap(np.uint32(low))
    for i in range(bits.size, lanes.size):
        lanes[i] = np.uint32(0)


@compiled
def float64_from_order(
    lanes: Words, flip: int, winners: npt.NDArray[np.int32], bits: npt.NDArray[np.int64]
) -> None:
    """Put the winning high words and the low words just received together into the bits of float64."""
    for i in range(bits.size):
        low = np.int64(swap(lanes[i]) ^ np.uint32(0x80000000))
        joined = (np.int64(winners[i]) << 32) | low
        key = joined ^ flip
        key ^= (key >> 63) & _MAX64
        if joined == _MAX64:
            key = _NAN64
        bits[i] = key


# A plain 0 has another type in Numba: functions that take it would be compiled twice.
_AS_IT_IS: Final[Integer] = np.int64(0)


@encoder
def _encode32(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    float32_to_order(source_of(payload, block, lane_count, np.int32), payload.flip, lanes)


@decoder
def _decode32(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    float32_from_order(lanes, payload.flip, target_of(payload, block, lane_count, np.int32))


@encoder
def _encode64(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    bits = source_of(payload, block, lane_count, np.int64)
    if block < payload.data_blocks:
        float64_high_to_order(bits, payload.flip, lanes)
    else:
        winners = partial_of(payload, block, lane_count, np.int32)
        float64_low_to_order(bits, payload.flip, winners, lanes)


@decoder
def _decode64(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    if block < payload.data_blocks:
        words_from_lanes(lanes, _AS_IT_IS, partial_of(payload, block, lane_count, np.uint32))
    else:
        winners = partial_of(payload, block, lane_count, np.int32)
        float64_from_order(lanes, payload.flip, winners, target_of(payload, block, lane_count, np.int64))


FLOAT32_ORDER: Final = Codec(
    "float32 in order",
    _encode32,
    _decode32,
    switch_op=OP_MAX,
    reduces=(("float32", "min"), ("float32", "max")),
)
FLOAT64_ORDER: Final = Codec(
    "float64 in order",
    _encode64,
    _decode64,
    switch_op=OP_MAX,
    reduces=(("float64", "min"), ("float64", "max")),
    rounds=2,
    partial=np.int32,
)
"""All high words, of which the winning ones are kept, then all low words."""
