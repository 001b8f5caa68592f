"""The check of a collective: a few lanes that each worker sends behind its arrays, and what their sums must be.

First the *claims*: for each block with an exponent a field of a few bits, 1 if the exponent of all workers is this worker's
own. A field that is 0 in the sum belongs to an exponent that no worker sent. Then the *seals*: one for each segment of blocks,
four digits of 16 bits, the sum over the segment's blocks j of

    b_j * (digest of the lanes that this worker sent + c_w * what all workers must agree on: block number, exponent, members)

and a pad. The worker's own coefficient c_w reveals a contribution that is missing or duplicated, even one whose chunks all are.
"""

from typing import Any, Final

import numpy as np
from numba import carray

from host_agent.codecs.codec import encoder
from host_agent.codecs.payload import NOT_SEARCHED, array_block, has_exponents, known_exponent, source_of
from host_agent.codecs.raw import words_to_lanes
from host_agent.protocol.records import PASS, is_header_only
from host_agent.verification.digest import (
    CHECKS,
    LIMBS,
    NO_LANES,
    checks_of,
    digest,
    digest_or_zero,
    digests_at,
)
from host_agent.verification.field import element_of, plus, shifted, times
from netsum_common.compiled import Integer, Record, Records, Words, compiled, compiled_inline
from netsum_common.memory import pointer

SEGMENT: Final = 4096  # Blocks that share a seal.
SEAL_LANES: Final = 4  # Digits of 16 bits: the sums over 4,096 workers fit a lane.

LINEAR, DISJOINT, NOT_LINEAR, NO_LANES_AT_ALL, DECIDING = range(5)
"""How a result follows from the contributions: their sum; their union, each lane from one worker alone; their extreme or union;
packets without lanes; their sum, which decides what is contributed next, so that all must have received the same."""

SEGMENTS: Final = np.dtype(
    [(name, np.int64) for name in ("record", "checks", "first", "count", "kind")], align=True
)
"""A range of a pass's blocks, or of the packets of claims. `record`, `checks`: addresses of its `PASS` and `CHECKS`; claims have
none."""

PLAN: Final = np.dtype(
    [
        (name, np.int64)
        for name in (
            "segments",  # address of SEGMENTS[segment_count]
            "segment_count",
            "lane_count",
            "coefficients",  # int32[LIMBS, lanes]
            "block_coefficients",  # uint64[SEGMENT]
            "own_coefficient",  # c_w
            "all_coefficients",  # the sum of all workers'
            "own_pads",  # uint64[segment_count]
            "all_pads",
            "claim_lanes",
            "claim_bits",  # width of a field
            "poison",  # added to the seals of a worker that has found a fault
            "lanes",  # int32[claim_lanes + SEAL_LANES * segment_count]: this worker's
            "written",
        )
    ],
    align=True,
)

_AGREE_EXPONENT: Final = np.uint64(44)  # Bits of a block's number.
_DIGIT: Final = np.uint64(16)
_AS_IT_IS: Final[Integer] = np.int64(0)
_DIGIT_MASK: Final = np.uint64(0xFFFF)


@compiled_inline
def _array(address: Integer, count: Integer, dtype: Any) -> Any:
    return carray(pointer(address), (count,), dtype)


@compiled
def _own_exponent(payload: Record, block: Integer) -> Integer:
    """Return this worker's exponent of a block that has been sent."""
    if payload.own != 0:
        found = np.int64(_array(payload.own, np.int64(1 << 62), np.uint16)[array_block(payload, block)])
        if found != NOT_SEARCHED:
            return found
    checks = checks_of(payload)
    return np.int64(_array(checks.own, checks.blocks, np.uint16)[block])


@compiled
def _agreed(record: Record, checks: Record, kind: Integer, block: Integer) -> Integer:
    """Return what all workers must agree on about a block, as an element that is not 0."""
    payload = record.payload
    if kind == NO_LANES_AT_ALL:
        return np.uint64(record.added + 1)
    number = np.uint64(array_block(payload, block) + 1)
    if has_exponents(payload) and block < payload.data_blocks:
        number += np.uint64(known_exponent(payload, block)) << _AGREE_EXPONENT
    if kind in (NOT_LINEAR, DECIDING):
        return plus(number, digest_or_zero(checks.received, checks.blocks, block))
    return number


@compiled
def _seal(plan: Record, segment: Record, coefficient: Integer, receives: bool) -> Integer:
    """Return a segment's seal without its pad: of the lanes that this worker sent, or of those that it received."""
    record = _array(segment.record, np.int64(1), PASS)[0]
    checks = _array(segment.checks, np.int64(1), CHECKS)[0]
    factors = _array(plan.block_coefficients, np.int64(SEGMENT), np.uint64)
    total = np.uint64(0)
    for j in range(segment.count):
        block = segment.first + j
        part = times(coefficient, _agreed(record, checks, segment.kind, block))
        if segment.kind in (LINEAR, DISJOINT, DECIDING):
            own = not receives or (segment.kind == DISJOINT and is_header_only(record, block))
            part = plus(part, digest_or_zero(checks.sent if own else checks.received, checks.blocks, block))
        total = plus(total, times(factors[j], part))
    return total


@compiled
def _wrote_own(segment: Record) -> bool:
    """Return whether lanes were written over a part that this worker alone contributes, and has already."""
    record = _array(segment.record, np.int64(1), PASS)[0]
    checks = _array(segment.checks, np.int64(1), CHECKS)[0]
    received = digests_at(checks.received, checks.blocks)
    for block in range(segment.first, segment.first + segment.count):
        if is_header_only(record, block) and received[block] != np.uint64(NO_LANES):
            return True
    return False


