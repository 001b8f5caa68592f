"""Layers from torch: their parameters, and times that add up to those of the passes."""

import itertools
from pathlib import Path

import pytest

from netsum.model_layers import layers_from_torch
from sim.errors import SettingError
from sim.experiments.models import load_model, write_model

pytest.importorskip("torch")

import torch


def net() -> "torch.nn.Module":
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Sequential(torch.nn.Linear(16, 4, bias=False))
    )


def test_layers_have_their_parameters_and_times_in_order() -> None:
    ticks = itertools.count()
    model = layers_from_torch(
        net(), (torch.ones(2, 8),), name="mine", repeats=2, clock_ns=lambda: next(ticks) * 1000
    )
    assert [(each.name, each.parameters) for each in model.layers] == [("0", 8 * 16 + 16), ("2.0", 16 * 4)]
    # By a clock that ticks whenever it is read. Forward: start, both layers, end; backward: weights of the last layer, then both
    # tensors of the first.
    assert [each.forward_ns for each in model.layers] == [2000, 1000]
    assert [each.backward_ns for each in model.layers] == [2000, 1000]


def test_a_measured_model_can_be_written_and_trained(tmp_path: Path) -> None:
    model = layers_from_torch(net(), (torch.ones(2, 8),))
    write_model(model, tmp_path / "model.json")
    assert load_model(str(tmp_path / "model.json")) == model
    assert model.forward_ns > 0
    assert model.backward_ns > 0


def test_hooks_are_gone_afterwards() -> None:
    module = net()
    layers_from_torch(module, (torch.ones(2, 8),), repeats=1)
    assert not module[0]._forward_pre_hooks
    assert not module[0].weight._post_accumulate_grad_hooks


def test_a_layer_without_gradients_is_named() -> None:
    module = net()
    with pytest.raises(SettingError, match="the layer 2.0 takes no part"):
        layers_from_torch(module, (torch.ones(2, 8),), loss=lambda output: module[0].weight.sum())
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(SettingError, match="no parameters that require gradients"):
        layers_from_torch(module, (torch.ones(2, 8),))
