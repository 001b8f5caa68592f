"""Common parts of compressors that send some coordinates: choosing, counting and restoring them."""

import torch
from torch import Tensor

from host_agent.compression.compressor import Context, fraction_of


def largest(values: Tensor, fraction: float) -> Tensor:
    """Return the indices of a share of flat values, those of largest magnitude: int64, unsorted."""
    return values.abs().topk(fraction_of(values.numel(), fraction), sorted=False).indices


def random_indices(fraction: float, context: Context, generator: torch.Generator) -> Tensor:
    """Return the indices of a share of a tensor's elements, chosen at random: int64."""
    count = fraction_of(context.elements, fraction)
    return torch.randperm(context.elements, generator=generator, device=context.device)[:count]


def scattered(values: Tensor, indices: Tensor, context: Context) -> Tensor:
    """Return a tensor of the context's shape, zero but for the values at these flat indices."""
    dense = torch.zeros(context.elements, device=values.device)
    dense[indices.to(torch.int64)] = values
    return dense.view(context.shape)
