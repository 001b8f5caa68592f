"""Methods that send one bit an element: votes of signs, scaled signs, and 1-bit SGD's two means."""

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability, one_coordinate
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

    delta = one_coordinate  # For a given tensor it is ‖x‖₁² / (d ‖x‖²).

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        return tensor.abs().mean(dtype=torch.float64).to(torch.float32).view(1), pack_bits(
            tensor.reshape(-1) >= 0, 1
        )

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        scale, packed = payload
        positive = unpack_bits(packed, context.elements, 1).to(torch.bool)
        return torch.where(positive, scale, -scale).view(context.shape)


class OneBit(Compressor):
    """1-bit SGD: the mean of the values that are not negative, and the mean of the others; meant for memory ``residual``."""

    name = "onebit"
    family = "quantization"
    source = "Seide, Fu, Droppo, Li, Yu, Interspeech 2014, section 3.1"
    summability = Summability.NONE
    unbiased = False

    delta = one_coordinate  # The two means remove at least as much energy as one scale does.

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        flat = tensor.reshape(-1)
        upper = flat >= 0
        above = torch.where(upper, flat, 0.0).sum(dtype=torch.float64) / upper.sum().clamp(min=1)
        below = torch.where(upper, 0.0, flat).sum(dtype=torch.float64) / (~upper).sum().clamp(min=1)
        return torch.stack([above, below]).to(torch.float32), pack_bits(upper, 1)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        means, packed = payload
        upper = unpack_bits(packed, context.elements, 1).to(torch.bool)
        return torch.where(upper, means[0], means[1]).view(context.shape)
