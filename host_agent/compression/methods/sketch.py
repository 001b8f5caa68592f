"""Count-sketch: a linear compressor, whose largest coordinates are found in the sum of all workers' sketches."""

from __future__ import annotations

import torch
from torch import Tensor

from host_agent.compression.compressor import (
    Compressor,
    Context,
    Payload,
    Summability,
    fraction_of,
)
from host_agent.options import Count, Fraction, require


class CountSketch(Compressor):
    """Adds each coordinate with a random sign to one bucket in each of several rows; estimates by the median of the rows.

    The estimate of the sum is that of its k largest coordinates. Decompressing is not linear, sketching is.

    Parameters
    ----------
    rows : int
        Odd, for the median.
    fraction : float
        Buckets of all rows together, relative to the number of elements.
    keep : float
        k / d, at most the buckets of one row.
    """

    name = "count-sketch"
    family = "hybrid"
    source = "Rothchild et al. (FetchSGD), ICML 2020; Charikar, Chen, Farach-Colton, ICALP 2002"
    summability = Summability.FLOATS
    unbiased = False
    linear = False

    def __init__(self, rows: Count = 5, fraction: Fraction = 0.2, keep: Fraction = 0.01) -> None:
        super().__init__()
        require(rows % 2 == 1, f"count-sketch: rows must be odd, got {rows}")
        self.rows, self.fraction, self.keep = rows, fraction, keep

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        """Sketch."""
        buckets, signs = self._hashes(context)
        flat = tensor.reshape(-1)
        table = torch.zeros(self.rows, self._columns(context.elements), device=flat.device)
        return (table.scatter_add_(1, buckets, signs * flat),)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        """Return the estimates of the largest coordinates, zeros elsewhere."""
        buckets, signs = self._hashes(context)
        estimates = (payload[0].gather(1, buckets) * signs).median(dim=0).values
        kept = estimates.abs().topk(fraction_of(context.elements, self.keep), sorted=False).indices
        dense = torch.zeros_like(estimates)
        dense[kept] = estimates[kept]
        return dense.view(context.shape)

    def _columns(self, elements: int) -> int:
        return fraction_of(elements, self.fraction / self.rows)

    def _hashes(self, context: Context) -> tuple[Tensor, Tensor]:
        generator = context.shared_generator()
        shape = (self.rows, context.elements)
        columns = self._columns(context.elements)
        buckets = torch.randint(0, columns, shape, generator=generator, device=context.device)
        signs = torch.randint(0, 2, shape, generator=generator, device=context.device, dtype=torch.int8)
        return buckets, (2 * signs - 1).to(torch.float32)
