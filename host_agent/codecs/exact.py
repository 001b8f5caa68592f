"""Digits of floats for exact sums: the digits that a pass takes of each element, and the one rounding at the end.

Everything is computed in float64, which holds float16 and float32 exactly. A block's *quantum* 2^q is common to all workers; the
digit of x is x / 2^q without its fraction, and the rest of x, x - digit * 2^q, is a float64 exactly, as its bits are some of
those of x. docs/protocol.md, "Exact sums", has the arguments.
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from netsum_common.compiled import Integer, compiled

BLOCK: Final = 256  # Elements that share a quantum.
NO_DIGITS: Final = -(1 << 30)  # The exponent of a block in which nothing is left.
LEAST_QUANTUM: Final = -1074  # Every float64 is a multiple of 2^-1074.
IS_NAN: Final = 1
IS_INFINITY: Final = 2
IS_MINUS_INFINITY: Final = 4
IS_NOT_MINUS_ZERO: Final = 8

PRECISIONS: Final = {
    "float16": (11, -24),
    "bfloat16": (8, -133),
    "float32": (24, -149),
    "float64": (53, -1074),
}
"""Bits of a significand, and the exponent of the least positive number, by type."""

_LIMBS: Final = 74  # 32-bit limbs: the range of float64, carries, and `_FRACTION` below.
_FRACTION: Final = 4  # Limbs below 2^-1074, for the bits of a quotient.
_LIMB_MASK: Final = (1 << 32) - 1
_TOP_BITS: Final = 62
_FLOAT64_INTEGERS: Final = 1 << 53

Floats = npt.NDArray[np.float64]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


@compiled
def _times_power(value: float, exponent: Integer) -> float:
    """Return value * 2^exponent, where 2^exponent alone may be no float64."""
    half = exponent // 2
    return math.ldexp(math.ldexp(value, half), exponent - half)


@compiled
def block_exponents(values: Floats, exponents: Int32s) -> None:
    """Write, for each block, the least e with |x| < 2^e for all its elements, or `NO_DIGITS`.

    `values`: finite. `exponents` (int32 (blocks,)): becomes the maximum of its value and these.
    """
    for block in range(exponents.size):
        largest = 0.0
        for i in range(block * BLOCK, (block + 1) * BLOCK):
            largest = max(largest, abs(values[i]))
        if largest > 0.0:
            exponents[block] = max(exponents[block], math.frexp(largest)[1])


@compiled
def take_digits(values: Floats, blocks: Int64s, quanta: Int64s, digits: Int32s) -> None:
    """Add the digits of some blocks to `digits`, and leave in `values` the rest of them.

    `values`: changed in place. `blocks`, `quanta`: numbers of the blocks, and q of their quanta 2^q. `digits` (int32 (n *
    BLOCK,)): of all of this worker's summands together.
    """
    for k in range(blocks.size):
        # In two factors: 2^-q alone may be no float64. What underflows between them is below 1, as it has to be.
        half = quanta[k] // 2
        up, further_up = math.ldexp(1.0, half), math.ldexp(1.0, quanta[k] - half)
        down, further_down = math.ldexp(1.0, -half), math.ldexp(1.0, half - quanta[k])
        first = blocks[k] * BLOCK
        for i in range(BLOCK):
            value = values[first + i]
            digit = np.int32(value * down * further_down)
            digits[k * BLOCK + i] += digit
            values[first + i] = value - float(digit) * up * further_up


@compiled
def flags_of(values: Floats, blocks: Int64s, flags: Int32s) -> None:
    """Collect `IS_*` of the elements of some blocks, by bitwise or."""
    for k in range(blocks.size):
        first = blocks[k] * BLOCK
        for i in range(BLOCK):
            value = values[first + i]
            if value != value:
                flag = IS_NAN | IS_NOT_MINUS_ZERO
            elif value == math.inf:
                flag = IS_INFINITY | IS_NOT_MINUS_ZERO
            elif value == -math.inf:
                flag = IS_MINUS_INFINITY | IS_NOT_MINUS_ZERO
            elif value == 0.0 and math.copysign(1.0, value) < 0.0:
                flag = 0
            else:
                flag = IS_NOT_MINUS_ZERO
            flags[k * BLOCK + i] |= np.int32(flag)


@compiled
def special_blocks(
    values: Floats, non_finite: npt.NDArray[np.uint8], minus_zero: npt.NDArray[np.uint8]
) -> None:
    """Mark the blocks that hold a NaN or an infinity, and those that hold -0.0."""
    for block in range(non_finite.size):
        for i in range(block * BLOCK, (block + 1) * BLOCK):
            value = values[i]
            if not math.isfinite(value):
                non_finite[block] = 1
            elif value == 0.0 and math.copysign(1.0, value) < 0.0:
                minus_zero[block] = 1


@compiled
def _rounded(magnitude: Integer, exponent: Integer, sticky: bool, precision: int, least: int) -> float:
    """Round magnitude * 2^exponent, and a little more if `sticky`, to nearest, ties to even; 0 < magnitude < 2^62."""
    length = np.int64(math.frexp(float(magnitude))[1])
    if (np.int64(1) << (length - 1)) > magnitude:  # The conversion rounded up to a power of two.
        length -= 1
    unit = max(exponent + length - precision, np.int64(least))
    shift = unit - exponent
    if shift <= 0:
        return _times_power(float(magnitude), exponent)
    if shift > _TOP_BITS + 1:
        return 0.0
    kept = magnitude >> shift
    rest = magnitude - (kept << shift)
    half = np.int64(1) << (shift - 1)
    if rest > half or (rest == half and (sticky or (kept & 1) == 1)):
        kept += 1
    return _times_power(float(kept), unit)


@compiled
def _to_eight_bits(value: float) -> float:
    """Round a float64 to a significand of 8 bits, ties to even; a carry goes on into the exponent."""
    bits = np.int64(np.float64(value).view(np.int64))
    bits += ((np.int64(1) << 44) - 1) + ((bits >> 45) & 1)
    return float(np.int64((bits >> 45) << 45).view(np.float64))


@compiled
def _sum_of_two(one: float, other: float, precision: int) -> float:
    """Return a sum rounded to float64; for a narrower type rounded to odd, so that rounding it again is right.

    Knuth, The Art of Computer Programming, volume 2, 4.2.2 (the error of a sum); Boldo, Melquiond: Emulation of FMA and
    Correctly Rounded Sums, IEEE Transactions on Computers 57(4), 2008 (rounding to odd).
    """
    total = one + other
    part = total - one
    error = (one - (total - part)) + (other - part)
    if precision == 53 or error == 0.0:
        return total
    bits = np.float64(total).view(np.int64)
    if bits & 1 == 0:
        bits += 1 if (error > 0.0) == (total > 0.0) else -1
    return float(np.int64(bits).view(np.float64))


@compiled
def _round_limbs(limbs: Int64s, low: int, high: int, divisor: int, precision: int, least: int) -> float:
    """Round the number in `limbs[low:high]`, which are cleared, divided by `divisor`."""
    carry = np.int64(0)
    for i in range(low, high):
        total = limbs[i] + carry
        limbs[i] = total & _LIMB_MASK
        carry = total >> 32
    negative = carry < 0
    if negative:
        carry = np.int64(1)
        for i in range(low, high):
            total = (limbs[i] ^ _LIMB_MASK) + carry
            limbs[i] = total & _LIMB_MASK
            carry = total >> 32
    rest = np.int64(0)
    if divisor != 1:
        for i in range(high - 1, low - _FRACTION, -1):
            rest = (rest << 32) | limbs[i]
            limbs[i] = rest // divisor
            rest = rest % divisor
        low -= _FRACTION - 1
    sticky = rest != 0
    top = high - 1
    while top >= low and limbs[top] == 0:
        top -= 1
    result = 0.0
    if top >= low:
        magnitude, room = np.int64(0), np.int64(_TOP_BITS)
        exponent = np.int64(32) * (top - _FRACTION) + LEAST_QUANTUM
        for i in range(top, low - 1, -1):
            limb = limbs[i]
            if i == top:
                magnitude = limb
                room -= np.int64(math.frexp(float(limb))[1])
                continue
            taken = min(room, np.int64(32))
            magnitude = (magnitude << taken) | (limb >> (32 - taken))
            sticky = sticky or (limb & ((np.int64(1) << (32 - taken)) - 1)) != 0
            exponent -= taken
            room -= taken
        result = _rounded(magnitude, exponent, sticky, precision, least)
    for i in range(low, high):
        limbs[i] = 0
    return -result if negative else result


@compiled
def round_sums(
    sums: Int32s,
    starts: Int64s,
    rows: Int64s,
    quanta: Int64s,
    divisor: int,
    precision: int,
    least: int,
    out: Floats,
) -> None:
    """Write the sums of all digits, divided and rounded once.

    `sums` (int32 (rows * BLOCK,)): digits of a block in a pass, added over all summands, in row after row. `starts`: where a
    block's entries begin in `rows` and `quanta`. `rows`, `quanta`: the rows of a block, those of larger quanta first, and
    the exponents of their quanta. `divisor`: 1, or the number of summands of a mean. `precision`, `least`: of the result's
    type; see `PRECISIONS`. `out`: the results.
    """
    limbs = np.zeros(_LIMBS, np.int64)
    power = 0
    while (1 << power) < divisor:
        power += 1
    exact_power = (1 << power) == divisor
    # Such a sum is a float64 exactly, and NumPy's conversion to a narrower type then rounds it once; it has no bfloat16.
    as_float64 = precision != 8
    least_normal = math.ldexp(1.0, least + precision - 1)
    for block in range(starts.size - 1):
        first, last = starts[block], starts[block + 1]
        terms = last - first
        if terms == 0:
            continue
        gap = quanta[first] - quanta[last - 1]
        low_quantum = quanta[last - 1] - power
        half = low_quantum // 2
        up, further_up = math.ldexp(1.0, half), math.ldexp(1.0, low_quantum - half)
        simple = exact_power and (terms == 1 or (terms == 2 and gap <= 30))
        # Both terms of such a block are float64 exactly.
        pair = (
            exact_power and terms == 2 and as_float64 and low_quantum >= LEAST_QUANTUM and quanta[first] < 900
        )
        high_scale = 0.0
        if pair:
            high_scale = _times_power(1.0, quanta[first] - power)
        for i in range(BLOCK):
            if pair:
                large = float(sums[rows[first] * BLOCK + i]) * high_scale
                small = float(sums[rows[last - 1] * BLOCK + i]) * up * further_up
                out[block * BLOCK + i] = _sum_of_two(large, small, precision)
                continue
            if simple:
                total = np.int64(sums[rows[first] * BLOCK + i]) << gap
                if terms == 2:
                    total += np.int64(sums[rows[last - 1] * BLOCK + i])
                value = float(total) * up * further_up
                if abs(total) <= _FLOAT64_INTEGERS and (as_float64 or abs(value) >= least_normal):
                    out[block * BLOCK + i] = value if as_float64 else _to_eight_bits(value)
                elif total != 0:
                    rounded = _rounded(abs(total), low_quantum, False, precision, least)
                    out[block * BLOCK + i] = -rounded if total < 0 else rounded
                continue
            for k in range(first, last):
                digit = np.int64(sums[rows[k] * BLOCK + i])
                bit = quanta[k] - LEAST_QUANTUM
                at = bit // 32 + _FRACTION
                shifted = digit << (bit % 32)
                limbs[at] += shifted & _LIMB_MASK
                limbs[at + 1] += shifted >> 32
            low = (quanta[last - 1] - LEAST_QUANTUM) // 32 + _FRACTION
            high = (quanta[first] - LEAST_QUANTUM) // 32 + _FRACTION + 4
            out[block * BLOCK + i] = _round_limbs(limbs, low, high, divisor, precision, least)


def load() -> None:
    """Compile this module, or load it from the cache, before the first collective needs it."""
    values, words = np.zeros(BLOCK), np.zeros(BLOCK, np.int32)
    number, bytes_ = np.zeros(1, np.int64), np.zeros(1, np.uint8)
    block_exponents(values, words[:1])
    take_digits(values, number, number, words)
    flags_of(values, number, words)
    special_blocks(values, bytes_, bytes_)
    round_sums(words, np.array([0, 1]), number, number, 1, *PRECISIONS["float32"], values)
