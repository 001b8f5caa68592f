"""ADMM: consensus over workers whose losses are convex."""

import math
from typing import Annotated, Any

import torch
from torch import Tensor

from host_agent.options import Count
from host_agent.strategies.base import Strategy


class ADMM(Strategy):
    """Minimize the mean of the workers' convex losses under the constraint that their models agree.

    Each worker takes `every` steps on its loss plus ``penalty/2 · ‖x − z + u‖²``; then z, the common model, becomes the mean of
    x + u, and u grows by x − z. With `l1` > 0 the mean is soft-thresholded, which adds ``l1 · ‖z‖₁`` to the mean loss. The local
    minimization is inexact: more steps, a better optimizer (``torch.optim.LBFGS`` takes a closure and does not fit) or a larger
    penalty bring it nearer.

    `penalty`: the augmented Lagrangian's, rho. `every`: local steps between two averages. `l1`: weight of the L1 norm.
    Attributes: `primal`, `dual`: residuals after the last average: this worker's ‖x − z‖, and penalty · ‖z − z before‖.

    References
    ----------
    S. Boyd et al., "Distributed Optimization and Statistical Learning via the Alternating Direction Method of Multipliers",
    Foundations and Trends in Machine Learning 3(1), 2011, sections 3.3 and 7.1.
    """

    name = "admm"
    summary = "convex problems: local minimization, agreement by an average and dual variables"
    source = "Boyd et al. 2011"
    use = "convex problems"
    cost = "d / H"
    STATE = ("common", "dual_variable", "primal", "dual")

    common: Tensor  # z: the same at all workers.
    dual_variable: Tensor  # u: this worker's, scaled.

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        penalty: Annotated[float, "(0, ∞)"] = 1.0,
        every: Count = 10,
        l1: Annotated[float, "[0, ∞)"] = 0.0,
        **common: Any,
    ) -> None:
        super().__init__(model, optimizer, **common)
        self.penalty, self.every, self.l1 = penalty, every, l1
        self.primal = self.dual = math.inf

    def at_start(self) -> None:
        """Take the model of rank 0 as the common one."""
        super().at_start()
        self.common = self.vector()
        self.dual_variable = torch.zeros_like(self.common)

    def after_backward(self) -> bool:
        """Add the gradient of the augmented Lagrangian's penalty."""
        self.load_gradient(
            self.gradient() + self.penalty * (self.vector() - self.common + self.dual_variable)
        )
        return True

    def after_step(self) -> None:
        """Agree every `every` steps."""
        if self.steps % self.every == 0:
            self._agree()

    def at_end(self) -> None:
        """Load the common model."""
        if self.steps % self.every:
            self._agree()
        self.load(self.common)
        self.average_buffers()

    def _agree(self) -> None:
        model = self.vector()
        mean = self.common + self.exchange.compressed_mean(model + self.dual_variable - self.common)
        if self.l1:
            mean = torch.nn.functional.softshrink(mean, self.l1 / self.penalty)
        self.dual = self.penalty * (mean - self.common).norm().item()
        self.common = mean
        self.dual_variable = self.dual_variable + model - mean
        self.primal = (model - mean).norm().item()
