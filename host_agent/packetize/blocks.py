"""One block of a flat array to the lanes of one datagram, and back.

A *pass* runs over the data once. What it does with it is its *coding*; which array it reads and writes is given by
address. Block b holds the elements b*L … b*L + L - 1; the last block may hold fewer, the lanes beyond carry 0 and are
not looked at on return.

In place is allowed: a block of the source is not read again after the same block of the target was written. That is
why what a second pass still needs of the first is kept apart (`partial`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import carray

from host_agent.compiled import Integer, Record, Words, compiled, compiled_inline
from host_agent.packetize.memory import pointer
from host_agent.quantize import block_float, exponent, integers, order
from host_agent.wire.constants import EXPONENT_ALL_ZERO, EXPONENT_BIAS, EXPONENT_NON_FINITE

CODING_NOTHING: Final = 0
"""No data: header-only."""
CODING_WORDS: Final = 1
"""32-bit words as they are, or complemented."""
CODING_FLOAT32: Final = 2
"""float32 in block floating point."""
CODING_FLOAT64: Final = 3
"""float64 in block floating point."""
CODING_INT32: Final = 4
"""int32; of blocks whose sum may not fit, the low halves."""
CODING_INT32_HIGH: Final = 5
"""The high halves of the blocks listed in `partial`."""
CODING_FLOAT32_ORDER: Final = 6
"""float32 in the order of integers."""
CODING_FLOAT64_ORDER: Final = 7
"""float64 in the order of integers: all high words, kept in `partial`, then all low words."""

# A plain 0 is a type of its own to Numba: what takes it would be compiled twice.
_AS_IT_IS: Final[Integer] = np.int64(0)

BLOCK_FIELDS: Final[list[tuple[str, Any]]] = [
    ("coding", np.int64),
    ("flip", np.int64),  # -1: complement (MIN), else 0
    ("divisor", np.int64),  # of the sum: 1, or the number of workers
    ("elements", np.int64),
    ("data_blocks", np.int64),
    ("source", np.int64),  # addresses
    ("target", np.int64),
    # uint16[data_blocks]: wire exponents of all workers' blocks, as they become known.
    ("exponents", np.int64),
    # FLOAT64_ORDER: int32[elements], winning high words. INT32_HIGH: int64[data_blocks], block numbers.
    ("partial", np.int64),
    ("overflowed", np.int64),  # elements that do not fit int32
    ("non_finite", np.int64),  # blocks that came out as NaN
]
"""What this module reads and writes of the record of a pass."""


@compiled_inline
def has_exponents(coding: int) -> bool:
    """Whether the blocks of a coding need the exponent of all workers' blocks before they can be sent."""
    return coding in (CODING_FLOAT32, CODING_FLOAT64, CODING_INT32)


@compiled_inline
def known_exponent(record: Record, block: int) -> Integer:
    """Return the wire exponent of all workers' blocks; it must have arrived."""
    return np.int64(carray(pointer(record.exponents), (record.data_blocks,), np.uint16)[block])


@compiled_inline
def learn_exponent(record: Record, block: int, wire_exponent: int) -> None:
    """Keep the wire exponent of all workers' blocks."""
    carray(pointer(record.exponents), (record.data_blocks,), np.uint16)[block] = np.uint16(wire_exponent)


@compiled
def own_exponent(record: Record, block: int, lane_count: int) -> Integer:
    """Return the wire exponent of this worker's block."""
    start = block * lane_count
    stop = min(start + lane_count, record.elements)
    size = record.elements
    if record.coding == CODING_FLOAT32:
        return exponent.float32_exponent(carray(pointer(record.source), (size,), np.uint32)[start:stop])
    if record.coding == CODING_FLOAT64:
        return exponent.float64_exponent(carray(pointer(record.source), (size,), np.uint64)[start:stop])
    return exponent.int32_exponent(carray(pointer(record.source), (size,), np.int32)[start:stop])


@compiled
def exponent_is_possible(record: Record, wire_exponent: int, own: int) -> bool:
    """Whether all workers' exponent can be this, given this worker's own: not below it, and in the type's range."""
    if wire_exponent < own:
        return False
    if wire_exponent == EXPONENT_ALL_ZERO:
        return True
    unbiased = wire_exponent - EXPONENT_BIAS
    if record.coding == CODING_FLOAT32:
        return wire_exponent == EXPONENT_NON_FINITE or -148 <= unbiased <= 128
    if record.coding == CODING_FLOAT64:
        return wire_exponent == EXPONENT_NON_FINITE or -1073 <= unbiased <= 1024
    return 1 <= unbiased <= 32


@compiled
def block_has_lanes(record: Record, block: int) -> Integer:
    """Whether all workers send this block with lanes: not if it is zero everywhere or NaN anyway."""
    if record.coding == CODING_NOTHING:
        return False
    if has_exponents(record.coding):
        wire_exponent = known_exponent(record, block)
        return wire_exponent != EXPONENT_ALL_ZERO and wire_exponent != EXPONENT_NON_FINITE
    return True


