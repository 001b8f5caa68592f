"""TernGrad: three levels under a scale that the workers share."""

import math
from typing import Annotated

import torch
from torch import Tensor

from host_agent.compression.compressor import Agreement, Compressor, Context, Payload, Summability
from host_agent.compression.packing import pack_lanes, stochastic_round, unpack_lanes


class TernGrad(Compressor):
    """Sends sign(x) with probability |x| / s, else 0; s is the largest magnitude at any worker.

    Parameters
    ----------
    clip : float, optional
        Clip at this many standard deviations first, as section 4.3 does with 2.5; this makes it biased. The mean is taken as 0,
        or a tensor of equal values would be clipped to zeros.
    """

    name = "terngrad"
    family = "quantization"
    source = "Wen et al., NeurIPS 2017"
    summability = Summability.INTEGERS
    unbiased = True

    def __init__(self, clip: Annotated[float, "(0, ∞)"] | None = None) -> None:
        super().__init__()
        self.clip = clip
        if clip is not None:
            self.unbiased = False

    def omega(self, elements: int, workers: int = 1) -> float | None:
        """Return a bound for the d elements of all workers: ‖x‖₁ ‖x‖∞ − ‖x‖² ≤ (√d + 1) / 2 · ‖x‖² − ‖x‖²."""
        return None if self.clip is not None else max(0.0, (math.sqrt(elements * workers) + 1) / 2 - 1)

    def agree(self, tensor: Tensor, context: Context) -> Agreement:
        """Return the largest magnitude, to be maximized."""
        return Agreement(self._clipped(tensor).abs().amax().view(1), "max")

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        """Round and pack."""
        assert shared is not None
        scaled = torch.where(shared > 0, self._clipped(tensor).reshape(-1) / shared, 0.0)
        values = stochastic_round(scaled, context.own_generator()).clamp_(-1, 1).to(torch.int32)
        return (pack_lanes(values, 1, context.workers),)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        """Unpack and scale."""
        assert shared is not None
        values = unpack_lanes(payload[0], context.elements, 1, context.workers, count)
        return (values * shared).view(context.shape)

    def _clipped(self, tensor: Tensor) -> Tensor:
        if self.clip is None:
            return tensor
        limit = self.clip * float(tensor.double().square().mean().sqrt())
        return tensor.clamp(-limit, limit)
