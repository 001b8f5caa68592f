"""Synchronous SGD: the gradients of every step are averaged over the workers."""

from typing import Annotated, Any

import torch

from host_agent.options import Count, Natural
from host_agent.strategies.base import Strategy


class Synchronous(Strategy):
    """Average the gradients of every step.

    Large batches. `scale_rate` multiplies the optimizer's learning rate by the number of workers, after a warm-up that begins
    at the rate for one worker (Goyal et al. 2017, sections 2.1 and 2.2). `trust` is LARS: the gradient of each weight tensor
    is scaled by ``trust · ‖w‖ / (‖g‖ + decay · ‖w‖)``, where `decay` is the optimizer's weight decay (You et al. 2017,
    equation 6). Tensors of one dimension (biases, normalization) are left as they are.

    `accumulate`: backward passes for each step of the optimizer; their gradients are averaged. `scale_rate`: multiply the
    learning rate by the number of workers. `warmup_steps`: over which `scale_rate` takes effect. `trust`: LARS' coefficient,
    such as 0.001; 0 switches it off.

    References
    ----------
    P. Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", arXiv:1706.02677, 2017.
    Y. You, I. Gitman, B. Ginsburg, "Large Batch Training of Convolutional Networks", arXiv:1708.03888, 2017.
    """

    name = "synchronous"
    summary = "average the gradients of every step"
    source = "Goyal et al. 2017; LARS: You et al. 2017"
    use = "fast links; the other strategies are compared with it"
    cost = "d"
    STATE = ("_passes",)

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        accumulate: Count = 1,
        scale_rate: bool = False,
        warmup_steps: Natural = 0,
        trust: Annotated[float, "[0, ∞)"] = 0.0,
        **common: Any,
    ) -> None:
        super().__init__(model, optimizer, **common)
        self.require(
            scale_rate or not warmup_steps,
            "warmup_steps has no effect without scale_rate=True: leave it out",
        )
        self.accumulate, self.trust = accumulate, trust
        self.scale_rate, self.warmup_steps = scale_rate, warmup_steps
        self._passes = 0
        self._kept: list[dict[str, Any]] = []

    def after_backward(self) -> bool:
        """Average the gradients, once enough backward passes have added to them."""
        self._passes += 1
        if self._passes % self.accumulate:
            return False
        self.load_gradient(self.exchange.compressed_mean(self.gradient() / self.accumulate))
        self._kept = [
            {"lr": group["lr"], "weight_decay": group.get("weight_decay", 0)}
            for group in self.optimizer.param_groups
        ]
        if self.trust:
            self._scale_layers()
        for group in self.optimizer.param_groups:
            group["lr"] *= self.rate_factor()
        return True

    def after_step(self) -> None:
        """Give the optimizer its own learning rate back, which a scheduler may change."""
        for group, kept in zip(self.optimizer.param_groups, self._kept, strict=True):
            group["lr"] = kept["lr"]
            if self.trust:
                group["weight_decay"] = kept["weight_decay"]

    def at_end(self) -> None:
        """Average the buffers, which the workers did not share."""
        self.average_buffers()

    def rate_factor(self) -> float:
        """Return the factor of the next step's learning rate."""
        if not self.scale_rate:
            return 1.0
        share = 1.0 if self.steps >= self.warmup_steps else self.steps / self.warmup_steps
        return 1.0 + (self.workers - 1) * share

    @torch.no_grad()
    def _scale_layers(self) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        for group in self.optimizer.param_groups:
            decay = group.get("weight_decay", 0)
            for each in group["params"]:
                if each.grad is None:
                    continue
                weight, slope = each.norm(), each.grad.norm()
                each.grad.add_(each, alpha=decay)
                if each.dim() > 1 and weight > 0 and slope > 0:
                    each.grad.mul_(self.trust * weight / (slope + decay * weight))
            if decay:
                group["weight_decay"] = 0  # Weight decay is in the gradient already, scaled with it.
