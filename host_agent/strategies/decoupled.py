"""Decoupled DiLoCo: outer steps with the changes of the learners that are ready first."""

from typing import Annotated, Any

import torch
from torch import Tensor

from host_agent.options import Count
from host_agent.strategies.backup import BackupWorkers
from host_agent.strategies.diloco import outer_step


class DecoupledDiLoCo(BackupWorkers):
    """Take outer steps with the changes of the first k of n learners; what a late one has learned goes into its next change.

    A learner offers its change every `sync_every` steps of its own, and takes all outer steps that have ended since: a slow
    learner, or one whose host pauses, delays no other. All learners have the same reference after the same number of outer
    steps, bit for bit. k is the quorum of the communicator's job. The loop is that of `backup`, over ``training()``.

    The paper's grace window, in which a late change may still be added, has no counterpart: a quorum adds k arrays.

    `communicator`, `ahead`: as for `backup`. `rounds`: outer steps of the training, at all learners alike. `sync_every`,
    `outer_rate`, `outer_momentum`: as for `diloco`.

    References
    ----------
    "Decoupled DiLoCo", arXiv:2604.21428, 2026.
    """

    name = "decoupled-diloco"
    summary = "DiLoCo whose outer steps take the first k of n changes; late ones go into the next change"
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

    def at_start(self) -> None:
        """Take the model of rank 0 as the reference."""
        super().at_start()
        self.reference = self.vector()
        self.momentum = torch.zeros_like(self.reference)

    def after_backward(self) -> bool:
        """Leave the gradient to the optimizer."""
        return True

    def after_step(self) -> None:
        """Offer the change every few steps, and take the outer steps that have ended."""
        if self.steps % self.sync_every:
            return
        own = self.reference - self.vector()
        before = self.contributed
        for result in self.exchanged(own):
            outer_step(self, own.new_tensor(result.value))
        self.load(self.reference if self.contributed > before else self.reference - own)

    def at_end(self) -> None:
        """Take the reference, which all learners have alike."""
        self.load(self.reference)
        super().at_end()
