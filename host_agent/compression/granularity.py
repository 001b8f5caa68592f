"""Granularities: which tensors are compressed together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Granularity = Literal["layer", "bucket", "model"]


@dataclass(frozen=True)
class Unit:
    """A unit of compression: some of the named tensors, or a block of one."""

    key: str  # The same in all steps, also after DDP has rebuilt its buckets.
    names: tuple[str, ...]  # The tensors in it, in the order of the model's parameters.
    # start, stop: a range of elements of the only tensor; None for all.
    start: int | None = None
    stop: int | None = None


def units(sizes: Sequence[tuple[str, int]], granularity: Granularity, block: int | None = None) -> list[Unit]:
    """Divide named tensors into units of compression.

    `sizes`: names and numbers of elements, of a bucket or of a whole model. `granularity`: a layer is one parameter tensor.
    For "bucket" and "model" all tensors make one unit. `block`: with "layer": no unit has more elements than that.
    """
    if granularity != "layer":
        names = tuple(name for name, _ in sizes)
        return [Unit("model" if granularity == "model" else f"{names[0]}…{names[-1]}", names)]
    if block is None:
        return [Unit(name, (name,)) for name, _ in sizes]
    return [
        Unit(f"{name}[{start}:]", (name,), start, min(start + block, size))
        for name, size in sizes
        for start in range(0, size, block)
    ]


def gathered(unit: Unit, tensors: dict[str, Tensor]) -> Tensor:
    """Return the tensor of a unit: a layer in its own shape, several layers or a block as one dimension."""
    if len(unit.names) > 1:
        return torch.cat([tensors[name].reshape(-1) for name in unit.names])
    tensor = tensors[unit.names[0]]
    return tensor if unit.start is None else tensor.reshape(-1)[unit.start : unit.stop]


def scattered(unit: Unit, reduced: Tensor, tensors: dict[str, Tensor]) -> None:
    """Write a unit's result back into its tensors."""
    if len(unit.names) == 1:
        tensor = tensors[unit.names[0]]
        (tensor if unit.start is None else tensor.view(-1)[unit.start : unit.stop]).copy_(reduced)
        return
    parts = reduced.split([tensors[name].numel() for name in unit.names])
    for name, part in zip(unit.names, parts, strict=True):
        tensors[name].copy_(part.view_as(tensors[name]))
