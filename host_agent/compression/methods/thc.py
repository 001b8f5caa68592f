"""THC: uniform quantization after a rotation that all workers share, so that the integers can be added."""

import math
from typing import Annotated

import torch
from torch import Tensor

from host_agent.compression.compressor import Agreement, Compressor, Context, Payload, Summability
from host_agent.compression.packing import pack_lanes, stochastic_round, unpack_lanes
from host_agent.compression.rotation import padded_length, rotate, rotate_back


class THC(Compressor):
    """Uniform homomorphic quantization: rotate, clamp to a common range, round randomly to a uniform grid.

    The rotation makes the coordinates nearly normal with variance ‖x‖² / d, so the range follows from the largest norm of any
    worker, agreed on by a maximum of one number. Values beyond the range (a fraction `outside`) are clamped, which
    biases the result by less than that fraction; with memory ``residual`` it is repaired.

    `bits`: of a level with its sign, 2 to 8. `outside`: fraction of a normal distribution that the range leaves out (p in the
    paper).
    """

    name = "thc"
    family = "quantization"
    source = "Li, Basat, Vargaftik, Lao, Xu, Mitzenmacher, Yu, NSDI 2024, algorithm 2 (uniform)"
    summability = Summability.INTEGERS
    unbiased = False

    def __init__(
        self, bits: Annotated[int, "[2, 8]"] = 4, outside: Annotated[float, "(0, 1)"] = 1 / 32
    ) -> None:
        super().__init__()
        self.levels = (1 << (bits - 1)) - 1
        self.quantile = math.sqrt(2) * float(torch.erfinv(torch.tensor(1 - outside, dtype=torch.float64)))

    def agree(self, tensor: Tensor, context: Context) -> Agreement:
        return Agreement(
            torch.linalg.vector_norm(tensor, dtype=torch.float64).to(torch.float32).view(1), "max"
        )

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        rotated = rotate(tensor.reshape(-1), context.shared_generator())
        step = self._step(shared, context)
        scaled = torch.where(step > 0, rotated / step, 0.0).clamp(-self.levels, self.levels)
        values = stochastic_round(scaled, context.own_generator()).to(torch.int32)
        return (pack_lanes(values, self.levels, context.workers),)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        """Unpack, scale, rotate back: once for the sum of all workers."""
        length = padded_length(context.elements)
        sums = unpack_lanes(payload[0], length, self.levels, context.workers, count)
        rotated = sums.to(torch.float32) * self._step(shared, context)
        return rotate_back(rotated, context.elements, context.shared_generator()).view(context.shape)

    def _step(self, shared: Tensor | None, context: Context) -> Tensor:
        assert shared is not None
        return self.quantile * shared / (padded_length(context.elements) ** 0.5 * self.levels)
