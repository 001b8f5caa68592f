"""Low rank: PowerSGD's power iteration with a warm start, and ATOMO's spectral sampling."""

import math

import torch
from torch import Tensor

from host_agent.compression.compressor import Agreement, Compressor, Context, Payload, Summability
from host_agent.options import Count


def as_matrix(shape: torch.Size) -> tuple[int, int]:
    """Return rows and columns of a tensor as a matrix: its own first dimension, or nearly a square for one dimension."""
    elements = shape.numel()
    if len(shape) >= 2 and shape[0] > 0:
        return shape[0], elements // shape[0]
    rows = max(1, int(math.sqrt(elements)))
    while elements % rows:
        rows -= 1
    return rows, elements // max(1, rows)


class PowerSGD(Compressor):
    """Sends M Q, summed and orthogonalized, then Mᵀ P̂: one step of a power iteration, with Q kept for the next step.

    Tensors whose factors would not be smaller than they are are sent whole. Meant for memory ``residual``.

    `rank`: columns of the factors.
    """

    name = "powersgd"
    family = "low rank"
    source = "Vogels, Karimireddy, Jaggi, NeurIPS 2019, algorithm 1"
    use = "gradients of large matrices on slow links, with residual"
    summability = Summability.FLOATS
    unbiased = False

    def __init__(self, rank: Count = 2) -> None:
        super().__init__()
        self.rank = rank
        self._next_q: dict[str, Tensor] = {}

    def agree(self, tensor: Tensor, context: Context) -> Agreement | None:
        """Return M Q, to be summed."""
        if self._whole(context):
            return None
        rows, columns = as_matrix(context.shape)
        kept = self.state.get(context.key, {}).get("q")
        if kept is None or kept.shape[1] != self.rank:
            start = torch.randn(
                columns, self.rank, generator=context.shared_generator(), device=context.device
            )
            if kept is not None:  # The rank was changed: the directions found so far stay.
                start[:, : kept.shape[1]] = kept[:, : self.rank]
            kept = start
        return Agreement(tensor.reshape(rows, columns) @ kept, "sum")

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        """Return Mᵀ P̂."""
        if shared is None:
            return (tensor,)
        basis = torch.linalg.qr(shared).Q
        return (tensor.reshape(as_matrix(context.shape)).T @ basis,)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        """Return P̂ Qᵀ."""
        if shared is None:
            return payload[0].clone()
        if count == context.workers:
            # The next step needs their directions alone, and lengths would multiply with the next tensor's.
            lengths = payload[0].abs().amax(dim=0)
            self._next_q[context.key] = torch.where(lengths > 0, payload[0] / lengths, 0.0)
        return (torch.linalg.qr(shared).Q @ payload[0].T).view(context.shape)

    def reduced(self, mean: Tensor, context: Context) -> None:
        """Keep Q, now that the step is known to be finite."""
        if context.key in self._next_q:
            self.state[context.key] = {"q": self._next_q.pop(context.key)}

    def _whole(self, context: Context) -> bool:
        rows, columns = as_matrix(context.shape)
        return (rows + columns) * self.rank >= rows * columns


class Atomo(Compressor):
    """Samples singular vectors with probabilities that minimize the variance for an expected number of them.

    `rank`: expected number of singular vectors that are sent (the sparsity budget s).
    """

    name = "atomo"
    family = "low rank"
    source = "Wang, Sievert, Charles, Liu, Wright, Papailiopoulos, NeurIPS 2018, algorithm 1 and section 3.2"
    summability = Summability.NONE
    unbiased = True

    def __init__(self, rank: Count = 2) -> None:
        super().__init__()
        self.rank = rank

    def omega(self, elements: int, workers: int = 1) -> float:
        """Return r / s − 1 for rank r: Σ σ²/p is at most (Σσ)²/s, and (Σσ)² ≤ r ‖x‖². √d bounds the rank."""
        return max(0.0, math.sqrt(elements) / self.rank - 1)

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        """Decompose, sample, send u √(σ/p) and v √(σ/p)."""
        left, sizes, right = torch.linalg.svd(tensor.reshape(as_matrix(context.shape)), full_matrices=False)
        chances = probabilities(sizes, self.rank)
        dice = torch.rand(sizes.shape, generator=context.own_generator(), device=sizes.device)
        taken = (dice < chances).nonzero().view(-1)
        scale = (sizes[taken] / chances[taken]).sqrt()
        return (left[:, taken] * scale).T.reshape(-1), (right[taken] * scale[:, None]).reshape(-1)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        rows, columns = as_matrix(context.shape)
        return (payload[0].view(-1, rows).T @ payload[1].view(-1, columns)).view(context.shape)


def probabilities(sizes: Tensor, budget: int) -> Tensor:
    """Return the probabilities that minimize Σ σ²/p with Σ p ≤ budget and p ≤ 1, for σ in descending order."""
    chances = torch.zeros_like(sizes)
    left = float(min(budget, sizes.numel()))
    for place in range(sizes.numel()):
        total = float(sizes[place:].sum())
        if total <= 0:
            break
        if left * float(sizes[place]) < total:
            chances[place:] = sizes[place:] * (left / total)
            break
        chances[place] = 1.0
        left -= 1.0
    return chances
