"""int64 as digits that fit a lane, for sums.

x = d0 + d1 * 2^b + d2 * 2^2b with balanced digits, |d0|, |d1| <= 2^(b - 1). With b = 25 the sums of 64 workers' digits fit
int32; larger jobs take a smaller b (`digit_bits`). A sum of top digits that does not fit int32 belongs to a sum that does
not fit int64. Elements near zero, of either sign, have higher digits that are zero and cost no lanes. Digits are arrays of
int32 and travel by the codec of those (`halves`).
"""

from typing import Final

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

_MOST_DIGIT_BITS: Final = 25


def digit_bits(world_size: int) -> int:
    """Return the largest number of bits of a digit whose sums over this many workers fit int32."""
    return min(_MOST_DIGIT_BITS, 31 - (world_size - 1).bit_length())


def to_digits(values: Int64s, bits: int) -> npt.NDArray[np.int32]:
    """Return the balanced digits of int64 values (n,), `bits` wide, lowest first: int32 (3, n)."""
    digits = np.empty((3, values.size), np.int32)
    mask, half = (1 << bits) - 1, 1 << (bits - 1)
    rest = values
    for digit in digits[:2]:
        low = rest & mask
        rest = (rest >> bits) + (low >= half)
        digit[:] = np.where(low >= half, low - (1 << bits), low)
    digits[2] = rest
    return digits


def from_digits(digits: npt.NDArray[np.int32], out: Int64s, bits: int) -> int:
    """Write the values of sums of digits, int32 (3, n), `bits` wide before they were added, to `out` (n,).

    Returns how many do not fit int64; they become the nearest value that does.
    """
    mask, limit = (1 << bits) - 1, 1 << (63 - 2 * bits)
    low = digits[0].astype(np.int64)
    middle = digits[1] + (low >> bits)
    high = digits[2] + (middle >> bits)
    out[:] = (high << 2 * bits) | ((middle & mask) << bits) | (low & mask)
    below, above = high < -limit, high >= limit
    limits = np.iinfo(np.int64)
    out[below], out[above] = limits.min, limits.max
    return int(np.count_nonzero(below) + np.count_nonzero(above))
