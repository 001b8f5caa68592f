"""Random sparsification: k random coordinates, scaled up so that the estimate is unbiased."""

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability, fraction_of
from host_agent.compression.methods.selection import random_indices, scattered
from host_agent.options import Fraction


class RandomK(Compressor):
    """Sends the same k random coordinates at all workers: a dense sum of k values.

    `fraction`: k / d. `scaled`: multiply by d / k, which makes it unbiased. Without, it is a contraction, as memory
    ``residual`` wants it.
    """

    name = "random-k"
    family = "sparsification"
    source = "Wangni, Wang, Liu, Zhang, NeurIPS 2018; Stich, Cordonnier, Jaggi, NeurIPS 2018"
    summability = Summability.FLOATS
    unbiased = True

    def __init__(self, fraction: Fraction = 0.01, scaled: bool = True) -> None:
        super().__init__()
        self.fraction, self.scaled = fraction, scaled
        if not scaled:
            self.unbiased = False

    def omega(self, elements: int, workers: int = 1) -> float | None:
        """Return d / k − 1."""
        return elements / fraction_of(elements, self.fraction) - 1 if self.scaled else None

    def delta(self, elements: int, workers: int = 1) -> float | None:
        """Return k / d."""
        return None if self.scaled else fraction_of(elements, self.fraction) / elements

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        indices = random_indices(self.fraction, context, self._generator(context))
        values = tensor.reshape(-1)[indices]
        return (values * (context.elements / indices.numel()) if self.scaled else values,)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        indices = random_indices(self.fraction, context, self._generator(context))
        return scattered(payload[0], indices, context)

    def _generator(self, context: Context) -> torch.Generator:
        return context.shared_generator()


class RandomKIndependent(RandomK):
    """Sends k random coordinates of each worker's own: the receivers know them by the sender's seed, so no index travels."""

    name = "random-k-independent"
    summability = Summability.NONE

    def _generator(self, context: Context) -> torch.Generator:
        return context.own_generator()
