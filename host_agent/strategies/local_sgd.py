"""Local SGD and post-local SGD: models are averaged every H steps."""

from typing import Any

from torch import Tensor

from host_agent.options import Count, Natural
from host_agent.strategies.base import Strategy


class LocalSGD(Strategy):
    """Let each worker take `every` steps of its own, then average the models.

    With `after` > 0 it is post-local SGD: the gradients of the first `after` steps are averaged step by step.

    `every`: steps between two averages, H. `after`: synchronous steps before the first local one.

    References
    ----------
    S. U. Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019, arXiv:1805.09767.
    T. Lin, S. U. Stich, K. K. Patel, M. Jaggi, "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020, arXiv:1808.07217.
    """

    name = "local-sgd"
    summary = "average the models every H steps; before that, for some steps, the gradients"
    source = "Stich 2019; post-local: Lin et al. 2020"
    STATE = ("reference",)

    reference: Tensor  # The last model that all workers had alike.

    def __init__(
        self, model: Any, optimizer: Any, *, every: Count = 8, after: Natural = 0, **common: Any
    ) -> None:
        super().__init__(model, optimizer, **common)
        self.every, self.after = every, after

    def at_start(self) -> None:
        """Take the model of rank 0 as the reference."""
        super().at_start()
        self.reference = self.vector()

    def after_backward(self) -> bool:
        """Average the gradients of the first steps."""
        if self.steps < self.after:
            self.load_gradient(self.exchange.compressed_mean(self.gradient(), of="gradient"))
        return True

    def after_step(self) -> None:
        """Average the models every `every` steps."""
        local = self.steps - self.after
        if local == 0:
            self.reference = self.vector()
        elif local > 0 and local % self.every == 0:
            self.reference = self.average_models(self.reference)

    def at_end(self) -> None:
        """Average the models once more if there were steps since the last time."""
        local = self.steps - self.after
        if local > 0 and local % self.every:
            self.reference = self.average_models(self.reference)
        self.average_buffers()
