"""Units of compression: layers, buckets and whole models are really different."""

import pytest

pytest.importorskip("torch", exc_type=ImportError)

import torch

from host_agent.compression.granularity import gathered, scattered, units

SIZES = [("w", 6), ("b", 2)]


def test_units_cover_every_element_once() -> None:
    for granularity, block in (("layer", None), ("layer", 4), ("bucket", None), ("model", None)):
        tensors = {"w": torch.zeros(2, 3), "b": torch.zeros(2)}
        for unit in units(SIZES, granularity, block):  # type: ignore[arg-type]
            scattered(unit, gathered(unit, tensors) + 1, tensors)
        assert all(bool((each == 1).all()) for each in tensors.values())


def test_layers_keep_their_shape_and_models_are_one() -> None:
    tensors = {"w": torch.zeros(2, 3), "b": torch.zeros(2)}
    assert [gathered(each, tensors).shape for each in units(SIZES, "layer")] == [(2, 3), (2,)]
    assert [gathered(each, tensors).shape for each in units(SIZES, "layer", 4)] == [(4,), (2,), (2,)]
    (whole,) = units(SIZES, "model")
    assert gathered(whole, tensors).shape == (8,)
