"""Codistillation: groups average gradients within, and learn from one another's predictions."""

import copy
from typing import Annotated, Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from host_agent.options import Count, Natural
from host_agent.strategies.base import Strategy, contiguous_groups


class Codistillation(Strategy):
    """Train several models, each by a group of workers, with agreeing predictions.

    Within a group the gradients of every step are averaged. Between groups go, with ``share="checkpoints"``, the models every
    `every` steps, with their buffers: each worker keeps the other groups' as teachers, which are in evaluation mode and may be
    stale; with ``share="predictions"`` the outputs of each step, for which worker i of every group must be given the same inputs.
    The loss is used through the strategy::

        with s.step():
            outputs = model(inputs)
            s.loss(loss_function(outputs, targets), inputs, outputs).backward()

    It adds `weight` times the cross-entropy to the mean of the teachers' softmax probabilities. Groups are contiguous ranks; at
    the end they have a model each.

    `groups`: how many; divides the number of workers. `share`: "checkpoints" or "predictions", which groups exchange. `every`:
    steps between two exchanges of checkpoints. `weight`: of the added loss. `burn_in`: steps before it is added.

    References
    ----------
    R. Anil et al., "Large Scale Distributed Neural Network Training through Online Distillation", ICLR 2018,
    arXiv:1804.03235, algorithm 1.
    """

    name = "codistillation"
    summary = "groups average gradients within, and learn from one another's predictions or checkpoints"
    source = "Anil et al. 2018"
    cost = "d + d / H"
    STATE = ("_teachers",)
    COMPRESSES = False

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        groups: Annotated[int, "[2, ∞)"] = 2,
        share: Literal["checkpoints", "predictions"] = "checkpoints",
        every: Count = 50,
        weight: Annotated[float, "[0, ∞)"] = 1.0,
        burn_in: Natural = 0,
        **common: Any,
    ) -> None:
        super().__init__(model, optimizer, **common)
        self.groups, self.share, self.every = groups, share, every
        self.weight, self.burn_in = weight, burn_in
        blocks = contiguous_groups(self.name, self.workers, groups)
        size = len(blocks[0])
        self.group_index = self.rank // size
        self._own = self.exchange.within(blocks)
        self._peers = self.exchange.within([[block[place] for block in blocks] for place in range(size)])
        self._teachers: list[Tensor] = []
        self._teacher = copy.deepcopy(model).eval()

    def at_start(self) -> None:
        """Take the model of the group's first worker: the groups begin with different models."""
        self.load(self._own.broadcast(self.vector()))
        for each in self._buffers():
            each.copy_(self._own.broadcast(each))

    def loss(self, loss: Tensor, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Return the loss with the distillation term: outputs are logits of shape (batch, classes)."""
        target = self._target(inputs, outputs)
        if target is None or self.steps < self.burn_in:
            return loss
        return loss + self.weight * functional.cross_entropy(outputs, target)

    def after_backward(self) -> bool:
        """Average the gradients within the group."""
        self.load_gradient(self._own.mean(self.gradient()))
        return True

    def after_step(self) -> None:
        """Exchange checkpoints every `every` steps."""
        if self.share == "checkpoints" and self.steps % self.every == 0:
            models = self._peers.gather(self._checkpoint())
            self._teachers = [model for index, model in enumerate(models) if index != self.group_index]

    def at_end(self) -> None:
        """Average the buffers within the group, and dissolve the groups."""
        for each in self._buffers():
            each.copy_(self._own.mean(each))
        self.exchange.wait_for_all()  # A group must not go while another worker's collective needs it.
        for exchange in (self._own, self._peers):
            exchange.close()

    @torch.no_grad()
    def _target(self, inputs: Tensor, outputs: Tensor) -> Tensor | None:
        if self.share == "predictions":
            everyones = self._peers.gather(functional.softmax(outputs.detach(), dim=1))
            others = [each for index, each in enumerate(everyones) if index != self.group_index]
        else:
            others = [self._predicted(each, inputs) for each in self._teachers]
        return torch.stack(others).mean(0) if others else None

    @torch.no_grad()
    def _checkpoint(self) -> Tensor:
        """Return the state of a teacher: the trainable parameters, then the floating-point buffers, as one vector."""
        return torch.cat([self.vector(), *(each.reshape(-1) for each in self._buffers())])

    def _predicted(self, checkpoint: Tensor, inputs: Tensor) -> Tensor:
        held = [each for each in self._teacher.parameters() if each.requires_grad]
        held += [each for each in self._teacher.buffers() if each.is_floating_point()]
        for each, part in zip(held, checkpoint.split([each.numel() for each in held]), strict=True):
            each.copy_(part.view_as(each))
        return functional.softmax(self._teacher(inputs), dim=1)