@compiled
def _data_block(record: Record, block: int) -> Integer:
    """Return which block of the caller's array a block of the pass is about."""
    if record.coding == CODING_FLOAT64_ORDER:
        return block % record.data_blocks
    if record.coding == CODING_INT32_HIGH:
        return carray(pointer(record.partial), (record.data_blocks,), np.int64)[block]
    return block


@compiled
def write_block(record: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    """Write this worker's block as lanes. `headroom` is ceil(log2 n)."""
    coding = record.coding
    size = record.elements
    start = _data_block(record, block) * lane_count
    stop = min(start + lane_count, size)
    if coding == CODING_WORDS:
        integers.words_to_lanes(
            carray(pointer(record.source), (size,), np.uint32)[start:stop], record.flip, lanes
        )
    elif coding == CODING_FLOAT32:
        values = carray(pointer(record.source), (size,), np.float32)[start:stop]
        block_float.quantize(values, known_exponent(record, block), headroom, lanes)
    elif coding == CODING_FLOAT64:
        doubles = carray(pointer(record.source), (size,), np.float64)[start:stop]
        block_float.quantize(doubles, known_exponent(record, block), headroom, lanes)
    elif coding == CODING_INT32:
        if exponent.may_overflow(known_exponent(record, block), headroom):
            integers.low_halves_to_lanes(carray(pointer(record.source), (size,), np.int32)[start:stop], lanes)
        else:
            integers.words_to_lanes(
                carray(pointer(record.source), (size,), np.uint32)[start:stop], _AS_IT_IS, lanes
            )
    elif coding == CODING_INT32_HIGH:
        integers.high_halves_to_lanes(carray(pointer(record.source), (size,), np.int32)[start:stop], lanes)
    elif coding == CODING_FLOAT32_ORDER:
        order.float32_to_order(
            carray(pointer(record.source), (size,), np.int32)[start:stop], record.flip, lanes
        )
    elif coding == CODING_FLOAT64_ORDER:
        bits = carray(pointer(record.source), (size,), np.int64)[start:stop]
        if block < record.data_blocks:
            order.float64_high_to_order(bits, record.flip, lanes)
        else:
            winners = carray(pointer(record.partial), (size,), np.int32)[start:stop]
            order.float64_low_to_order(bits, record.flip, winners, lanes)


@compiled
def read_block(record: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    """Read the result of a block into the target. `lanes` is empty for a block without (`block_has_lanes`)."""
    coding = record.coding
    size = record.elements
    start = _data_block(record, block) * lane_count
    stop = min(start + lane_count, size)
    if coding == CODING_WORDS:
        integers.words_from_lanes(
            lanes, record.flip, carray(pointer(record.target), (size,), np.uint32)[start:stop]
        )
    elif coding == CODING_FLOAT32:
        values = carray(pointer(record.target), (size,), np.float32)[start:stop]
        if lanes.size == 0:
            record.non_finite += _fill_without_lanes(values, known_exponent(record, block))
        else:
            block_float.dequantize(lanes, known_exponent(record, block), headroom, record.divisor, values)
    elif coding == CODING_FLOAT64:
        doubles = carray(pointer(record.target), (size,), np.float64)[start:stop]
        if lanes.size == 0:
            record.non_finite += _fill_without_lanes(doubles, known_exponent(record, block))
        else:
            block_float.dequantize(lanes, known_exponent(record, block), headroom, record.divisor, doubles)
    elif coding == CODING_INT32:
        words = carray(pointer(record.target), (size,), np.uint32)[start:stop]
        if lanes.size == 0:
            words[:] = np.uint32(0)
        else:
            # Low halves stay here as they are until the pass over the high halves joins them.
            integers.words_from_lanes(lanes, _AS_IT_IS, words)
    elif coding == CODING_INT32_HIGH:
        joined = carray(pointer(record.target), (size,), np.int32)[start:stop]
        record.overflowed += integers.join_halves(lanes, joined)
    elif coding == CODING_FLOAT32_ORDER:
        order.float32_from_order(
            lanes, record.flip, carray(pointer(record.target), (size,), np.int32)[start:stop]
        )
    elif coding == CODING_FLOAT64_ORDER:
        winners = carray(pointer(record.partial), (size,), np.int32)[start:stop]
        if block < record.data_blocks:
            integers.words_from_lanes(
                lanes, _AS_IT_IS, carray(pointer(record.partial), (size,), np.uint32)[start:stop]
            )
        else:
            bits = carray(pointer(record.target), (size,), np.int64)[start:stop]
            order.float64_from_order(lanes, record.flip, winners, bits)


@compiled
def _fill_without_lanes(values: Any, wire_exponent: int) -> int:
    """Fill a block that came without lanes: NaN or 0. Returns how many blocks (0, 1) came out as NaN."""
    if wire_exponent == EXPONENT_NON_FINITE:
        values[:] = np.nan
        return 1
    values[:] = 0.0
    return 0
