"""The base class of strategies that update matrices with orthonormal steps; other parameters take averaged gradients."""

from typing import Annotated, Any

import torch
from torch import Tensor

from host_agent.strategies.base import Strategy


class MatrixStrategy(Strategy):
    """Updates the parameters that the optimizer does not have, which are matrices, in a way of its own.

    Give the optimizer the others: vectors, and by custom the embedding and the last layer::

        matrices = {each for each in model.layers.parameters() if each.dim() == 2}
        optimizer = torch.optim.AdamW([each for each in model.parameters() if each not in matrices])

    `rate`: learning rate of the matrices; the attribute of that name may be changed between steps. `momentum`: of the matrices.
    """

    COMPRESSES = False

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        rate: Annotated[float, "(0, ∞)"] = 0.02,
        momentum: Annotated[float, "[0, 1)"] = 0.95,
        **common: Any,
    ) -> None:
        super().__init__(model, optimizer, **common)
        self.require(self.scaler is None, "takes no scaler: matrices would be updated with scaled gradients")
        self.rate, self.momentum = rate, momentum
        theirs = {id(each) for group in optimizer.param_groups for each in group["params"]}
        self._others = [each for each in self._parameters if id(each) in theirs]
        self._matrices = [each for each in self._parameters if id(each) not in theirs]
        shapes = [tuple(each.shape) for each in self._matrices]
        self.require(
            bool(shapes) and all(len(each) == 2 for each in shapes),
            f"expected an optimizer with all parameters but the matrices to be updated here, not all but {shapes}",
        )

    def before_step(self) -> None:
        """Clear the gradients that the optimizer does not know."""
        for each in self._matrices:
            each.grad = None

    def after_backward(self) -> bool:
        """Update the matrices, and give the optimizer the averaged gradients of its parameters."""
        with torch.no_grad():
            own = [torch.zeros_like(each) if each.grad is None else each.grad for each in self._others]
            self.update([torch.zeros_like(p) if p.grad is None else p.grad for p in self._matrices], own)
        return True

    def update(self, gradients: list[Tensor], others: list[Tensor]) -> None:
        """Update the matrices with this worker's gradients of them, and average the other gradients in place."""
        raise NotImplementedError

    def mean_of(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the means of tensors over the workers, with one all-reduce."""
        parts = self.exchange.mean(torch.cat([each.reshape(-1) for each in tensors]))
        return [
            part.view_as(each)
            for part, each in zip(parts.split([each.numel() for each in tensors]), tensors, strict=True)
        ]

    def at_end(self) -> None:
        """Average the buffers, which the workers did not share."""
        self.average_buffers()
