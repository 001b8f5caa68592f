"""TernGrad: three levels under a scale that the workers share."""

import math
from typing import Annotated

from torch import Tensor

from host_agent.compression.compressor import COMPARISON, Agreement, Context, Payload
from host_agent.compression.methods.block_float import BlockFloat


class TernGrad(BlockFloat):
    """Sends sign(x) with probability |x| / s, else 0; s is the largest magnitude at any worker.

    `clip`: clip at this many standard deviations first, as section 4.3 does with 2.5; this makes it biased. The mean is taken
    as 0, or a tensor of equal values would be clipped to zeros.
    """

    name = "terngrad"
    source = "Wen et al., NeurIPS 2017"
    use = COMPARISON

    def __init__(self, clip: Annotated[float, "(0, ∞)"] | None = None) -> None:
        super().__init__(bits=2)
        self.clip = clip
        if clip is not None:
            self.unbiased = False

    def omega(self, elements: int, workers: int = 1) -> float | None:
        """Return a bound for the d elements of all workers: ‖x‖₁ ‖x‖∞ − ‖x‖² ≤ (√d + 1) / 2 · ‖x‖² − ‖x‖²."""
        return None if self.clip is not None else max(0.0, (math.sqrt(elements * workers) + 1) / 2 - 1)

    def agree(self, tensor: Tensor, context: Context) -> Agreement:
        return super().agree(self._clipped(tensor), context)

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        return super().compress(self._clipped(tensor), shared, context)

    def in_rows(self, tensor: Tensor) -> Tensor:
        """All elements are one block."""
        return tensor.reshape(1, -1)

    def _clipped(self, tensor: Tensor) -> Tensor:
        if self.clip is None:
            return tensor
        limit = self.clip * float(tensor.double().square().mean().sqrt())
        return tensor.clamp(-limit, limit)
