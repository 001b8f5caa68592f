import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from host_agent.codecs.ordered import (
    float32_from_order,
    float32_to_order,
    float64_from_order,
    float64_high_to_order,
    float64_low_to_order,
)

LANES = 16


def reduce32(parts: npt.NDArray[np.float32], flip: int) -> npt.NDArray[np.float32]:
    lanes = np.zeros((len(parts), LANES), np.uint32)
    for part, row in zip(parts, lanes, strict=True):
        float32_to_order(part.view(np.int32), flip, row)
    winner = lanes.view(">i4").max(axis=0).astype(">i4").view(np.uint32)
    out = np.empty(parts.shape[1], np.float32)
    float32_from_order(winner, flip, out.view(np.int32))
    return out


def reduce64(parts: npt.NDArray[np.float64], flip: int) -> npt.NDArray[np.float64]:
    lanes = np.zeros((len(parts), LANES), np.uint32)
    for part, row in zip(parts, lanes, strict=True):
        float64_high_to_order(part.view(np.int64), flip, row)
    winners = lanes.view(">i4").max(axis=0).astype(np.int32)
    for part, row in zip(parts, lanes, strict=True):
        float64_low_to_order(part.view(np.int64), flip, winners, row)
    low = lanes.view(">i4").max(axis=0).astype(">i4").view(np.uint32)
    out = np.empty(parts.shape[1], np.float64)
    float64_from_order(low, flip, winners, out.view(np.int64))
    return out


def check(parts: npt.NDArray[np.floating], out: npt.NDArray[np.floating], flip: int) -> None:
    reference = (np.minimum if flip else np.maximum).reduce(parts)
    np.testing.assert_array_equal(out, reference)
    # Equal values of different sign: -0.0 is below +0.0.
    for column, value in zip(parts.T, out, strict=True):
        if value == 0:
            negative = np.signbit(column[column == 0])
            assert np.signbit(value) == (negative.any() if flip else negative.all())


def arrays(dtype: str) -> st.SearchStrategy[npt.NDArray[np.floating]]:
    shape = st.tuples(st.integers(1, 5), st.integers(1, LANES))
    return hnp.arrays(dtype, shape)


@pytest.mark.parametrize("flip", [0, -1])
@given(arrays("f4"))
def test_float32_is_exact(flip: int, parts: npt.NDArray[np.float32]) -> None:
    check(parts, reduce32(parts, flip), flip)


@pytest.mark.parametrize("flip", [0, -1])
@given(arrays("f8"))
def test_float64_is_exact(flip: int, parts: npt.NDArray[np.float64]) -> None:
    check(parts, reduce64(parts, flip), flip)


@pytest.mark.parametrize("flip", [0, -1])
@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=2), st.integers(0, 2**32 - 1))
def test_float64_that_differ_in_the_low_word_only(flip: int, lows: list[int], high: int) -> None:
    bits = np.array([[high << 32 | (low & 0xFFFFFFFF)] for low in lows], np.uint64)
    parts = bits.view(np.float64)
    check(parts, reduce64(parts, flip), flip)


@pytest.mark.parametrize("flip", [0, -1])
@pytest.mark.parametrize(("dtype", "reduce"), [(np.float32, reduce32), (np.float64, reduce64)])
def test_every_nan_comes_through(flip, dtype, reduce) -> None:  # type: ignore[no-untyped-def]
    negative = np.copysign(dtype(np.nan), dtype(-1))
    parts = np.array([[np.inf, -np.inf, np.nan, negative], [np.nan, negative, 1, -1]], dtype)
    assert np.isnan(reduce(parts, flip)).all()
    integer = f"i{np.dtype(dtype).itemsize}"
    quiet = np.array([np.nan], dtype).view(integer)
    assert (reduce(parts, flip).view(integer) == quiet).all(), "one bit pattern at every worker"


@pytest.mark.parametrize("flip", [0, -1])
def test_infinities_and_the_largest_values(flip: int) -> None:
    largest = np.finfo(np.float32).max
    parts = np.array([[largest, -largest, np.inf, -np.inf], [np.inf, -np.inf, 1, 1]], np.float32)
    check(parts, reduce32(parts, flip), flip)
