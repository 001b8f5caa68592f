"""QSGD: stochastic quantization of coordinates relative to the norm."""

import math
from typing import Annotated

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability
from host_agent.compression.packing import bits_that_pack, pack_bits, stochastic_round, unpack_bits


class QSGD(Compressor):
    """Sends ‖x‖ and, for each coordinate, a signed level of `levels`, rounded randomly.

    `levels`: s in the paper, 1 to 127.
    """

    name = "qsgd"
    family = "quantization"
    source = "Alistarh, Grubic, Li, Tomioka, Vojnovic, NeurIPS 2017, lemma 3.1"
    summability = Summability.NONE
    unbiased = True

    def __init__(self, levels: Annotated[int, "[1, 127]"] = 7) -> None:
        super().__init__()
        self.levels = levels
        self.bits = bits_that_pack(2 * levels + 1)

    def omega(self, elements: int, workers: int = 1) -> float:
        """Return min(d / s², √d / s)."""
        return min(elements / self.levels**2, math.sqrt(elements) / self.levels)

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        flat = tensor.reshape(-1)
        norm = torch.linalg.vector_norm(flat, dtype=torch.float64).to(torch.float32)
        scaled = torch.where(norm > 0, flat / norm, 0.0) * self.levels
        values = stochastic_round(scaled, context.own_generator()).clamp_(-self.levels, self.levels)
        return norm.view(1), pack_bits(values + self.levels, self.bits)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        norm, packed = payload
        values = unpack_bits(packed, context.elements, self.bits).to(torch.float32) - self.levels
        return (values * (norm / self.levels)).view(context.shape)
