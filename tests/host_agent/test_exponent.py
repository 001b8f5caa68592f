import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_agent.codecs.exponent import float32_exponent, float64_exponent, int32_exponent, may_overflow
from host_agent.wire.constants import EXPONENT_ALL_ZERO, EXPONENT_BIAS, EXPONENT_NON_FINITE

floats32 = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=70)
floats64 = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=70)
integers32 = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=70)


def of32(values: list[float]) -> int:
    return int(float32_exponent(np.array(values, np.float32).view(np.uint32)))


def of64(values: list[float]) -> int:
    return int(float64_exponent(np.array(values, np.float64).view(np.uint64)))


def smallest(values: list[float]) -> int:
    """By the definition: the smallest e with max|x| < 2^e, biased."""
    largest = max(map(abs, values))
    if largest == 0:
        return EXPONENT_ALL_ZERO
    mantissa, exponent = math.frexp(largest)
    assert 0.5 <= mantissa < 1
    return exponent + EXPONENT_BIAS


@given(floats32)
def test_of_float32(values: list[float]) -> None:
    assert of32(values) == smallest(values)


@given(floats64)
def test_of_float64(values: list[float]) -> None:
    assert of64(values) == smallest(values)


@given(integers32)
def test_of_int32_is_the_bit_length_of_the_largest_magnitude(values: list[int]) -> None:
    longest = max(abs(value).bit_length() for value in values)
    assert int32_exponent(np.array(values, np.int32)) == (longest + EXPONENT_BIAS if longest else 0)


@pytest.mark.parametrize(
    ("value", "exponent"),
    [
        (2.0**-149, -148),
        (2.0**-127, -126),
        (np.nextafter(np.float32(2.0**-126), np.float32(0)), -126),
        (2.0**-126, -125),
        (1.0, 1),
        (np.nextafter(np.float32(1), np.float32(0)), 0),
        (float(np.finfo(np.float32).max), 128),
    ],
)
def test_of_the_extremes_of_float32(value: float, exponent: int) -> None:
    for sign in (1, -1):
        assert of32([0.0, sign * value, -0.0]) == exponent + EXPONENT_BIAS


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_above_everything(value: float) -> None:
    for of in (of32, of64):
        assert of([1.0, value, 2.0]) == EXPONENT_NON_FINITE > of([1e38])


def test_nothing_but_zeros_is_below_everything() -> None:
    assert of32([0.0, -0.0]) == EXPONENT_ALL_ZERO < of32([2.0**-149])
    assert of64([0.0, -0.0]) == EXPONENT_ALL_ZERO < of64([5e-324])


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 31, 32])
@pytest.mark.parametrize("bits", range(33))
def test_sums_that_are_not_marked_as_at_risk_fit(workers: int, bits: int) -> None:
    headroom = (workers - 1).bit_length()
    exponent = bits + EXPONENT_BIAS if bits else EXPONENT_ALL_ZERO
    largest = min(2**bits - 1, 2**31)
    if not may_overflow(exponent, headroom):
        assert workers * largest <= 2**31 - 1
    elif bits < 32:
        # The limit is as wide as a whole number of bits allows.
        assert 2**headroom * (2 ** (bits + 1) - 1) > 2**31 - 1
