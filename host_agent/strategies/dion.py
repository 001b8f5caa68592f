"""Dion: orthonormal updates of low rank, whose factors are the only thing that workers average."""

from typing import Any

import torch
from torch import Tensor

from host_agent.options import Count
from host_agent.strategies.matrices import MatrixStrategy


class Dion(MatrixStrategy):
    """Average two factors of each matrix's momentum in every step, and update with their orthonormal product.

    Each worker keeps a momentum of its own, B. One power iteration gives P = orth(mean(B Q)) and R = mean(Bᵀ P) with the Q of
    the step before. The matrix takes a step along P Q'ᵀ, where Q' is R with columns of length 1, and 1 − `momentum` of P Rᵀ
    leaves B. The mean of all B is what one worker with all gradients would keep, so the update is the same. An m × n matrix
    costs rank · (m + n) numbers a step, in two all-reduces; gradients of other parameters travel with the first.

    `rank`: columns of a factor, at most those of the matrix. `seed`: of the first Q; the same at all workers.

    References
    ----------
    K. Ahn, B. Xu, N. Abreu, Y. Fan, G. Magakyan, P. Sharma, Z. Zhan, J. Langford, "Dion: Distributed Orthonormalized Updates",
    arXiv:2504.05295, 2025, algorithms 1 and 3.
    """

    name = "dion"
    summary = "average low-rank factors of each matrix's momentum every step; orthonormal updates"
    source = "Ahn et al. 2025"
    use = "large matrices whose gradients the links carry too slowly, steps that must be synchronous"
    cost = "rank · (rows + columns) of a matrix"
    STATE = ("_momenta", "_directions")

    def __init__(self, model: Any, optimizer: Any, *, rank: Count = 16, seed: int = 0, **common: Any) -> None:
        super().__init__(model, optimizer, **common)
        generator = torch.Generator().manual_seed(seed)
        self._momenta = [torch.zeros_like(each) for each in self._matrices]  # B of each matrix.
        self._directions = [
            torch.randn(each.shape[1], min(rank, *each.shape), generator=generator).to(each)
            for each in self._matrices
        ]  # Q of each matrix.

    def update(self, gradients: list[Tensor], others: list[Tensor]) -> None:
        """Take a step of the matrices; average the other gradients."""
        kept = [buffer + gradient for buffer, gradient in zip(self._momenta, gradients, strict=True)]
        left = [buffer @ q for buffer, q in zip(kept, self._directions, strict=True)]
        means = self.mean_of([*left, *others])
        for gradient, mean in zip(others, means[len(left) :], strict=True):
            gradient.copy_(mean)
        bases = [torch.linalg.qr(each).Q for each in means[: len(left)]]
        right = self.mean_of([buffer.T @ basis for buffer, basis in zip(kept, bases, strict=True)])
        # New tensors, so that a state that was saved does not change.
        self._momenta = [
            buffer - (1 - self.momentum) * basis @ factor.T
            for buffer, basis, factor in zip(kept, bases, right, strict=True)
        ]
        self._directions = [torch.nn.functional.normalize(factor, dim=0) for factor in right]
        for matrix, basis, direction in zip(self._matrices, bases, self._directions, strict=True):
            scale = (matrix.shape[0] / matrix.shape[1]) ** 0.5
            matrix.sub_(basis @ direction.T, alpha=self.rate * scale)
