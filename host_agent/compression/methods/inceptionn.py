"""INCEPTIONN: fixed point numbers of 0, 8 or 16 bits under an absolute error bound, and large values as they are."""

from typing import Annotated

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability
from host_agent.compression.packing import pack_bits, unpack_bits


class Inceptionn(Compressor):
    """Sends multiples of 2^−`bits` in as many bits as they need: a tag of two bits, then nothing, 8, 16 or 32 bits.

    Every error is at most 2^−`bits`. That decides between the widths; the implementation in GRACE decides by the exponent alone.

    `bits`: of the error bound, 1 to 30.
    """

    name = "inceptionn"
    family = "quantization"
    source = "Li, Park, Alian, Yuan, Qu, Pan, Wang, Schwing, Esmaeilzadeh, Kim, MICRO 2018"
    summability = Summability.NONE
    unbiased = False

    def __init__(self, bits: Annotated[int, "[1, 30]"] = 10) -> None:
        super().__init__()
        self.unit = 2.0**-bits

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        flat = tensor.reshape(-1)
        multiples = (flat / self.unit).trunc()
        magnitude = multiples.abs()
        tags = (magnitude > 0).to(torch.uint8) + (magnitude > 127) + (magnitude > 32767)
        return (
            pack_bits(tags, 2),
            multiples[tags == 1].to(torch.int8),
            multiples[tags == 2].to(torch.int16),
            flat[tags == 3],
        )

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        packed, narrow, wide, exact = payload
        tags = unpack_bits(packed, context.elements, 2)
        values = torch.zeros(context.elements, device=packed.device)
        values[tags == 1] = narrow.to(torch.float32) * self.unit
        values[tags == 2] = wide.to(torch.float32) * self.unit
        values[tags == 3] = exact
        return values.view(context.shape)
