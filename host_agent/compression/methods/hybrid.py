"""Sparsification and quantization together: random sparsification with integers that a switch adds."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from host_agent.compression.compressor import (
    Agreement,
    Compressor,
    Context,
    Payload,
    Summability,
    fraction_of,
)
from host_agent.compression.methods.block_float import BlockFloat
from host_agent.compression.methods.selection import random_indices, scattered
from host_agent.options import Fraction


class RandomBlockFloat(Compressor):
    """Quantizes the same k random coordinates at all workers to a few bits: integers that a switch adds.

    `fraction`: k / d. `bits`: see `BlockFloat`.
    """

    name = "random-block-float"
    family = "hybrid"
    source = "Wangni et al., NeurIPS 2018, with Alistarh et al., NeurIPS 2017; composition: Horváth et al., arXiv:1904.05115"
    use = "convex problems, with diana"
    summability = Summability.INTEGERS
    unbiased = True

    def __init__(self, fraction: Fraction = 0.1, bits: Literal[16, 8, 4, 2] = 8) -> None:
        super().__init__()
        self.fraction = fraction
        self.quantizer = BlockFloat(bits)

    def omega(self, elements: int, workers: int = 1) -> float:
        """Return (1 + ω₁)(1 + ω₂) − 1, as unbiased compressors compose."""
        count = fraction_of(elements, self.fraction)
        return elements / count * (1 + (self.quantizer.omega(count, workers) or 0.0)) - 1

    def agree(self, tensor: Tensor, context: Context) -> Agreement:
        selected = self._selected(tensor, context)
        return self.quantizer.agree(selected, _resized(context, selected.numel()))

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        selected = self._selected(tensor, context)
        return self.quantizer.compress(selected, shared, _resized(context, selected.numel()))

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        indices = random_indices(self.fraction, context, context.shared_generator())
        values = self.quantizer.decompress(payload, shared, _resized(context, indices.numel()), count)
        return scattered(values, indices, context)

    def _selected(self, tensor: Tensor, context: Context) -> Tensor:
        indices = random_indices(self.fraction, context, context.shared_generator())
        return tensor.reshape(-1)[indices] * (context.elements / indices.numel())


def _resized(context: Context, elements: int) -> Context:
    return replace(context, shape=torch.Size([elements]))
