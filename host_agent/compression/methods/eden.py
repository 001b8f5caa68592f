"""DRIVE and EDEN: quantization of a rotated tensor with a scale that makes the estimate unbiased."""

from typing import Literal

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability
from host_agent.compression.packing import bits_that_pack, in_blocks, pack_bits, unpack_bits
from host_agent.compression.rotation import on_grid, uniform_rotation

# Lloyd-Max centroids of the standard normal distribution, the positive half (Max, IRE Trans. Inf. Theory, 1960, table I).
_CENTROIDS: dict[int, tuple[float, ...]] = {
    1: (0.7978845608,),
    2: (0.4527800398, 1.5104176087),
    4: (0.1284, 0.3881, 0.6568, 0.9424, 1.2562, 1.6181, 2.0690, 2.7326),
}
_BLOCK = 128
"""Elements that are rotated together: a larger matrix takes longer to draw, a smaller one needs more scales."""


class EDEN(Compressor):
    """Rotates blocks of 128 elements, sends the nearest centroid of a normal distribution for each, and a block's scale.

    The scale ‖x‖² / ⟨R x, Q(R x)⟩ makes the estimate unbiased if the rotation R is uniformly distributed (theorem 2.1, and
    theorem 3 of DRIVE). The randomized Hadamard transform that the papers use in practice is not: it leaves up to 11 % of the
    energy of a tensor with two nonzero coordinates as bias. Each worker draws a rotation of its own, so errors average out.

    `bits`: for each coordinate; 1 is DRIVE.
    """

    name = "eden"
    family = "quantization"
    source = (
        "Vargaftik, Ben Basat, Portnoy, Mendelson, Ben-Itzhak, Mitzenmacher, ICML 2022; DRIVE: NeurIPS 2021"
    )
    summability = Summability.NONE
    unbiased = True

    def __init__(self, bits: Literal[1, 2, 4] = 2) -> None:
        super().__init__()
        self.bits = bits

    def omega(self, elements: int, workers: int = 1) -> float | None:
        """Return the limit for many coordinates, below which fewer stay: π/2 − 1 for 1 bit, 0.1336 for 2, 0.0097 for 4.

        It is 1 / (1 − distortion) − 1 with the distortion of the Lloyd-Max quantizer (theorem 2.3).
        """
        return {1: 0.5708, 2: 0.1336, 4: 0.0097}[self.bits]

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        blocks = in_blocks(tensor, min(_BLOCK, context.elements))
        largest = blocks.abs().amax(dim=1, keepdim=True)
        # Squares of the elements themselves may overflow; 128 multiples of 2^-24 times 2^-20 add exactly.
        unit = on_grid(torch.where(largest > 0, blocks / largest, 0.0), 2.0**24)
        rotated = unit @ uniform_rotation(blocks.shape[1], context.own_generator())
        energy = rotated.square().sum(dim=1, keepdim=True)
        normal = torch.where(energy > 0, rotated * (rotated.shape[1] / energy).sqrt(), 0.0)
        table = self._table(tensor.device)
        boundaries = (table[1:] + table[:-1]) / 2
        places = torch.bucketize(normal, boundaries)
        product = (rotated * table[places]).sum(dim=1, keepdim=True)
        scale = torch.where(product > 0, energy / product, 0.0) * largest
        return scale.to(torch.float32).view(-1), pack_bits(places.view(-1), bits_that_pack(table.numel()))

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        scale, packed = payload
        table = self._table(packed.device)
        size = min(_BLOCK, context.elements)
        places = unpack_bits(packed, scale.numel() * size, bits_that_pack(table.numel())).to(torch.int64)
        rotation = uniform_rotation(size, context.own_generator())
        blocks = (table[places].view(-1, size) @ rotation.T).to(torch.float32) * scale[:, None]
        return blocks.view(-1)[: context.elements].view(context.shape)

    def _table(self, device: torch.device) -> Tensor:
        half = on_grid(torch.tensor(_CENTROIDS[self.bits], device=device))
        return torch.cat([-half.flip(0), half])


class DRIVE(EDEN):
    """EDEN with one bit a coordinate."""

    name = "drive"
    source = "Vargaftik, Ben-Basat, Portnoy, Mendelson, Ben-Itzhak, Mitzenmacher, NeurIPS 2021"

    def __init__(self) -> None:
        super().__init__(bits=1)
