"""Digests of blocks of lanes: a linear function of the lanes, so that the workers' digests add up to that of the sum.

The routines wrap those of any codec: they call the codec's own by its address, and keep the digest of the lanes that it wrote or
is about to read. A pass without checks uses the codec's own routines, at no cost.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import carray

from host_agent.codecs.codec import decoder, encoder, exponent_finder
from host_agent.codecs.payload import ENCODE, EXPONENT
from host_agent.verification.field import element_of, plus, shifted
from host_agent.wire.constants import OP_MAX
from host_agent.wire.header import swap
from netsum_common.compiled import Integer, Record, Words, compiled, compiled_inline, routine_call
from netsum_common.memory import pointer

LIMB_BITS: Final = 21
LIMBS: Final = 3
"""A coefficient below 2^61 is three numbers of 21 bits: their products with 1,024 lanes add up within int64."""

NO_LANES: Final = (1 << 64) - 1

CHECKS: Final = np.dtype(
    [
        (name, np.int64)
        for name in (
            # The codec's own routines, as addresses.
            "encode",
            "decode",
            "exponent",
            "blocks",  # Blocks of the pass, over all its rounds.
            "sent",  # uint64[blocks]: digests of this worker's lanes; NO_LANES for blocks to which it sent none
            "received",  # uint64[blocks]: of the lanes of the RESULTs that were read; NO_LANES where none were
            "own",  # uint16[blocks]: this worker's exponents
            "coefficients",  # int32[LIMBS, lanes]
            # An operation that is not linear: MAX or BOR, else 0. The RESULT must cover this worker's lanes.
            "covers",
            "scratch",  # uint32[lanes]
            "uncovered",  # Number of RESULTs that did not cover them.
            # Masks (`host_agent.verification.masking`): the routines beneath, and for how many more bits they leave room.
            "plain_encode",
            "plain_decode",
            "headroom",
            "masks",  # uint32[blocks * lanes]: added by this worker
            "common",  # uint32[blocks * lanes]: removed from the RESULT
            "mask_bits",  # k; 0: masks are combined by exclusive or,
            "own_from",  # with these elements of the array
            "own_to",
            "limit",  # magnitude of a lane before it is masked
            # Wire exponent in place of those of all blocks, so that none shows; 0: none. How many blocks were above it.
            "scale",
            "beyond",
        )
    ],
    align=True,
)
"""Addresses and counts of the checks of one pass; `payload.checks` points to it."""

_call_coder = routine_call(ENCODE)
_call_exponent = routine_call(EXPONENT)
_LOW, _HIGH = np.uint64(LIMB_BITS), np.uint64(2 * LIMB_BITS)


@compiled
def digest(coefficients: npt.NDArray[np.int32], lanes: Words) -> Integer:
    """Return the sum of coefficient times lane, modulo the prime; lanes are int32 in network byte order."""
    low, middle, high = np.int64(0), np.int64(0), np.int64(0)
    for i in range(np.uint64(lanes.size)):
        lane = np.int64(np.int32(swap(lanes[i])))
        low += np.int64(coefficients[0, i]) * lane
        middle += np.int64(coefficients[1, i]) * lane
        high += np.int64(coefficients[2, i]) * lane
    total = plus(element_of(low), shifted(element_of(middle), _LOW))
    return plus(total, shifted(element_of(high), _HIGH))


@compiled_inline
def checks_of(payload: Record) -> Record:
    """Return the checks of a pass."""
    return carray(pointer(payload.checks), (1,), CHECKS)[0]


@compiled_inline
def digests_at(address: Integer, blocks: Integer) -> Any:
    """Return the digests at an address."""
    return carray(pointer(address), (blocks,), np.uint64)


@compiled_inline
def digest_or_zero(address: Integer, blocks: Integer, block: Integer) -> Integer:
    """Return the digest of a block; 0 where no lanes were."""
    found = digests_at(address, blocks)[block]
    return np.uint64(0) if found == np.uint64(NO_LANES) else found


@compiled
def _digest_by(checks: Record, lane_count: Integer, lanes: Words) -> Integer:
    return digest(carray(pointer(checks.coefficients), (LIMBS, lane_count), np.int32), lanes)


@compiled
def _is_covered(op: Integer, result: Words, own: Words) -> bool:
    """Return whether a RESULT is at least this worker's lanes, or has all of their bits."""
    for i in range(own.size):
        if op == OP_MAX and np.int32(swap(result[i])) < np.int32(swap(own[i])):
            return False
        if op != OP_MAX and own[i] & ~result[i] != 0:
            return False
    return True


@encoder
def _encode(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    checks = checks_of(payload)
    _call_coder(checks.encode, (payload, block, lane_count, headroom, lanes))
    digests_at(checks.sent, checks.blocks)[block] = _digest_by(checks, lane_count, lanes)


@decoder
def _decode(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    checks = checks_of(payload)
    if lanes.size != 0:
        digests_at(checks.received, checks.blocks)[block] = _digest_by(checks, lane_count, lanes)
        if checks.covers != 0 and digests_at(checks.sent, checks.blocks)[block] != np.uint64(NO_LANES):
            own = carray(pointer(checks.scratch), (lane_count,), np.uint32)
            _call_coder(checks.encode, (payload, block, lane_count, headroom, own))
            if not _is_covered(checks.covers, lanes, own):
                checks.uncovered += 1
    _call_coder(checks.decode, (payload, block, lane_count, headroom, lanes))


@exponent_finder
def _exponent(payload: Record, block: int, lane_count: int) -> Integer:
    checks = checks_of(payload)
    found = _call_exponent(checks.exponent, (payload, block, lane_count))
    if checks.scale != 0:
        checks.beyond += found > checks.scale
        found = checks.scale
    carray(pointer(checks.own), (checks.blocks,), np.uint16)[block] = np.uint16(found)
    return found


ROUTINES: Final = (_encode, _decode, _exponent)
"""Routines of any codec with checks."""
