"""DiLoCo: many local steps, then one outer step with Nesterov momentum on the mean movement of the models."""

from typing import Annotated, Any

import torch
from torch import Tensor

from host_agent.options import Count
from host_agent.strategies.base import Strategy


class DiLoCo(Strategy):
    """Take `every` local steps, then one outer step that all workers take alike.

    The outer gradient is the model of the last outer step minus the model now, averaged over the workers. The optimizer given
    is the inner one (AdamW in the paper); its state stays at the worker.

    `every`: inner steps between two outer ones, H. `outer_rate`: learning rate of the outer step. `outer_momentum`: of the
    Nesterov momentum.

    References
    ----------
    A. Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", arXiv:2311.08105, 2023,
    algorithm 1.
    """

    name = "diloco"
    summary = "many local steps, then one outer Nesterov step on the mean of the models' changes"
    source = "Douillard et al. 2023"
    STATE = ("reference", "momentum")

    reference: Tensor  # The model after the last outer step.
    momentum: Tensor

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        every: Count = 50,
        outer_rate: Annotated[float, "(0, ∞)"] = 0.7,
        outer_momentum: Annotated[float, "[0, 1)"] = 0.9,
        **common: Any,
    ) -> None:
        super().__init__(model, optimizer, **common)
        self.every, self.outer_rate, self.outer_momentum = every, outer_rate, outer_momentum

    def at_start(self) -> None:
        """Take the model of rank 0 as the reference."""
        super().at_start()
        self.reference = self.vector()
        self.momentum = torch.zeros_like(self.reference)

    def after_step(self) -> None:
        """Take the outer step every `every` inner steps."""
        if self.steps % self.every == 0:
            self._outer_step()

    def at_end(self) -> None:
        """Take an outer step if there were inner steps since the last one."""
        if self.steps % self.every:
            self._outer_step()
        self.average_buffers()

    def _outer_step(self) -> None:
        gradient = self.exchange.compressed_mean(self.reference - self.vector())
        self.momentum = self.outer_momentum * self.momentum + gradient
        self.reference = self.reference - self.outer_rate * (gradient + self.outer_momentum * self.momentum)
        self.load(self.reference)
