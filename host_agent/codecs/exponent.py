"""Block exponents: e(x) is the smallest integer with max|x| < 2^e.

On the wire they are unsigned and biased, so that the unsigned maximum of two is that of the larger block, *all zero*
is below and *non-finite* above everything (docs/protocol.md, "Floating point").
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from host_agent.wire.constants import EXPONENT_ALL_ZERO, EXPONENT_BIAS, EXPONENT_NON_FINITE
from netsum_common.compiled import Integer, compiled, compiled_inline

INT32_BITS: Final = 31  # Bits of an int32 beside its sign.

_MAGNITUDE32: Final = np.uint32(0x7FFFFFFF)
_INFINITY32: Final = np.uint32(0x7F800000)
_MAGNITUDE64: Final = np.uint64(0x7FFFFFFFFFFFFFFF)
_INFINITY64: Final = np.uint64(0x7FF0000000000000)


@compiled
def bit_length(value: Integer) -> Integer:
    """Return the number of bits of a non-negative integer."""
    bits = 0
    while value > 0:
        value >>= 1
        bits += 1
    return bits


@compiled
def float32_exponent(bits: npt.NDArray[np.uint32]) -> Integer:
    """Return the wire exponent of a block of float32, given as its bits (uint32)."""
    # Without the sign, floats are in the order of their bits, so the largest magnitude is an integer maximum.
    largest = np.uint32(0)
    for i in range(np.uint64(bits.size)):
        largest = np.uint32(max(largest, np.uint32(bits[i] & _MAGNITUDE32)))
    if largest >= _INFINITY32:
        return EXPONENT_NON_FINITE
    if largest == 0:
        return EXPONENT_ALL_ZERO
    exponent = np.int64(largest) >> 23
    if exponent == 0:  # subnormal: bits * 2^-149
        return bit_length(np.int64(largest)) - 149 + EXPONENT_BIAS
    return exponent - 126 + EXPONENT_BIAS  # 1.f * 2^(exponent - 127)


@compiled
def float64_exponent(bits: npt.NDArray[np.uint64]) -> Integer:
    """Return the wire exponent of a block of float64, given as its bits (uint64)."""
    largest = np.uint64(0)
    for i in range(bits.size):
        largest = max(largest, bits[i] & _MAGNITUDE64)
    if largest >= _INFINITY64:
        return EXPONENT_NON_FINITE
    if largest == 0:
        return EXPONENT_ALL_ZERO
    exponent = np.int64(largest) >> 52
    if exponent == 0:  # subnormal: bits * 2^-1074
        return bit_length(np.int64(largest)) - 1074 + EXPONENT_BIAS
    return exponent - 1022 + EXPONENT_BIAS


@compiled
def int32_exponent(values: npt.NDArray[np.int32]) -> Integer:
    """Return the wire exponent of a block of int32: the bit length of the largest magnitude."""
    # The bitwise or of all magnitudes is as long as the longest of them.
    magnitudes = np.uint32(0)
    for i in range(values.size):
        sign = values[i] >> np.int32(31)
        magnitudes |= np.uint32((values[i] ^ sign) - sign)
    if magnitudes == 0:
        return EXPONENT_ALL_ZERO
    return bit_length(np.int64(magnitudes)) + EXPONENT_BIAS


@compiled_inline
def may_overflow(exponent: int, headroom: int) -> bool:
    """Whether int32 values of this wire exponent, added over 2^headroom workers, can leave int32."""
    return exponent != EXPONENT_ALL_ZERO and exponent - EXPONENT_BIAS + headroom > INT32_BITS
