"""8-bit approximation: a sign, a decimal exponent in unary, and as many bits of a fraction as are left."""

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability, one_coordinate

_EXPONENTS = 7


class EightBit(Compressor):
    """Dynamic tree quantization: large values have six bits of precision, small ones reach down to 10⁻⁷ of the largest.

    Seven bits are an exponent e, as e zeros and a one, and a fraction of 6 − e bits: the middles of 2^(6−e) equal parts of
    [0.1, 1], times 10⁻ᵉ. All zeros are 0. Each value becomes the nearest of these times a scale, under which the largest
    magnitude of the tensor is exact.
    """

    name = "eight-bit"
    family = "quantization"
    source = "Dettmers, 8-Bit Approximations for Parallelism in Deep Learning, ICLR 2016"
    summability = Summability.NONE
    unbiased = False

    delta = one_coordinate  # The largest coordinate is exact, and 0 can be sent, so no error is larger than its value.

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        flat = tensor.reshape(-1)
        table = _magnitudes(flat.device)
        largest = flat.abs().amax()
        scaled = torch.where(largest > 0, flat.abs() / largest, 0.0) * table[-1]
        places = torch.bucketize(scaled, (table[1:] + table[:-1]) / 2)
        return largest.view(1), (places * flat.sign()).to(torch.int8)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        largest, signed = payload
        table = _magnitudes(signed.device)
        return (table[signed.abs().to(torch.int64)] / table[-1] * signed.sign() * largest).view(context.shape)


def _magnitudes(device: torch.device) -> Tensor:
    """Return the 128 magnitudes, in ascending order."""
    parts = [torch.zeros(1, device=device)]
    for exponent in reversed(range(_EXPONENTS)):
        edges = torch.linspace(0.1, 1.0, 2 ** (_EXPONENTS - 1 - exponent) + 1, device=device)
        parts.append((edges[1:] + edges[:-1]) / 2 * 10.0**-exponent)
    return torch.cat(parts)
