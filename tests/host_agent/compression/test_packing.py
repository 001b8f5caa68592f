"""Packed fields add up without carrying into one another."""

import pytest

pytest.importorskip("torch", exc_type=ImportError)

import torch
from hypothesis import given
from hypothesis import strategies as st

from host_agent.compression.packing import (
    fields_per_lane,
    pack_bits,
    pack_lanes,
    unpack_bits,
    unpack_lanes,
)
from host_agent.compression.rotation import rotate, rotate_back


@given(
    largest=st.sampled_from([1, 7, 127, 32767]),
    workers=st.integers(1, 32),
    elements=st.integers(0, 70),
    extreme=st.sampled_from([-1, 0, 1]),
    seed=st.integers(0, 1000),
)
def test_sums_of_lanes_are_sums_of_fields(
    largest: int, workers: int, elements: int, extreme: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (workers, elements)
    values = (
        torch.full(shape, extreme * largest, dtype=torch.int32)
        if extreme
        else torch.randint(-largest, largest + 1, shape, generator=generator, dtype=torch.int32)
    )
    lanes = [pack_lanes(row, largest, workers) for row in values]
    total = sum(lane.to(torch.int64) for lane in lanes)
    assert total.numel() == 0 or int(total.max()) < 2**31
    # One worker's lanes leave the headroom in which a sum of these workers needs one pass.
    assert all(lane.numel() == 0 or int(lane.max()) * workers < 2**31 for lane in lanes)
    unpacked = unpack_lanes(total.to(torch.int32), elements, largest, workers, workers)
    assert bool((unpacked == values.sum(dim=0)).all())


def test_four_workers_get_seven_ternary_or_five_4_bit_or_three_8_bit_fields_a_lane() -> None:
    assert [fields_per_lane(largest, 4) for largest in (1, 7, 127, 32767)] == [7, 5, 3, 1]


@given(bits=st.sampled_from([1, 2, 4, 8]), elements=st.integers(0, 40), seed=st.integers(0, 1000))
def test_bits_come_back(bits: int, elements: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 1 << bits, (elements,), generator=generator, dtype=torch.uint8)
    packed = pack_bits(values, bits)
    assert packed.numel() == -(-elements * bits // 8)
    assert bool((unpack_bits(packed, elements, bits) == values).all())


@given(elements=st.integers(1, 200), seed=st.integers(0, 100))
def test_a_rotation_keeps_the_norm_and_can_be_undone(elements: int, seed: int) -> None:
    vector = torch.randn(elements, generator=torch.Generator().manual_seed(seed))
    rotated = rotate(vector, torch.Generator().manual_seed(7))
    assert torch.allclose(rotated.norm(), vector.norm(), rtol=1e-5)
    assert torch.allclose(rotate_back(rotated, elements, torch.Generator().manual_seed(7)), vector, atol=1e-5)
