"""Sparsification by magnitude: largest coordinates, largest blocks, and thresholds."""

from typing import Annotated

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
from host_agent.compression.packing import in_blocks
from host_agent.options import Count, Fraction, Natural


class _Selecting(Compressor):
    """Sends some coordinates with their indices."""

    family = "sparsification"
    summability = Summability.NONE
    unbiased = False

    def select(self, flat: Tensor, context: Context) -> Tensor:
        """Return the indices to send."""
        raise NotImplementedError

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        flat = tensor.reshape(-1)
        indices = self.select(flat, context)
        return flat[indices], indices.to(torch.int32)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        values, indices = payload
        return scattered(values, indices, context)


class TopK(_Selecting):
    """Sends the k coordinates of largest magnitude; meant for memory ``residual``.

    `fraction`: k / d.
    """

    name = "top-k"
    source = "Aji, Heafield, EMNLP 2017; Stich, Cordonnier, Jaggi, NeurIPS 2018, lemma A.1"

    def __init__(self, fraction: Fraction = 0.01) -> None:
        super().__init__()
        self.fraction = fraction

    def delta(self, elements: int, workers: int = 1) -> float:
        """Return k / d."""
        return fraction_of(elements, self.fraction) / elements if elements else 1.0

    def select(self, flat: Tensor, context: Context) -> Tensor:
        return largest(flat, self.fraction)


class DGC(TopK):
    """Deep gradient compression: top-k whose fraction falls in a warm-up; meant for memory ``momentum``.

    `fraction`: at the end. `warmup_steps`: the fraction falls from 25 % to `fraction` in equal ratios over this many steps.
    """

    name = "dgc"
    source = "Lin, Han, Mao, Wang, Dally, ICLR 2018"

    def __init__(self, fraction: Fraction = 0.001, warmup_steps: Natural = 0) -> None:
        super().__init__(fraction)
        self.warmup_steps = warmup_steps

    def select(self, flat: Tensor, context: Context) -> Tensor:
        fraction = self.fraction
        if context.step < self.warmup_steps and fraction < 0.25:
            fraction = 0.25 * (fraction / 0.25) ** (context.step / self.warmup_steps)
        return largest(flat, fraction)


class BlockTopK(_Selecting):
    """Sends the blocks of largest norm; an index for a block, not for a coordinate.

    `fraction`: of the blocks. `block`: elements in a block.
    """

    name = "block-top-k"
    source = "Dutta et al., AAAI 2020; Fei, Ho, Sahu, Canini, Sapio, SIGCOMM 2021, section 5"

    def __init__(self, fraction: Fraction = 0.01, block: Count = 256) -> None:
        super().__init__()
        self.fraction, self.block = fraction, block

    def delta(self, elements: int, workers: int = 1) -> float:
        """Return the share of the blocks that is sent."""
        blocks = -(-elements // self.block)
        return fraction_of(blocks, self.fraction) / blocks if blocks else 1.0

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        rows = in_blocks(tensor, self.block)
        norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
        chosen = norms.topk(fraction_of(rows.shape[0], self.fraction), sorted=False).indices
        return rows[chosen].view(-1), chosen.to(torch.int32)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        values, chosen = payload
        rows = torch.zeros(-(-context.elements // self.block), self.block, device=values.device)
        rows[chosen.to(torch.int64)] = values.view(-1, self.block)
        return rows.view(-1)[: context.elements].view(context.shape)


class Threshold(_Selecting):
    """Sends all coordinates whose magnitude is at least a fixed value; meant for memory ``residual``.

    `threshold`: λ.
    """

    name = "threshold"
    source = "Dutta et al., AAAI 2020, section 5; Sahu et al., NeurIPS 2021 (hard threshold)"

    def __init__(self, threshold: Annotated[float, "(0, ∞)"] = 0.01) -> None:
        super().__init__()
        self.threshold = threshold

    def select(self, flat: Tensor, context: Context) -> Tensor:
        return (flat.abs() >= self.threshold).nonzero().view(-1)


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
