"""Fields of few bits: bounds, carries, and stochastic rounding."""

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_agent.codecs.packed import (
    BITS,
    PACKED,
    SIGNIFICANT_BITS,
    Bits,
    bits_of_type,
    packed_codec,
    scale_exponent,
    scale_of,
)
from host_agent.codecs.payload import learn_exponent, read_block, write_block
from host_agent.errors import MisuseError
from host_agent.protocol.passes import Pass
from host_agent.wire.constants import EXPONENT_ALL_ZERO, EXPONENT_NON_FINITE, OP_SUM
from host_agent.wire.header import swap
from netsum_common.compiled import compiled

LANES = 8
workers_counts = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 31, 32])
widths = st.sampled_from([16, 8, 4, 2])


@compiled
def encode(records: Any, exponent: Any, lanes: Any) -> None:
    payload = records[0].payload
    learn_exponent(payload, 0, exponent)
    write_block(payload, 0, lanes.size, 0, lanes)


@compiled
def decode(records: Any, exponent: Any, lanes: Any) -> None:
    payload = records[0].payload
    learn_exponent(payload, 0, exponent)
    read_block(payload, 0, lanes.size, 0, lanes)


def fits(bits: int, workers: int) -> bool:
    return bits == 2 or (1 << (bits - 1)) - 1 >= workers


def saturating_sum(lanes: list[npt.NDArray[np.uint32]]) -> npt.NDArray[np.uint32]:
    """The switch's sum of the workers' lanes, one after the other; none may saturate."""
    total = np.zeros(LANES, np.int64)
    for each in lanes:
        total += each.view(">i4")
        assert (np.abs(total) < 2**31).all(), "a lane has saturated"
    return total.astype(">i4").view(np.uint32)


def reduced(
    blocks: npt.NDArray[np.float32], bits: int, seeds: list[int] | None = None, divisor: int = 1
) -> npt.NDArray[np.float32]:
    codec = packed_codec(bits, len(blocks))
    exponent = int(scale_exponent(blocks.reshape(-1).view(np.uint32)))
    lanes = []
    for worker, block in enumerate(blocks):
        work = Pass(codec, OP_SUM, 0, block, block, seed=None if seeds is None else seeds[worker])
        records = work.lay_out(LANES, 1)
        lanes.append(np.full(LANES, 0xFFFFFFFF, np.uint32))
        encode(records, exponent, lanes[-1])
    out = np.full(blocks.shape[1], np.nan, np.float32)
    work = Pass(codec, OP_SUM, 0, out, out, divisor=divisor)
    decode(work.lay_out(LANES, 1), exponent, saturating_sum(lanes))
    return out


