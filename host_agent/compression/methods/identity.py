"""No compression, and narrower floats: the baselines of every comparison."""

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability


class Identity(Compressor):
    """Sends the tensor uncompressed, to show the cost of the framework itself."""

    name = "identity"
    family = "identity"
    source = ""
    use = "the cost of the hook alone"
    summability = Summability.FLOATS
    unbiased = True

    def omega(self, elements: int, workers: int = 1) -> float:
        """Nothing is lost."""
        return 0.0

    def delta(self, elements: int, workers: int = 1) -> float:
        """Nothing is lost."""
        return 1.0

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        return (tensor,)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        return payload[0]


class BFloat16(Compressor):
    """Rounds to bfloat16 and gathers: half the bytes, 8 significant bits."""

    name = "bfloat16"
    family = "quantization"
    source = "Kalamkar et al., arXiv:1905.12322"
    summability = Summability.NONE
    unbiased = False

    def delta(self, elements: int, workers: int = 1) -> float:
        """Return 1 − 2⁻¹⁶: a rounding error is at most 2⁻⁸ of a normal value."""
        return 1.0 - 2.0**-16

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        return (tensor.to(torch.bfloat16).reshape(-1),)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        return payload[0].to(torch.float32).view(context.shape)
