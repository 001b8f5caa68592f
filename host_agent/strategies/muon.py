"""Muon with divided work: each matrix has a worker that gets its averaged gradient, updates it and sends it to all."""

import copy
from typing import Any

import torch
from torch import Tensor

from host_agent.strategies.matrices import MatrixStrategy


class Muon(MatrixStrategy):
    """Update each matrix at one worker with ``torch.optim.Muon``: gradients by reduce-scatter, matrices by all-gather.

    The Newton-Schulz iteration and the momentum of a matrix are at one worker alone. Matrices are dealt out by size, the
    largest first, to the worker that has least.

    Needs PyTorch 2.9 or later.

    References
    ----------
    K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks", kellerjordan.github.io/posts/muon, 2024.
    J. Liu et al., "Muon is Scalable for LLM Training", arXiv:2502.16982, 2025, algorithm 1.
    """

    name = "muon"
    summary = "each matrix is updated by Muon at one worker: gradients reduce-scattered, matrices gathered"
    source = "Jordan et al. 2024; Liu et al. 2025"
    use = "fast links, models that are trained with Muon"
    cost = "d + d / n"

    def __init__(self, model: Any, optimizer: Any, **common: Any) -> None:
        super().__init__(model, optimizer, **common)
        self.require(
            hasattr(torch.optim, "Muon"), "needs torch.optim.Muon, of PyTorch 2.9 or later: upgrade torch"
        )
        self._shares: list[list[Tensor]] = [[] for _ in range(self.workers)]
        for each in sorted(self._matrices, key=torch.numel, reverse=True):
            min(self._shares, key=_elements).append(each)
        self._longest = max(map(_elements, self._shares))
        self._own = self._shares[self.rank]
        self._muon = torch.optim.Muon(
            self._own or [torch.zeros(1, 1)], lr=self.rate, momentum=self.momentum, weight_decay=0.0
        )

    def update(self, gradients: list[Tensor], others: list[Tensor]) -> None:
        """Take a step of the matrices; average the other gradients."""
        by_matrix = dict(zip(self._matrices, gradients, strict=True))
        own = self.exchange.scatter_mean(
            torch.cat([self._flat([by_matrix[each] for each in share]) for share in self._shares])
        )
        for matrix, part in zip(self._own, self._pieces(own, self._own), strict=True):
            matrix.grad = part
        self._muon.param_groups[0].update(lr=self.rate, momentum=self.momentum)
        self._muon.step()
        for share, updated in zip(self._shares, self.exchange.gather(self._flat(self._own)), strict=True):
            for matrix, part in zip(share, self._pieces(updated, share), strict=True):
                matrix.copy_(part)
        if others:
            for gradient, mean in zip(others, self.mean_of(others), strict=True):
                gradient.copy_(mean)

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with the momentum of this worker's matrices."""
        place = self.rank, self.workers
        return {**super().state_dict(), "muon": copy.deepcopy(self._muon.state_dict()), "place": place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a state that `state_dict` returned; of another rank or size of the group, without the matrices' momentum."""
        super().load_state_dict(state)
        if tuple(state["place"]) == (self.rank, self.workers):
            self._muon.load_state_dict(state["muon"])

    def _flat(self, share: list[Tensor]) -> Tensor:
        """Return the matrices of a share as one vector, as long as the longest share."""
        flat = self._matrices[0].new_zeros(self._longest)
        if share:
            flat[: _elements(share)] = torch.cat([each.reshape(-1) for each in share])
        return flat

    def _pieces(self, flat: Tensor, share: list[Tensor]) -> list[Tensor]:
        parts = flat[: _elements(share)].split([each.numel() for each in share])
        return [part.view_as(each) for part, each in zip(parts, share, strict=True)]


def _elements(share: list[Tensor]) -> int:
    return sum(each.numel() for each in share)
