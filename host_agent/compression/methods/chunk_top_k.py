"""SparseLoCo's compression: the largest coordinates of every chunk in 2 bits, gathered, or added at positions agreed on."""

import torch
from torch import Tensor

from host_agent.compression.compressor import (
    Agreement,
    Compressor,
    Context,
    Payload,
    Summability,
    fraction_of,
)
from host_agent.compression.packing import (
    bits_that_pack,
    in_blocks,
    pack_bits,
    pack_lanes,
    unpack_bits,
    unpack_lanes,
)
from host_agent.options import Count, Fraction


class ChunkTopK(Compressor):
    """Sends the largest coordinates of each chunk: a sign, one of two magnitudes, and a position in the chunk.

    The magnitudes of a chunk are the means of those above and of those below their mean. Meant for memory ``residual``. A
    position in a chunk of 4,096 takes 12 bits.

    `fraction`: of a chunk's coordinates. `chunk`: elements.
    """

    name = "chunk-top-k"
    family = "hybrid"
    source = "Sarfi et al. (SparseLoCo), arXiv:2508.15706"
    use = "outer gradients on the slowest links, up to about ten workers"
    summability = Summability.NONE
    unbiased = False

    def __init__(self, fraction: Fraction = 1 / 64, chunk: Count = 4096) -> None:
        super().__init__()
        self.fraction, self.chunk = fraction, chunk

    def delta(self, elements: int, workers: int = 1) -> float | None:
        """Return 1 / d of a chunk: means of k magnitudes keep 1 / k of their energy, which is k / d of all; less bfloat16's."""
        return (1 - 2.0**-16) / max(1, min(self.chunk, elements))

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        values, places = self._largest(tensor)
        magnitudes = values.abs()
        high = magnitudes > magnitudes.mean(1, keepdim=True)
        means = [
            (magnitudes * part).sum(1) / part.sum(1).clamp(min=1) for part in (~high, high)
        ]  # Also where a part is empty.
        codes = 2 * (values < 0).to(torch.uint8) + high
        return torch.stack(means, 1).to(torch.bfloat16), *self._packed(places), pack_bits(codes.view(-1), 2)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        means, *packed, codes = payload
        places = self._unpacked(packed, context)
        code = unpack_bits(codes, places.numel(), 2).to(torch.int64).view_as(places)
        values = means.to(torch.float32).view(-1, 2).gather(1, code & 1) * (1 - (code & 2))
        return self._scattered(values, places, context)

    def _size(self, elements: int) -> int:
        return min(self.chunk, elements)

    def _largest(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values (chunks, k) of largest magnitude, and their places in the chunks."""
        rows = in_blocks(tensor, self._size(tensor.numel()))
        places = rows.abs().topk(fraction_of(rows.shape[1], self.fraction), 1, sorted=False).indices
        return rows.gather(1, places), places

    def _packed(self, places: Tensor) -> Payload:
        """Return the low bytes of places, and the other bits of them as far as a chunk needs some."""
        flat = places.view(-1)
        above = self._bits_above()
        return (flat & 255).to(torch.uint8), *([pack_bits(flat >> 8, above)] if above else [])

    def _unpacked(self, packed: list[Tensor], context: Context) -> Tensor:
        places = packed[0].to(torch.int64)
        if above := self._bits_above():
            places += unpack_bits(packed[1], places.numel(), above).to(torch.int64) << 8
        return places.view(-1, fraction_of(self._size(context.elements), self.fraction))

    def _bits_above(self) -> int:
        return bits_that_pack(-(-self.chunk // 256)) if self.chunk > 256 else 0

    def _scattered(self, values: Tensor, places: Tensor, context: Context) -> Tensor:
        rows = torch.zeros(places.shape[0], self._size(context.elements), device=values.device)
        return rows.scatter_(1, places, values).view(-1)[: context.elements].view(context.shape)


class AgreedChunkTopK(ChunkTopK):
    """Sends −1, 0 or 1 at the coordinates of each chunk that one worker finds largest, another one in each step.

    That worker broadcasts their places and the mean of their magnitudes, which the integers are multiples of: a switch adds
    them, and a worker receives the sum once. Meant for memory ``residual``.
    """

    name = "agreed-chunk-top-k"
    source = "Sarfi et al. (SparseLoCo), arXiv:2508.15706; Chen et al. (ScaleCom), NeurIPS 2020"
    use = "outer gradients on the slowest links, many workers"
    summability = Summability.INTEGERS

    def delta(self, elements: int, workers: int = 1) -> float | None:
        """Return none: coordinates that are large at another worker may all be left out."""
        return None

    def agree(self, tensor: Tensor, context: Context) -> Agreement:
        values, places = self._largest(tensor)
        scales = values.abs().mean(1).view(torch.uint8)
        return Agreement(
            torch.cat([scales, *self._packed(places)]), "broadcast", context.step % context.workers
        )

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        scales, places = self._agreed(shared, context)
        values = in_blocks(tensor, self._size(context.elements)).gather(1, places)
        levels = torch.where(scales > 0, values / scales, 0.0).round().clamp(-1, 1).to(torch.int32)
        return (pack_lanes(levels.view(-1), 1, context.workers),)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        scales, places = self._agreed(shared, context)
        sums = unpack_lanes(payload[0], places.numel(), 1, context.workers, count).view_as(places)
        return self._scattered(sums * scales, places, context)

    def _agreed(self, shared: Tensor | None, context: Context) -> tuple[Tensor, Tensor]:
        """Return the scale of each chunk (chunks, 1), and the places (chunks, k)."""
        assert shared is not None
        size = self._size(context.elements)
        chunks = -(-context.elements // size)
        count = chunks * fraction_of(size, self.fraction)
        scales, low, above = shared.split([4 * chunks, count, shared.numel() - 4 * chunks - count])
        return scales.clone().view(torch.float32)[:, None], self._unpacked([low, above], context)
