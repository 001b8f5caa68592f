"""Floats rounded to few bits, several to a lane.

Each of the n workers sends q = round(x * levels / M), where M is the largest magnitude of the block over all workers,
rounded up to a bfloat16, and levels the largest whole number with n * levels < 2^(f - 1). A lane is the sum of its
fields, q_0 + q_1 * 2^f + q_2 * 2^2f + …, as a signed number. Any sum of workers' fields is less than 2^(f - 1) in
magnitude: it does not saturate the lane, and adding half of a field's range to each field returns what the field borrowed from
the next. The switch's adder is not involved.

Element i of a block is in lane i mod L, field i div L, so that the lanes of one field are neighbours in memory.

The exponent of a block on the wire is M: its upper 16 bits as a float32, plus an offset. Rounding is to the nearest, or
stochastic: up with the probability of the fraction, by a hash of seed and element, so that a retransmission and a
second run have the same bits.
"""

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Final, Literal

import numpy as np

from host_agent.codecs.codec import Codec, decoder, encoder, exponent_finder
from host_agent.codecs.payload import elements_of, known_exponent, source_of, target_of
from host_agent.errors import MisuseError
from host_agent.wire.constants import EXPONENT_ALL_ZERO, EXPONENT_BIAS, EXPONENT_NON_FINITE
from host_agent.wire.header import swap
from netsum_common.compiled import Integer, Record, Words, compiled

Bits = Literal["full", 16, 8, 4, 2]
BITS: Final[tuple[Bits, ...]] = ("full", 16, 8, 4, 2)

_LANE_BITS: Final = 32
_OFFSET: Final = EXPONENT_BIAS + 1024
"""Above the numbers of PROBEs and all exponents of block floating point (`host_agent.wire.parts`)."""
_MAGNITUDE: Final = np.uint32(0x7FFFFFFF)
_INFINITY: Final = np.uint32(0x7F800000)
_BFLOAT_INFINITY: Final = 0x7F80


@compiled
def scale_exponent(bits: Words) -> Integer:
    """Return the wire exponent of a block of float32, given as its bits: its largest magnitude, rounded up."""
    largest = np.uint32(0)
    for i in range(bits.size):
        largest = max(largest, bits[i] & _MAGNITUDE)
    if largest >= _INFINITY:
        return EXPONENT_NON_FINITE
    if largest == 0:
        return EXPONENT_ALL_ZERO
    return ((np.int64(largest) + 0xFFFF) >> 16) + _OFFSET


@compiled
def scale_of(wire_exponent: int) -> float:
    """Return M: a bfloat16, or 2^128 where rounding up leaves the range."""
    bits = wire_exponent - _OFFSET
    fraction, exponent = bits & 0x7F, bits >> 7
    if exponent == 0:  # subnormal
        return math.ldexp(np.float64(fraction), -133)
    return math.ldexp(np.float64(fraction + 128), exponent - 134)


@compiled
def _uniform(seed: int, element: int) -> float:
    """Return a number in [0, 1) with 24 bits, a hash of seed and element (the finalizer of splitmix64)."""
    word = np.uint64(seed) + np.uint64(element + 1) * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((word ^ (word >> np.uint64(31))) >> np.uint64(40)) * 2.0**-24


@exponent_finder
def _exponent(payload: Record, block: int, lane_count: int) -> Integer:
    return scale_exponent(source_of(payload, block, lane_count, np.uint32))


