"""Natural compression: random rounding to powers of two."""

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability
from host_agent.compression.packing import pack_bits, unpack_bits

_BIAS = 127


class Natural(Compressor):
    """Rounds each magnitude to one of the two neighbouring powers of two; 9 bits an element: the sign and the exponent.

    Magnitudes below 2⁻¹²⁶ are rounded to 0 or 2⁻¹²⁶ in the same way.
    """

    name = "natural"
    family = "quantization"
    source = "Horváth, Ho, Horváth, Sahu, Canini, Richtárik, arXiv:1905.10988, theorem 1"
    summability = Summability.NONE
    unbiased = True

    def omega(self, elements: int, workers: int = 1) -> float:
        """Return 1/8, for any number of elements."""
        return 0.125

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        flat = tensor.reshape(-1)
        magnitude = flat.abs()
        fraction, exponent = torch.frexp(magnitude)  # magnitude = fraction · 2^exponent, fraction in [0.5, 1)
        dice = torch.rand(flat.shape, generator=context.own_generator(), device=flat.device)
        # Between 2^(exponent − 1) and 2^exponent: up with probability 2 · fraction − 1. 2^128 comes out as infinity.
        rounded = exponent - 1 + (dice < 2 * fraction - 1).to(exponent.dtype)
        smallest = 2.0**-126
        tiny = magnitude < smallest
        rounded = torch.where(tiny, torch.where(dice < magnitude / smallest, -126, -_BIAS), rounded)
        return (rounded + _BIAS).to(torch.uint8), pack_bits(flat < 0, 1)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        exponents, signs = payload
        magnitude = torch.ldexp(
            torch.ones((), device=exponents.device), exponents.to(torch.float32) - _BIAS
        ) * (exponents > 0)
        negative = unpack_bits(signs, context.elements, 1).to(torch.bool)
        return torch.where(negative, -magnitude, magnitude).view(context.shape)
