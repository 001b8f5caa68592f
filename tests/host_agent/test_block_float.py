from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_agent.codecs.block_float import dequantize, quantize
from host_agent.codecs.exponent import float32_exponent, float64_exponent
from host_agent.wire.constants import EXPONENT_BIAS

LANES = 64
workers_counts = st.sampled_from([1, 2, 3, 4, 7, 8, 31, 32])


def exponent_of(block: npt.NDArray[np.floating]) -> int:
    if block.dtype == np.float32:
        return int(float32_exponent(block.reshape(-1).view(np.uint32)))
    return int(float64_exponent(block.reshape(-1).view(np.uint64)))


def summed(blocks: npt.NDArray[np.floating], divisor: int = 1) -> npt.NDArray[np.floating]:
    """Quantize every worker's block, add as the switch does, dequantize."""
    headroom = (len(blocks) - 1).bit_length()
    exponent = exponent_of(blocks)
    total = np.zeros(LANES, np.int64)
    for block in blocks:
        lanes = np.full(LANES, 0xFFFFFFFF, np.uint32)
        quantize(block, exponent, headroom, lanes)
        integers = lanes.view(">i4").astype(np.int64)
        assert np.abs(integers).max(initial=0) <= 2 ** (30 - headroom)
        assert not integers[block.size :].any(), "the tail is padded with zeros"
        total += integers
    assert np.abs(total).max() <= 2**30, "the switch never saturates"
    out = np.empty(blocks.shape[1], blocks.dtype)
    dequantize(total.astype(">i4").view(np.uint32), exponent, headroom, divisor, out)
    return out


@st.composite
def blocks_of(draw: st.DrawFn, dtype: type) -> npt.NDArray[np.floating]:
    width: Literal[32, 64] = 32 if dtype is np.float32 else 64
    workers, size = draw(workers_counts), draw(st.integers(1, LANES))
    spread = draw(st.sampled_from([None, 1.0, 1e-30, 1e30]))
    elements = st.floats(width=width, allow_nan=False, allow_infinity=False)
    if spread is not None:
        elements = st.floats(-spread, spread, width=64)
    values = [[draw(elements) for _ in range(min(size, 4))] for _ in range(workers)]
    blocks: npt.NDArray[np.floating] = np.zeros((workers, size), dtype)
    blocks[:, : min(size, 4)] = np.array(values, dtype)
    if not blocks.any():
        blocks[0, 0] = 1
    return blocks


def assert_within_bound(
    blocks: npt.NDArray[np.floating], result: npt.NDArray[np.floating], divisor: int
) -> None:
    """Each of n contributions is off by at most half a unit; then the result is rounded to its type."""
    workers = len(blocks)
    unit = Fraction(2) ** (exponent_of(blocks) - EXPONENT_BIAS + (workers - 1).bit_length() - 30)
    info = np.finfo(blocks.dtype)
    for column, value in zip(blocks.T, result, strict=True):
        exact = sum(map(Fraction, column.tolist()), Fraction()) / divisor
        if np.isinf(value):
            assert abs(exact) + workers * unit / 2 >= Fraction(float(info.max))
            continue
        rounding = abs(Fraction(float(value))) * Fraction(float(info.eps)) + Fraction(
            float(info.smallest_subnormal)
        )
        assert abs(Fraction(float(value)) - exact) <= workers * unit / 2 / divisor + rounding


@given(blocks_of(np.float32))
def test_sums_of_float32_are_within_the_bound(blocks: npt.NDArray[np.float32]) -> None:
    assert_within_bound(blocks, summed(blocks), 1)


@given(blocks_of(np.float32))
def test_means_of_float32_are_within_the_bound(blocks: npt.NDArray[np.float32]) -> None:
    assert_within_bound(blocks, summed(blocks, len(blocks)), len(blocks))


@given(blocks_of(np.float64))
def test_sums_of_float64_are_within_the_bound(blocks: npt.NDArray[np.float64]) -> None:
    assert_within_bound(blocks, summed(blocks), 1)


@given(blocks_of(np.float64))
def test_means_of_float64_are_within_the_bound(blocks: npt.NDArray[np.float64]) -> None:
    assert_within_bound(blocks, summed(blocks, len(blocks)), len(blocks))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("workers", [1, 32])
def test_the_ends_of_the_range(dtype: type, workers: int) -> None:
    info = np.finfo(dtype)
    # The largest value of 24 bits: one with more could be rounded up to infinity.
    largest, least = dtype(1 - 2.0**-24) * dtype(2.0 ** (info.maxexp - 1)) * 2, info.smallest_subnormal
    for value in (largest, -largest, info.tiny, least, -least, 1.0):
        blocks: npt.NDArray[np.floating] = np.full((workers, 3), value, dtype)
        np.testing.assert_allclose(summed(blocks, workers), blocks[0], rtol=2.0**-24)
    blocks = np.full((workers, 3), largest, dtype)
    if workers > 1:
        assert np.isposinf(summed(blocks)).all(), "a sum beyond the type is infinite, as in floating point"


def test_one_worker_loses_nothing_that_float32_can_hold_beside_its_largest_value() -> None:
    block = np.array([[1.0, 2.0**-23, 1 - 2.0**-24, -(2.0**-29)]], np.float32)
    np.testing.assert_array_equal(summed(block)[:3], block[0, :3])


def test_every_float32_of_a_block_of_one_comes_back() -> None:
    rng = np.random.default_rng(0)
    for bits in rng.integers(0, 2**32, 3000, dtype=np.uint32):
        value = np.array([bits]).view(np.float32)
        if np.isfinite(value).all() and value.any():
            np.testing.assert_array_equal(summed(value.reshape(1, 1)), value)
