"""Sparsification by magnitude: the largest coordinates."""

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
from host_agent.compression.methods.selection import largest, scattered
from host_agent.options import Fraction, Natural


class TopK(Compressor):
    """Sends the k coordinates of largest magnitude with their indices; meant for memory ``residual``.

    `fraction`: k / d.
    """

    name = "top-k"
    family = "sparsification"
    source = "Aji, Heafield, EMNLP 2017; Stich, Cordonnier, Jaggi, NeurIPS 2018, lemma A.1"
    summability = Summability.NONE
    unbiased = False

    def __init__(self, fraction: Fraction = 0.01) -> None:
        super().__init__()
        self.fraction = fraction

    def delta(self, elements: int, workers: int = 1) -> float:
        """Return k / d."""
        return fraction_of(elements, self.fraction) / elements if elements else 1.0

    def fraction_at(self, step: int) -> float:
        """Return k / d of a step."""
        return self.fraction

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        flat = tensor.reshape(-1)
        indices = largest(flat, self.fraction_at(context.step))
        return flat[indices], indices.to(torch.int32)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        values, indices = payload
        return scattered(values, indices, context)


class DGC(TopK):
    """Deep gradient compression: top-k whose fraction falls in a warm-up; meant for memory ``momentum``.

    `fraction`: at the end. `warmup_steps`: the fraction falls from 25 % to `fraction` in equal ratios over this many steps.
    """

    name = "dgc"
    source = "Lin, Han, Mao, Wang, Dally, ICLR 2018"

    def __init__(self, fraction: Fraction = 0.001, warmup_steps: Natural = 0) -> None:
        super().__init__(fraction)
        self.warmup_steps = warmup_steps

    def fraction_at(self, step: int) -> float:
        if step < self.warmup_steps and self.fraction < 0.25:
            ratio: float = (self.fraction / 0.25) ** (step / self.warmup_steps)
            return 0.25 * ratio
        return self.fraction


class AgreedTopK(Compressor):
    """Sends the coordinates that one worker finds largest, another one in each step: a dense sum of k values.

    The leader of a step broadcasts the indices of its largest coordinates; all workers send their values there. Meant for
    memory ``residual``, under which the workers' accumulated gradients are alike.

    `fraction`: k / d.
    """

    name = "agreed-top-k"
    family = "sparsification"
    source = "Chen et al. (ScaleCom, CLT-k), NeurIPS 2020"
    summability = Summability.FLOATS
    unbiased = False

    def __init__(self, fraction: Fraction = 0.01) -> None:
        super().__init__()
        self.fraction = fraction

    def agree(self, tensor: Tensor, context: Context) -> Agreement:
        """Return the own indices; those of the step's leader count."""
        indices = largest(tensor.reshape(-1), self.fraction).to(torch.int32)
        return Agreement(indices, "broadcast", context.step % context.workers)

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        assert shared is not None
        return (tensor.reshape(-1)[shared.to(torch.int64)],)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        assert shared is not None
        return scattered(payload[0], shared, context)
