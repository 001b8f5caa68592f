"""int64 as digits that fit a lane, for sums.

x = d0 + d1 * 2^25 + d2 * 2^50 with balanced digits, |d0|, |d1| <= 2^24 and |d2| <= 2^13: the sums of 32 workers' digits
fit int32, and elements near zero, of either sign, have higher digits that are zero and cost no lanes. Digits are arrays
of int32 and travel by the codec of those (`halves`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

_DIGIT_BITS: Final = 25
_DIGIT_MASK: Final = (1 << _DIGIT_BITS) - 1
_HALF: Final = 1 << (_DIGIT_BITS - 1)
_TOP_LIMIT: Final = 1 << (63 - 2 * _DIGIT_BITS)


def to_digits(values: Int64s) -> npt.NDArray[np.int32]:
    """Return the balanced digits of int64 values (n,), lowest first: int32 (3, n)."""
    digits = np.empty((3, values.size), np.int32)
    rest = values
    for digit in digits[:2]:
        low = rest & _DIGIT_MASK
        rest = (rest >> _DIGIT_BITS) + (low >= _HALF)
        digit[:] = np.where(low >= _HALF, low - (1 << _DIGIT_BITS), low)
    digits[2] = rest
    return digits


def from_digits(digits: npt.NDArray[np.int32], out: Int64s) -> int:
    """Write the values of sums of digits, int32 (3, n), to `out` (n,).

    Returns
    -------
    int
        How many do not fit int64; they become the nearest value that does.
    """
    low = digits[0].astype(np.int64)
    middle = digits[1] + (low >> _DIGIT_BITS)
    high = digits[2] + (middle >> _DIGIT_BITS)
    out[:] = (high << 2 * _DIGIT_BITS) | ((middle & _DIGIT_MASK) << _DIGIT_BITS) | (low & _DIGIT_MASK)
    below, above = high < -_TOP_LIMIT, high >= _TOP_LIMIT
    limits = np.iinfo(np.int64)
    out[below], out[above] = limits.min, limits.max
    return int(np.count_nonzero(below) + np.count_nonzero(above))
