"""Block floating point: integers of a few bits under an exponent that the workers share."""

import math
from typing import Literal

import torch
from torch import Tensor

from host_agent.compression.compressor import Agreement, Compressor, Context, Payload, Summability
from host_agent.compression.packing import in_blocks, pack_lanes, stochastic_round, unpack_lanes
from host_agent.options import Count


class BlockFloat(Compressor):
    """Quantizes blocks to signed integers of `bits` bits; the block's scale is the largest magnitude at any worker.

    The workers agree on the scales by a maximum, as the slots' own block floating point does. Rounding is stochastic, so it is
    unbiased, or to the nearest.

    `bits`: with the sign; 2 bits are ternary. `block`: elements under one scale. `stochastic`: False rounds to the nearest and
    is biased.
    """

    name = "block-float"
    family = "quantization"
    source = "Sapio et al., NSDI 2021, section 3.7; Drumond et al., NeurIPS 2018"
    use = "first choice: 8 bits for gradients, 4 for outer gradients"
    summability = Summability.INTEGERS
    unbiased = True

    def __init__(self, bits: Literal[16, 8, 4, 2] = 8, block: Count = 256, stochastic: bool = True) -> None:
        super().__init__()
        self.levels = (1 << (bits - 1)) - 1
        self.block = block
        self.stochastic = stochastic
        if not stochastic:
            self.unbiased = False

    def omega(self, elements: int, workers: int = 1) -> float | None:
        """Return a bound for the b elements of all workers under one scale: Σ |x| s ≤ √b ‖x‖² / L, and ≤ b s²/4 if less."""
        if not self.stochastic:
            return None
        block = min(self.block, elements) * workers
        return min(math.sqrt(block) / self.levels, block / (4.0 * self.levels**2))

    def delta(self, elements: int, workers: int = 1) -> float | None:
        """Nearest: each error is at most half a level and at most the value itself."""
        if self.stochastic:
            return None
        block = min(self.block, elements) * workers
        # The block's largest value is a level itself, so it is exact and carries at least 1 / block of the energy.
        return max(1.0 / block, 1.0 - (block - 1) / (4.0 * self.levels**2))

    def agree(self, tensor: Tensor, context: Context) -> Agreement:
        return Agreement(self.in_rows(tensor).abs().amax(dim=1), "max")

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        assert shared is not None
        scale = shared[:, None]
        # Divided first: levels / scale overflows or is subnormal at the ends of float32's range.
        scaled = torch.where(scale > 0, self.in_rows(tensor) / scale, 0.0) * self.levels
        rounded = stochastic_round(scaled, context.own_generator()) if self.stochastic else scaled.round()
        values = rounded.clamp(-self.levels, self.levels).to(torch.int32).view(-1)[: context.elements]
        return (pack_lanes(values, self.levels, context.workers),)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        assert shared is not None
        sums = unpack_lanes(payload[0], context.elements, self.levels, context.workers, count)
        values = self.in_rows(sums.to(torch.float32)) * (shared / self.levels)[:, None]
        return values.view(-1)[: context.elements].view(context.shape)

    def in_rows(self, tensor: Tensor) -> Tensor:
        """Return a tensor's elements, a block in each row."""
        return in_blocks(tensor, self.block)
