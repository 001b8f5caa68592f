"""Decoupled DiLoCo: outer steps with the changes of the learners that are ready first; late ones are in the next step."""

from typing import Annotated, Any

import torch
from torch import Tensor

from host_agent.options import Count
from host_agent.strategies.backup import BackupWorkers
from host_agent.strategies.diloco import outer_step


class DecoupledDiLoCo(BackupWorkers):
    """Take outer steps with the changes of the first k of n learners, and of late ones in the next outer step.

    A learner offers its change every `sync_every` steps of its own, and takes all outer steps that have ended since: a slow
    learner, or one whose host pauses, delays no other. All learners have the same reference after the same number of outer
    steps, bit for bit. k is the quorum of the communicator's job. The loop is that of `backup`, over ``training()``.

    A quorum adds k arrays, so none can be added in a grace window behind the k-th. Instead a late learner hands its change in
    again at once, while those that were in time make their next steps, and goes on with it from the new reference. It is late
    again only if k others hand in theirs before.

    `communicator`, `ahead`: as for `backup`. `rounds`: outer steps of the training, at all learners alike. `sync_every`,
    `outer_rate`, `outer_momentum`: as for `diloco`.

    References
    ----------
    "Decoupled DiLoCo", arXiv:2604.21428, 2026.
    """

    name = "decoupled-diloco"
    summary = "DiLoCo whose outer steps take the first k of n changes; late ones are in the next step"
    source = "arXiv:2604.21428, 2026"
    use = "learners of different speeds, or on hosts that pause"
    cost = "d / H"
    STATE = ("reference", "momentum")

    reference: Tensor  # The model after the last outer step.
    momentum: Tensor

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        sync_every: Count = 50,
        outer_rate: Annotated[float, "(0, ∞)"] = 0.7,
        outer_momentum: Annotated[float, "[0, 1)"] = 0.9,
        **common: Any,
    ) -> None:
        super().__init__(model, optimizer, **common)
        self.sync_every, self.outer_rate, self.outer_momentum = sync_every, outer_rate, outer_momentum
        # A change that was handed in again. A checkpoint needs none: the model has it, and the next change.
        self._late: Tensor | None = None

    def at_start(self) -> None:
        """Take the model of rank 0 as the reference."""
        super().at_start()
        self.reference = self.vector()
        self.momentum = torch.zeros_like(self.reference)

    def after_backward(self) -> bool:
        """Leave the gradient to the optimizer."""
        return True

    def after_step(self) -> None:
        """Offer the change every few steps, and take the outer steps that have ended; offer it again if it was late."""
        if self.steps % self.sync_every:
            return
        left = self.reference - self.vector()
        offered, self._late = left if self._late is None else self._late, None
        if offered is left:
            self.offer(left)
        for result in self.results():
            outer_step(self, left.new_tensor(result.value))
            if self.rank in result.ranks:
                left = left - offered
        self.load(self.reference - left)
        if self.rank not in result.ranks and not self._rounds.done:
            self._late = left
            self.offer(left)

    def at_end(self) -> None:
        """Take the reference, which all learners have alike."""
        self.load(self.reference)
        super().at_end()
