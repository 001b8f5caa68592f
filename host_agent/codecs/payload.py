"""The payload of a pass: exponents and lanes of one block, through the routines of its codec.

A *pass* runs over the data once. Block b holds as many elements as the lanes of a packet take, from element b * L on;
the last block may hold fewer, the lanes beyond carry 0 and are ignored on return. A pass may go over chosen
blocks only (`blocks`).

In place is allowed: a block of the source is not read again after the same block of the target was written. So the
values that a second round needs of the first are kept apart (`partial`).
"""

from typing import Any, Final

import numba
import numpy as np
from numba import carray, types

from host_agent.wire.constants import EXPONENT_ALL_ZERO, EXPONENT_NON_FINITE
from netsum_common.compiled import Integer, Record, Words, compiled, compiled_inline, routine_call
from netsum_common.memory import pointer, prefetch

PAYLOAD: Final = np.dtype(
    [
        (name, np.int64)
        for name in (
            # The codec: addresses of its routines, 0 where it has none, and the exponents it can give.
            "encode",
            "decode",
            "exponent",
            "least_exponent",
            "greatest_exponent",
            "may_be_non_finite",
            "per_lane",  # elements in a lane
            # Packed lanes: the range of a field, and how numbers are rounded to it.
            "field_bits",
            "levels",  # a worker's numbers are -levels to levels
            "stochastic",
            "seed",
            # The data.
            "flip",  # -1: complement (MIN), else 0
            "divisor",  # of the sum: 1, or the number of workers
            "elements",
            "data_blocks",  # of the pass
            "source",  # addresses
            "target",
            "exponents",  # uint16[data_blocks]: wire exponents of all workers' blocks, as they become known
            "partial",  # for each element, the value that a codec of two rounds keeps from the first to the second
            "blocks",  # int64[data_blocks]: which blocks; 0: all
            "own",  # uint16[blocks of the array]: this worker's exponents, found before, or NOT_SEARCHED; 0: none were
            # The result.
            "overflowed",  # elements that do not fit int32
            "non_finite",  # blocks that became NaN
            "checks",  # address of what `host_agent.verification` keeps of the pass; 0: nothing
        )
    ],
    align=True,
)
"""The part of a pass's record that codecs and this module read and write."""

NOT_SEARCHED: Final = 1  # In place of a block's exponent in `own`; no codec has this exponent.
BLOCKS_AHEAD: Final = 8
"""Distance of the block that is prefetched: one block alone is too short for the processor to detect a stream."""

_RECORD: Final = numba.from_dtype(PAYLOAD)
_LANES: Final = types.Array(types.uint32, 1, "C")

ENCODE: Final = types.void(_RECORD, types.int64, types.int64, types.int64, _LANES)
DECODE: Final = ENCODE
EXPONENT: Final = types.int64(_RECORD, types.int64, types.int64)

_call_coder = routine_call(ENCODE)
_call_exponent = routine_call(EXPONENT)


@compiled_inline
def has_exponents(payload: Record) -> Integer:
    """Whether blocks need the exponent of all workers' blocks before they can be sent."""
    return payload.exponent != 0


@compiled_inline
def known_exponent(payload: Record, block: int) -> Integer:
    """Return the wire exponent of all workers' blocks; it must have arrived."""
    return np.int64(carray(pointer(payload.exponents), (payload.data_blocks,), np.uint16)[block])


@compiled_inline
def learn_exponent(payload: Record, block: int, wire_exponent: int) -> None:
    """Keep the wire exponent of all workers' blocks."""
    carray(pointer(payload.exponents), (payload.data_blocks,), np.uint16)[block] = np.uint16(wire_exponent)


@compiled
def own_exponent(payload: Record, block: int, lane_count: int) -> Integer:
    """Return the wire exponent of this worker's block."""
    if payload.own != 0:
        found = _found_before(payload, block)
        if found != NOT_SEARCHED:
            return found
    return find_exponent(payload.exponent, payload, block, lane_count)


@compiled_inline
def find_exponent(routine: int, payload: Record, block: int, lane_count: int) -> Integer:
    """Return the finding of the routine at an address in this worker's block."""
    return _call_exponent(routine, (payload, block, lane_count))


@compiled
def _found_before(payload: Record, block: int) -> Integer:
    return np.int64(carray(pointer(payload.own), (1 << 62,), np.uint16)[array_block(payload, block)])


@compiled
def is_absent(payload: Record, block: int) -> Integer:
    """Whether this worker is known to have nothing but zeros in a block that other workers have."""
    return payload.own != 0 and _found_before(payload, block) == EXPONENT_ALL_ZERO


@compiled
def exponent_is_possible(payload: Record, wire_exponent: int, own: int) -> Integer:
    """Whether all workers' exponent can be this, given this worker's own: not below it, and in the codec's range."""
    if wire_exponent < own:
        return False
    if wire_exponent == EXPONENT_ALL_ZERO:
        return True
    if wire_exponent == EXPONENT_NON_FINITE:
        return payload.may_be_non_finite != 0
    return payload.least_exponent <= wire_exponent <= payload.greatest_exponent


@compiled
def block_has_lanes(payload: Record, block: int) -> Integer:
    """Whether all workers send this block with lanes: not if it is zero everywhere or NaN anyway."""
    if payload.encode == 0:
        return False
    if has_exponents(payload):
        wire_exponent = known_exponent(payload, block)
        return wire_exponent != EXPONENT_ALL_ZERO and wire_exponent != EXPONENT_NON_FINITE
    return True


@compiled_inline
def write_block(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    """Write this worker's block as lanes. `headroom` is ceil(log2 n)."""
    _call_coder(payload.encode, (payload, block, lane_count, headroom, lanes))


@compiled_inline
def read_block(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    """Read the result of a block into the target. `lanes` is empty for a block without (`block_has_lanes`)."""
    if payload.decode != 0:
        _call_coder(payload.decode, (payload, block, lane_count, headroom, lanes))


@compiled
def array_block(payload: Record, block: int) -> Integer:
    """Return which block of the array a block of the pass is."""
    # A division takes as long as the elements of half a block.
    index = block if block < payload.data_blocks else block % payload.data_blocks
    if payload.blocks != 0:
        return carray(pointer(payload.blocks), (payload.data_blocks,), np.int64)[index]
    return index


@compiled
def elements_of(payload: Record, block: int, lane_count: int) -> tuple[Integer, Integer]:
    """Return the first element of a block of the pass, and the one after its last."""
    block_elements = lane_count * payload.per_lane
    start = array_block(payload, block) * block_elements
    return start, min(start + block_elements, payload.elements)


@compiled_inline
def source_of(payload: Record, block: int, lane_count: int, dtype: Any) -> Any:
    """Return a block of this worker's array as elements of `dtype`, and fetch one that follows."""
    start, stop = elements_of(payload, block, lane_count)
    values = carray(pointer(payload.source), (payload.elements,), dtype)[start:stop]
    prefetch(values.ctypes.data + BLOCKS_AHEAD * values.nbytes, values.nbytes)
    return values


@compiled_inline
def target_of(payload: Record, block: int, lane_count: int, dtype: Any) -> Any:
    """Return a block of the array for results as elements of `dtype`."""
    start, stop = elements_of(payload, block, lane_count)
    return carray(pointer(payload.target), (payload.elements,), dtype)[start:stop]


@compiled_inline
def partial_of(payload: Record, block: int, lane_count: int, dtype: Any) -> Any:
    """Return the stored values of a block as elements of `dtype`."""
    start, stop = elements_of(payload, block, lane_count)
    return carray(pointer(payload.partial), (payload.elements,), dtype)[start:stop]
