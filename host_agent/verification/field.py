"""Arithmetic modulo the prime 2^61 - 1, compiled; elements are uint64 below the prime."""

from typing import Final

import numpy as np

from netsum_common.compiled import Integer, compiled, compiled_inline

PRIME: Final = (1 << 61) - 1

_P: Final = np.uint64(PRIME)
_BITS: Final = np.uint64(61)
_LOW_29: Final = np.uint64((1 << 29) - 1)
_LOW_32: Final = np.uint64((1 << 32) - 1)
_3, _29, _32 = np.uint64(3), np.uint64(29), np.uint64(32)


@compiled_inline
def _below_prime(value: Integer) -> Integer:
    return np.uint64(value - _P) if value >= _P else np.uint64(value)


@compiled_inline
def plus(one: Integer, other: Integer) -> Integer:
    """Return the sum of two elements."""
    return _below_prime(np.uint64(one + other))


@compiled
def times(one: Integer, other: Integer) -> Integer:
    """Return the product of two elements."""
    high, low = one >> _32, one & _LOW_32
    other_high, other_low = other >> _32, other & _LOW_32
    lowest = low * other_low
    middle = high * other_low + low * other_high  # Below 2^62.
    # 2^61 is 1, so 2^64 is 8, and the bits of `middle` from the 29th on count from 2^61.
    total = (high * other_high << _3) + (middle >> _29) + ((middle & _LOW_29) << _32)
    total += (lowest >> _BITS) + (lowest & _P)
    return _below_prime((total >> _BITS) + (total & _P))


@compiled_inline
def element_of(value: Integer) -> Integer:
    """Return the element that an int64 is congruent to."""
    rest = (value & np.int64(PRIME)) + (value >> np.int64(61))
    if rest < 0:
        rest += np.int64(PRIME)
    return _below_prime(np.uint64(rest))


@compiled_inline
def shifted(value: Integer, bits: Integer) -> Integer:
    """Return an element times 2^bits, for 0 < bits < 61."""
    return ((value << bits) & _P) | (value >> (_BITS - bits))