@compiled
def _seal_of_claims(plan: Record, segment: Record, claims: Any, coefficient: Integer) -> Integer:
    """Return the seal of some packets of claims, without its pad."""
    coefficients = carray(pointer(plan.coefficients), (LIMBS, plan.lane_count), np.int32)
    factors = _array(plan.block_coefficients, np.int64(SEGMENT), np.uint64)
    lanes = np.zeros(plan.lane_count, np.uint32)
    total = np.uint64(coefficient)
    for j in range(segment.count):
        first = (segment.first + j) * plan.lane_count
        words_to_lanes(claims[first : first + plan.lane_count].view(np.uint32), _AS_IT_IS, lanes)
        total = plus(total, times(factors[j], digest(coefficients, lanes)))
    return total


@compiled
def _write_claims(plan: Record, segments: Records, claims: Any) -> None:
    """Claim the exponents of all workers that are this worker's own."""
    fields = np.int64(31) // plan.claim_bits
    at = np.int64(0)
    claims[:] = np.int32(0)
    for i in range(segments.size):
        if segments[i].record == 0:
            continue
        payload = _array(segments[i].record, np.int64(1), PASS)[0].payload
        if not has_exponents(payload):
            continue
        for block in range(
            segments[i].first, min(segments[i].first + segments[i].count, payload.data_blocks)
        ):
            if _own_exponent(payload, block) == known_exponent(payload, block):
                claims[at // fields] |= np.int32(1) << np.int32(at % fields * plan.claim_bits)
            at += 1


@compiled
def write_lanes(plan: Record) -> None:
    """Write this worker's lanes, when all chunks of the collective have been sent."""
    segments = _array(plan.segments, plan.segment_count, SEGMENTS)
    lanes = _array(plan.lanes, plan.claim_lanes + SEAL_LANES * plan.segment_count, np.int32)
    pads = _array(plan.own_pads, plan.segment_count, np.uint64)
    claims = lanes[: plan.claim_lanes]
    _write_claims(plan, segments, claims)
    own = np.uint64(plan.own_coefficient)
    poison = np.uint64(0)
    for i in range(segments.size):
        if segments[i].record != 0:
            checks = _array(segments[i].checks, np.int64(1), CHECKS)[0]
            if checks.uncovered != 0 or checks.beyond != 0:
                poison = np.uint64(plan.poison)
    for i in range(segments.size):
        data = segments[i].record != 0
        seal = (
            _seal(plan, segments[i], own, False) if data else _seal_of_claims(plan, segments[i], claims, own)
        )
        seal = plus(plus(seal, pads[i]), poison)
        for k in range(SEAL_LANES):
            lanes[plan.claim_lanes + SEAL_LANES * i + k] = np.int32(seal & _DIGIT_MASK)
            seal >>= _DIGIT


@compiled
def _sum_of_seals(digits: Any) -> Integer:
    """Return the sum of the workers' seals, from the sums of their digits."""
    total = element_of(np.int64(digits[0]))
    for k in range(1, SEAL_LANES):
        total = plus(total, shifted(element_of(np.int64(digits[k])), np.uint64(k) * _DIGIT))
    return total


@compiled
def judge(plans: Records, sums: Any, verdicts: Any) -> Integer:
    """Compare the sums of all workers' lanes with what this worker received.

    `plans` (`PLAN`, one element): of the collective, all of whose chunks have come. `sums` (int32 array): of the lanes of all
    workers. `verdicts` (int8[segment_count]): becomes 1 for segments that are wrong. Returns the number of the first exponent
    that no worker sent, in the order of the passes; -1: there is none.
    """
    plan = plans[0]
    segments = _array(plan.segments, plan.segment_count, SEGMENTS)
    pads = _array(plan.all_pads, plan.segment_count, np.uint64)
    claims = sums[: plan.claim_lanes]
    total = np.uint64(plan.all_coefficients)
    exponents = np.int64(0)
    for i in range(segments.size):
        if segments[i].record == 0:
            expected = _seal_of_claims(plan, segments[i], claims, total)
        else:
            record = _array(segments[i].record, np.int64(1), PASS)[0]
            if has_exponents(record.payload):
                first, end = segments[i].first, segments[i].first + segments[i].count
                exponents += max(min(end, record.payload.data_blocks) - first, 0)
            if segments[i].kind == LINEAR and record.header_only_to != 0:
                continue  # A part that another rank owns.
            if segments[i].kind == DISJOINT and _wrote_own(segments[i]):
                verdicts[i] = 1
            expected = _seal(plan, segments[i], total, True)
        at = plan.claim_lanes + SEAL_LANES * i
        if plus(expected, pads[i]) != _sum_of_seals(sums[at : at + SEAL_LANES]):
            verdicts[i] = 1
    fields = np.int64(31) // plan.claim_bits
    mask = (np.int32(1) << np.int32(plan.claim_bits)) - np.int32(1)
    for number in range(exponents):
        if (claims[number // fields] >> np.int32(number % fields * plan.claim_bits)) & mask == 0:
            return np.int64(number)
    return np.int64(-1)


@encoder
def _encode(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    plan = _array(payload.checks, np.int64(1), PLAN)[0]
    if plan.written == 0:
        write_lanes(plan)
        plan.written = np.int64(1)
    words_to_lanes(source_of(payload, block, lane_count, np.uint32), _AS_IT_IS, lanes)


ENCODE_LANES: Final = _encode
