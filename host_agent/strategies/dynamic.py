"""Dynamic model averaging: workers average only when a model has moved too far from the last average."""

from typing import Annotated, Any

import torch
from torch import Tensor

from host_agent.options import Count
from host_agent.strategies.base import Strategy


class DynamicAveraging(Strategy):
    """Average models when a local condition is violated: first those of some workers, then all.

    Every `every` steps each worker checks ``‖model − reference‖² ≤ threshold``. If all conditions hold, nothing else is sent:
    the mean of the models is then no farther from the reference either. Otherwise the workers that violate it send their models
    to the first of them, which averages and asks further workers for theirs until the average fulfils the condition; these
    workers load it. If it takes all workers, all average by an all-reduce, and the average becomes the reference. So it does
    after as many violations as there are workers.

    The check itself is an all-reduce of one int32 for each worker.

    `threshold`: of the squared distance from the reference. `every`: steps between two checks. `seed`: of the order in which
    workers are asked; the same at all workers. Attributes:
    `partial`, `full`: averages over some workers and over all.

    References
    ----------
    M. Kamp et al., "Efficient Decentralized Deep Learning by Dynamic Model Averaging", ECML PKDD 2018, arXiv:1807.03210,
    algorithm 2.
    """

    name = "dynamic-averaging"
    summary = "average models only when one has moved too far from the last average, first some, then all"
    source = "Kamp et al. 2018"
    cost = "at most d / H"
    STATE = ("reference", "violations", "partial", "full")

    reference: Tensor  # The last average over all workers.

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        threshold: Annotated[float, "[0, ∞)"],
        every: Count = 1,
        seed: int = 0,
        **common: Any,
    ) -> None:
        super().__init__(model, optimizer, **common)
        self.threshold, self.every, self.seed = threshold, every, seed
        self.violations = self.partial = self.full = 0

    def at_start(self) -> None:
        """Take the model of rank 0 as the reference."""
        super().at_start()
        self.reference = self.vector()

    def after_step(self) -> None:
        """Check the conditions, and average if one is violated."""
        if self.steps % self.every:
            return
        model = self.vector()
        flags = torch.zeros(self.workers, dtype=torch.int32)
        flags[self.rank] = int(not self._near(model))
        members = self.exchange.sum(flags).nonzero().reshape(-1).tolist()
        if not members:
            return
        self.violations += len(members)
        if self.violations < self.workers and self._average_some(model, members):
            self.partial += 1
        else:
            self._average_all()

    def at_end(self) -> None:
        """Average all models."""
        self._average_all()
        self.average_buffers()

    def _near(self, model: Tensor) -> bool:
        return bool(((model - self.reference) ** 2).sum() <= self.threshold)

    def _average_some(self, model: Tensor, members: list[int]) -> bool:
        """Average the models of some workers; return whether that fulfilled the condition before all were asked."""
        generator = torch.Generator().manual_seed(self.seed + self.steps)
        others = [
            each for each in torch.randperm(self.workers, generator=generator).tolist() if each not in members
        ]
        coordinator, count = members[0], len(members)
        order = [*members, *others]
        total = model.clone()
        received = 1
        while count < self.workers:
            for each in order[received:count]:
                if self.rank == coordinator:
                    total += self.exchange.receive(torch.empty_like(model), each)
                elif self.rank == each:
                    self.exchange.send(model, coordinator)
            received = count
            done = torch.tensor([int(self._near(total / count))], dtype=torch.int32)
            if self.exchange.broadcast(done, coordinator).item():
                self._hand_out(total / count, order[:count])
                return True
            count += 1
        return False

    def _hand_out(self, mean: Tensor, members: list[int]) -> None:
        if self.rank == members[0]:
            for each in members[1:]:
                self.exchange.send(mean, each)
            self.load(mean)
        elif self.rank in members:
            self.load(self.exchange.receive(torch.empty_like(mean), members[0]))

    def _average_all(self) -> None:
        self.reference = self.average_models(self.reference)
        self.violations = 0
        self.full += 1