@encoder
def _encode(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    values = source_of(payload, block, lane_count, np.float32)
    first, _ = elements_of(payload, block, lane_count)
    levels = np.float64(payload.levels)
    scale = levels / scale_of(known_exponent(payload, block))
    lanes[:] = np.uint32(0)
    for part in range(payload.per_lane):
        shift = np.uint32(part * payload.field_bits)
        start = part * lane_count
        count = max(min(values.size - start, lane_count), 0)
        if payload.stochastic != 0:
            for i in range(count):
                wanted = np.float64(values[start + i]) * scale
                rounded = np.floor(wanted + _uniform(payload.seed, first + start + i))
                lanes[i] += np.uint32(np.int32(max(min(rounded, levels), -levels))) << shift
        else:
            for i in range(count):
                rounded = np.rint(np.float64(values[start + i]) * scale)
                lanes[i] += np.uint32(np.int32(rounded)) << shift
    for i in range(lane_count):
        lanes[i] = swap(lanes[i])


@decoder
def _decode(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    values = target_of(payload, block, lane_count, np.float32)
    exponent = known_exponent(payload, block)
    if lanes.size == 0:
        if exponent == EXPONENT_NON_FINITE:
            payload.non_finite += 1
            values[:] = np.nan
        else:
            values[:] = 0.0
        return
    step = scale_of(exponent) / (np.float64(payload.levels) * payload.divisor)
    # Half of its range is added to each field: no field is negative then, so each can be extracted separately.
    half = np.int32(1 << (payload.field_bits - 1))
    mask = np.uint32((1 << payload.field_bits) - 1)
    halves = np.uint32(0)
    for part in range(payload.per_lane):
        halves |= np.uint32(half) << np.uint32(part * payload.field_bits)
    for part in range(payload.per_lane):
        shift = np.uint32(part * payload.field_bits)
        start = part * lanes.size
        for i in range(max(min(values.size - start, lanes.size), 0)):
            field = (np.uint32(swap(lanes[i]) + halves) >> shift) & mask
            values[start + i] = np.float32(np.float64(np.int32(field) - half) * step)


SIGNIFICANT_BITS: Final = {
    "float16": 11,
    "bfloat16": 8,
    "float8_e4m3fn": 4,
    "float8_e4m3fnuz": 4,
    "float8_e5m2": 3,
    "float8_e5m2fnuz": 3,
}
"""Floats with 16 bits or fewer, the leading one included."""


def bits_of_type(name: str, workers: int) -> Bits:
    """Return the fewest bits a field that serve a type: at M, a step is no larger than the distance of two numbers of the type.

    That distance is 2^(1 - p) of a power of two that is at least M / 2, with p significant bits: 2^p levels suffice.
    """
    significant = SIGNIFICANT_BITS.get(name, _LANE_BITS)
    for bits in (8, 16):
        if ((1 << (bits - 1)) - 1) // workers >= 1 << significant:
            return bits
    return "full"


FULL_RANGE: Final = (_OFFSET + 1, _OFFSET + _BFLOAT_INFINITY)


@cache
def packed_codec(bits: int, workers: int) -> Codec:
    """Return the codec that packs float32 for sums over this many workers.

    `bits`: width of a field, the carries of the sum included: 2, 4 or 8 elements a lane. 2 means ternary numbers, -1, 0 and
    1, in the narrowest fields that hold their sum. `workers`: 1 to 32. Raises MisuseError if a field has no room for the sum
    of this many workers.
    """
    field_bits = workers.bit_length() + 1 if bits == 2 else bits
    levels = 1 if bits == 2 else ((1 << (bits - 1)) - 1) // workers
    if levels == 0:
        raise MisuseError(
            f"bits={bits} has no room for the sum of {workers} workers: the sum of their numbers needs "
            f"{workers.bit_length() + 1} bits a field. Pass bits=8, or bits=2 for ternary numbers."
        )
    return replace(
        PACKED,
        name=f"packed {bits} bits of {workers} workers",
        per_lane=_LANE_BITS // field_bits,
        settings={"field_bits": field_bits, "levels": levels},
        error_bound=lambda exponent, _: nearest_bound(exponent, workers, levels),
    )


def nearest_bound(exponent: int, workers: int, levels: int) -> Fraction:
    """Return n/2 * M / levels: by how much an element of a sum may be off when each is rounded to the nearest.

    Twice that when it is rounded stochastically.
    """
    return Fraction(workers, 2) * Fraction(float(scale_of(exponent))) / levels


PACKED: Final = Codec("packed", _encode, _decode, _exponent, exponents=FULL_RANGE, non_finite=True)
"""Without a width yet; see `packed_codec`."""
