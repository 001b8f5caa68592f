"""Methods that send one bit an element: votes of signs, and scaled signs."""

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability
from host_agent.compression.packing import pack_bits, pack_lanes, unpack_bits, unpack_lanes


class SignVote(Compressor):
    """SignSGD with majority vote: the sum of the signs is added by the switch, and its sign is the result.

    With memory ``average`` this is Signum. A tie gives 0.
    """

    name = "sign-vote"
    family = "quantization"
    source = "Bernstein, Wang, Azizzadenesheli, Anandkumar, ICML 2018; with momentum ICLR 2019"
    summability = Summability.INTEGERS
    unbiased = False
    linear = False

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        return (pack_lanes(tensor.reshape(-1).sign().to(torch.int32), 1, context.workers),)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        """Return `count` times the sign of the sum, so that the mean is the vote."""
        votes = unpack_lanes(payload[0], context.elements, 1, context.workers, count)
        return (votes.sign() * count).to(torch.float32).view(context.shape)


class ScaledSign(Compressor):
    """Sends sign(x) and ‖x‖₁ / d; with memory ``residual`` this is EF-SignSGD."""

    name = "scaled-sign"
    family = "quantization"
    source = "Karimireddy, Rebjock, Stich, Jaggi, ICML 2019, algorithm 1"
    summability = Summability.NONE
    unbiased = False

    def delta(self, elements: int, workers: int = 1) -> float:
        """Return 1 / d; for a given tensor it is ‖x‖₁² / (d ‖x‖²)."""
        return 1.0 / max(1, elements)

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        return tensor.abs().mean(dtype=torch.float64).to(torch.float32).view(1), pack_bits(
            tensor.reshape(-1) >= 0, 1
        )

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        scale, packed = payload
        positive = unpack_bits(packed, context.elements, 1).to(torch.bool)
        return torch.where(positive, scale, -scale).view(context.shape)
