"""DRIVE and EDEN: quantization of a rotated tensor with a scale that makes the estimate unbiased."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability, require
from host_agent.compression.packing import bits_that_pack, pack_bits, unpack_bits
from host_agent.compression.rotation import padded_length, rotate, rotate_back

# Lloyd-Max centroids of the standard normal distribution, the positive half (Max, IRE Trans. Inf. Theory, 1960, table I).
_CENTROIDS: dict[int, tuple[float, ...]] = {
    1: (0.7978845608,),
    2: (0.4527800398, 1.5104176087),
    4: (0.1284, 0.3881, 0.6568, 0.9424, 1.2562, 1.6181, 2.0690, 2.7326),
}


class EDEN(Compressor):
    """Rotates, sends the nearest centroid of a normal distribution for each coordinate, and one scale.

    The scale ‖x‖² / ⟨R x, Q(R x)⟩ makes the estimate unbiased over rotations (theorem 2.1; exactly for uniform random
    rotations, nearly for the randomized Hadamard transform used here). Each worker has a rotation of its own, so errors
    average out.

    Parameters
    ----------
    bits : {1, 2, 4}
        For each coordinate; 1 is DRIVE.
    """

    name = "eden"
    family = "quantization"
    source = (
        "Vargaftik, Ben Basat, Portnoy, Mendelson, Ben-Itzhak, Mitzenmacher, ICML 2022; DRIVE: NeurIPS 2021"
    )
    summability = Summability.NONE
    unbiased = True

    def __init__(self, bits: int = 2) -> None:
        super().__init__()
        require(bits in _CENTROIDS, f"bits must be 1, 2 or 4, got {bits}")
        self.bits = bits

    def omega(self, elements: int) -> float | None:
        """Return the limit for many coordinates, with a margin for few: π/2 − 1 for 1 bit, 0.1336 for 2, 0.0097 for 4.

        It is 1 / (1 − distortion) − 1 with the distortion of the Lloyd-Max quantizer (theorem 2.3).
        """
        limit = {1: 0.5708, 2: 0.1336, 4: 0.0097}[self.bits]
        return limit * (1 + 8 / math.sqrt(max(1, elements))) + 1 / max(1, elements)

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        """Rotate, quantize, pack."""
        rotated = rotate(tensor.reshape(-1), context.own_generator())
        energy = rotated.square().sum()
        normal = torch.where(energy > 0, rotated * (rotated.numel() ** 0.5 / energy.sqrt()), 0.0)
        table = self._table(tensor.device)
        boundaries = (table[1:] + table[:-1]) / 2
        places = torch.bucketize(normal, boundaries)
        product = (rotated * table[places]).sum()
        scale = torch.where(product > 0, energy / product, 0.0)
        return scale.view(1), pack_bits(places, bits_that_pack(table.numel()))

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        """Look up the centroids, rotate back."""
        scale, packed = payload
        table = self._table(packed.device)
        places = unpack_bits(packed, padded_length(context.elements), bits_that_pack(table.numel()))
        rotated = table[places.to(torch.int64)] * scale
        return rotate_back(rotated, context.elements, context.own_generator()).view(context.shape)

    def _table(self, device: torch.device) -> Tensor:
        half = torch.tensor(_CENTROIDS[self.bits], device=device)
        return torch.cat([-half.flip(0), half])


class DRIVE(EDEN):
    """EDEN with one bit a coordinate."""

    name = "drive"
    source = "Vargaftik, Ben-Basat, Portnoy, Mendelson, Ben-Itzhak, Mitzenmacher, NeurIPS 2021"

    def __init__(self) -> None:
        super().__init__(bits=1)