@st.composite
def blocks_and_bits(draw: st.DrawFn) -> tuple[npt.NDArray[np.float32], int]:
    workers, bits = draw(st.tuples(workers_counts, widths).filter(lambda pair: fits(pair[1], pair[0])))
    size = draw(st.integers(1, LANES * packed_codec(bits, workers).per_lane))
    spread = draw(st.sampled_from([None, 1.0, 1e-40, 1e30]))
    values = st.floats(width=32, allow_nan=False, allow_infinity=False)
    if spread is not None:
        values = st.one_of(st.floats(-spread, spread), st.sampled_from([-spread, spread]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    few = np.array([draw(values) for _ in range(8)], np.float32)
    blocks = rng.choice(few, (workers, size))
    if not blocks.any():
        blocks[0, 0] = 1
    return blocks, bits


def worst(blocks: npt.NDArray[np.float32], result: npt.NDArray[np.float32]) -> Fraction:
    """Error of an element beyond rounding it to float32."""
    off = Fraction(0)
    for column, value in zip(blocks.T, result.tolist(), strict=True):
        exact = sum(map(Fraction, column.tolist()), Fraction())
        if not np.isfinite(value):
            assert abs(exact) > Fraction(float(np.finfo(np.float32).max)) / 2
            continue
        rounding = abs(Fraction(value)) * Fraction(1, 2**24) + Fraction(1, 2**150)
        off = max(off, abs(Fraction(value) - exact) - rounding)
    return off


# The scale is applied in float64: each product, and the step of the sum, is off by a part in 2^52.
FLOAT64 = 1 + Fraction(1, 2**30)


@settings(deadline=None)
@given(blocks_and_bits())
def test_sums_are_within_half_a_level_for_each_worker(drawn: tuple[npt.NDArray[np.float32], int]) -> None:
    blocks, bits = drawn
    exponent = int(scale_exponent(blocks.reshape(-1).view(np.uint32)))
    bound = packed_codec(bits, len(blocks)).error_bound(exponent, len(blocks))
    assert worst(blocks, reduced(blocks, bits)) <= bound * FLOAT64


@settings(deadline=None)
@given(blocks_and_bits(), st.integers(0, 2**62))
def test_stochastic_sums_are_within_a_level_for_each_worker(
    drawn: tuple[npt.NDArray[np.float32], int], seed: int
) -> None:
    blocks, bits = drawn
    seeds = [seed + worker for worker in range(len(blocks))]
    exponent = int(scale_exponent(blocks.reshape(-1).view(np.uint32)))
    bound = 2 * packed_codec(bits, len(blocks)).error_bound(exponent, len(blocks))
    first, again = (reduced(blocks, bits, seeds) for _ in range(2))
    assert worst(blocks, first) <= bound * FLOAT64
    assert first.tobytes() == again.tobytes(), "a retransmission must have the same bits"


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_the_scale_is_the_largest_magnitude_rounded_up_to_a_bfloat16(values: list[float]) -> None:
    block = np.array(values, np.float32)
    exponent = int(scale_exponent(block.view(np.uint32)))
    largest = float(np.abs(block).max())
    if largest == 0:
        assert exponent == EXPONENT_ALL_ZERO
        return
    scale = float(scale_of(exponent))
    assert PACKED.exponents[0] <= exponent <= PACKED.exponents[1]
    unit = 2.0 ** max(int(np.frexp(largest)[1]) - 8, -133)
    assert scale - unit < largest <= scale
    assert scale % unit == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_above_everything(value: float) -> None:
    block = np.array([1.0, value, float(np.finfo(np.float32).max)], np.float32)
    assert scale_exponent(block.view(np.uint32)) == EXPONENT_NON_FINITE > PACKED.exponents[1]


@pytest.mark.parametrize("bits", [16, 8, 4, 2])
def test_stochastic_rounding_has_no_bias(bits: int) -> None:
    """The mean over many seeds is the number itself; five standard errors of a level's fraction are allowed."""
    codec = packed_codec(bits, 2)
    values = np.array([1.0, 0.3, -0.3, 0.01, -0.77, 0.5], np.float32)
    blocks = np.stack([values, np.zeros_like(values)])
    rounds = 4000
    total = np.zeros(values.size)
    for seed in range(rounds):
        total += reduced(blocks, bits, [1000 * seed, 1000 * seed + 1])
    level = 1.0 / codec.settings["levels"]
    assert np.abs(total / rounds - values).max() <= 5 * level / 2 / np.sqrt(rounds) + 1e-6


def test_other_seeds_round_otherwise_and_elements_apart() -> None:
    block = np.full((1, LANES * 4), 0.3, np.float32)
    first, other = (reduced(block, 8, [seed]) for seed in (1, 2))
    assert (first != other).any()
    assert len(set(first.tolist())) == 2


@pytest.mark.parametrize("workers", range(1, 33))
def test_all_workers_at_their_limit_neither_saturate_nor_spill(workers: int) -> None:
    for bits in (16, 8, 4, 2):
        if not fits(bits, workers):
            with pytest.raises(
                MisuseError, match=f"bits={bits} has no room for the sum of {workers} workers"
            ):
                packed_codec(bits, workers)
            continue
        codec = packed_codec(bits, workers)
        assert bits == 2 or codec.per_lane == 32 // bits
        signs = np.where(np.arange(LANES * codec.per_lane) // LANES % 2, -1, 1).astype(np.float32)
        for sign in (signs, -signs, np.ones_like(signs), -np.ones_like(signs)):
            np.testing.assert_array_equal(reduced(np.tile(sign, (workers, 1)), bits), workers * sign)


def test_the_widths_that_the_documentation_names() -> None:
    assert BITS == ("full", 16, 8, 4, 2)
    found = {
        bits: (packed_codec(bits, 4).per_lane, packed_codec(bits, 4).settings["levels"])
        for bits in (16, 8, 4, 2)
    }
    assert found == {16: (2, 8191), 8: (4, 31), 4: (8, 1), 2: (8, 1)}


def test_fields_of_the_first_elements_are_the_low_bits() -> None:
    block = np.zeros(4 * LANES, np.float32)
    block[0], block[LANES], block[3 * LANES + 1] = 1, -1, 0.5
    work = Pass(packed_codec(8, 1), OP_SUM, 0, block, block)
    lanes = np.zeros(LANES, np.uint32)
    encode(work.lay_out(LANES, 1), int(scale_exponent(block.view(np.uint32))), lanes)
    host = [int(np.int32(np.uint32(swap(lane)))) for lane in lanes[:2]]
    assert host == [127 - 127 * 256, 64 << 24], "round(0.5 * 127) is 64: to even"


@pytest.mark.parametrize("workers", range(1, 33))
@pytest.mark.parametrize("name", SIGNIFICANT_BITS)
def test_a_type_travels_in_the_fewest_bits_whose_step_is_no_larger_than_its_own(
    name: str, workers: int
) -> None:
    largest = 1.875  # The largest of its binade with the fewest significant bits of all types but one.
    distance = 2.0 ** (1 - SIGNIFICANT_BITS[name])

    def serves(bits: Bits) -> bool:
        return float(packed_codec(bits, workers).settings["levels"]) >= 2.0 / distance

    bits = bits_of_type(name, workers)
    narrower: dict[Bits, tuple[Bits, ...]] = {8: (), 16: (8,), "full": (8, 16)}
    assert bits == "full" or serves(bits)
    assert bits == "full" or largest / packed_codec(bits, workers).settings["levels"] <= distance
    assert not any(serves(each) for each in narrower[bits])


def test_types_that_are_as_wide_as_a_lane_are_not_packed() -> None:
    assert {bits_of_type(name, 2) for name in ("float32", "float64", "int32")} == {"full"}
