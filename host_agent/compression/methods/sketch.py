"""Count-sketch: a linear compressor, whose largest coordinates are found in the sum of all workers' sketches."""

from dataclasses import replace

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability, fraction_of
from host_agent.compression.methods.selection import largest, scattered
from host_agent.options import Count, Fraction, require


class CountSketch(Compressor):
    """Adds each coordinate with a random sign to one bucket in each of several rows; estimates by the median of the rows.

    The result is the estimate of the k largest coordinates of the sum, of past sketches too: coordinates that were not in a
    result stay in a sketch that is the same at all workers. Buckets of coordinates in the result are cleared instead of
    reduced, which the paper found more stable (section 5). Decompressing is not linear, sketching is.

    `rows`: odd, for the median. `fraction`: buckets of all rows together, relative to the number of elements. `keep`: k / d,
    at most the buckets of one row.
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
        self._next_error: dict[str, Tensor] = {}

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        buckets, signs = self._hashes(context)
        flat = tensor.reshape(-1)
        table = torch.zeros(self.rows, self._columns(context.elements), device=flat.device)
        return (table.scatter_add_(1, buckets, signs * flat),)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        """Return the estimates of the largest coordinates, zeros elsewhere."""
        buckets, signs = self._hashes(context)
        error = self.state.get(context.key, {}).get("error")
        table = payload[0]
        if count == context.workers and error is not None and error.shape == table.shape:
            table = table + error
        estimates = (table.gather(1, buckets) * signs).median(dim=0).values
        # A median may be finite where a bucket is not.
        estimates = torch.where(torch.isfinite(table).all(), estimates, torch.nan)
        kept = largest(estimates, self.keep)
        if count == context.workers:
            self._next_error[context.key] = table.scatter(1, buckets[:, kept], 0.0)
        return scattered(estimates[kept], kept, context)

    def reduced(self, mean: Tensor, context: Context) -> None:
        """Keep the sketch of the coordinates outside the result, now that the step is known to be finite."""
        self.state[context.key] = {"error": self._next_error.pop(context.key)}

    def _columns(self, elements: int) -> int:
        return fraction_of(elements, self.fraction / self.rows)

    def _hashes(self, context: Context) -> tuple[Tensor, Tensor]:
        # The same in all steps, so that their sketches can be added.
        generator = replace(context, step=0).shared_generator()
        shape = (self.rows, context.elements)
        columns = self._columns(context.elements)
        buckets = torch.randint(0, columns, shape, generator=generator, device=context.device)
        signs = torch.randint(0, 2, shape, generator=generator, device=context.device, dtype=torch.int8)
        return buckets, (2 * signs - 1).to(torch.float32)
