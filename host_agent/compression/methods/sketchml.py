"""SketchML's quantization: buckets that hold equally many values, each sent as the number of its bucket."""

from typing import Annotated

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability, one_coordinate
from host_agent.compression.packing import bits_that_pack, pack_bits, unpack_bits


class SketchML(Compressor):
    """Divides positive and negative values by their quantiles, and sends the mean of each bucket and the buckets' numbers.

    The quantiles are exact. The paper's treatment of sparse gradients is left out: a hash table of bucket numbers
    (MinMaxSketch) and coded differences of the indices.

    `buckets`: for each sign, 1 to 127.
    """

    name = "sketchml"
    family = "quantization"
    source = "Jiang, Fu, Yang, Cui, SIGMOD 2018 (quantile buckets)"
    summability = Summability.NONE
    unbiased = False

    def __init__(self, buckets: Annotated[int, "[1, 127]"] = 127) -> None:
        super().__init__()
        self.buckets = buckets

    delta = one_coordinate  # No bucket has values of both signs, so the means keep at least ‖x‖₁² / d of the energy.

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        """Rank the values of each sign, and average each bucket. Number 0 is for zeros."""
        flat = tensor.reshape(-1)
        numbers = torch.zeros(flat.numel(), dtype=torch.int64, device=flat.device)
        for first, places in ((1, (flat > 0).nonzero()), (1 + self.buckets, (flat < 0).nonzero())):
            places = places.view(-1)[flat[places.view(-1)].argsort()]
            ranks = torch.arange(places.numel(), device=flat.device)
            numbers[places] = first + ranks * self.buckets // max(1, places.numel())
        sums = torch.zeros(1 + 2 * self.buckets, dtype=torch.float64, device=flat.device)
        counts = torch.zeros_like(sums).index_add_(0, numbers, torch.ones_like(flat, dtype=torch.float64))
        means = sums.index_add_(0, numbers, flat.double()) / counts.clamp(min=1)
        return means.to(torch.float32), pack_bits(numbers, bits_that_pack(means.numel()))

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        means, packed = payload
        numbers = unpack_bits(packed, context.elements, bits_that_pack(means.numel()))
        return means[numbers.to(torch.int64)].view(context.shape)
