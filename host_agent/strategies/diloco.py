"""DiLoCo and streaming DiLoCo: local steps, and outer steps with Nesterov momentum on the mean movement of the models."""

from collections.abc import Callable
from typing import Annotated, Any

import torch
from torch import Tensor

from host_agent.compression.registry import make_compressor
from host_agent.options import Count, Natural
from host_agent.strategies.base import Strategy


def outer_step(of: Any, gradient: Tensor, part: slice = slice(None)) -> None:
    """Take the Nesterov step of a part of a strategy's reference, in place."""
    momentum = of.momentum[part].mul_(of.outer_momentum).add_(gradient)
    of.reference[part] -= of.outer_rate * (gradient + of.outer_momentum * momentum)


class DiLoCo(Strategy):
    """Take `sync_every` local steps, then one outer step that all workers take alike.

    The outer gradient is the last outer step's model minus the model now, averaged. The optimizer given is the inner one.

    With `fragments` > 1 it is streaming DiLoCo: the parameters' vector is cut into equal fragments, and every
    `sync_every` / `fragments` steps the next one has its outer step, so that a worker never sends more at a time. With a
    `fragment_sync_delay` the worker computes on while a fragment is averaged. Options are called as in torchft.

    `sync_every`: inner steps between two outer ones of the same fragment, H. `after`: steps before them whose gradients are
    averaged one by one. `outer_rate`: learning rate of the outer step. `outer_momentum`: of the Nesterov momentum. `fragments`:
    how many; divide `sync_every`. `fragment_sync_delay`: steps, less than `sync_every` / `fragments`; averages then take a group
    of their own. `fragment_update_alpha`: share of the worker's own fragment in the one that it goes on with after an
    outer step. `should_quantize`: outer gradients of 4 bits (block-float), which the switch adds.

    References
    ----------
    A. Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", arXiv:2311.08105, algorithm 1.
    A. Douillard et al., "Streaming DiLoCo with overlapping communication", arXiv:2501.18512, 2025, algorithm 2.
    """

    name = "diloco"
    summary = "many local steps, then one outer Nesterov step on the mean of the models' changes; in fragments: streaming"
    source = "Douillard et al. 2023, 2025"
    use = "slow or distant links; fragments and 4 bits where they must not be full at once"
    cost = "d / H; in 4 bits d / (5 H)"
    STATE = ("reference", "momentum", "_arrived")

    reference: Tensor  # Each fragment after its last outer step.
    momentum: Tensor

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        sync_every: Count = 50,
        after: Natural = 0,
        outer_rate: Annotated[float, "(0, ∞)"] = 0.7,
        outer_momentum: Annotated[float, "[0, 1)"] = 0.9,
        fragments: Count = 1,
        fragment_sync_delay: Natural = 0,
        fragment_update_alpha: Annotated[float, "[0, 1)"] = 0.0,
        should_quantize: bool = False,
        **common: Any,
    ) -> None:
        if should_quantize:
            self.require(common.get("compression") is None, "give should_quantize or compression, not both")
            common["compression"] = make_compressor("block-float", bits=4)
        super().__init__(model, optimizer, **common)
        self.outer_rate, self.outer_momentum, self.alpha = outer_rate, outer_momentum, fragment_update_alpha
        self.after, self.fragments, self.delay = after, fragments, fragment_sync_delay
        self._interval = sync_every // fragments
        self.require(
            sync_every % fragments == 0 and self.delay < self._interval,
            f"expected fragments that divide sync_every, and a fragment_sync_delay below {sync_every} / {fragments}",
        )
        self._own = self.exchange
        if self.delay:  # Collectives of the trainer may come while a fragment is averaged.
            self._own = self.exchange.within([list(range(self.workers))])
            self._own.reducer = self.exchange.reducer
        self._under_way: Callable[[], Tensor] | None = None  # Waits for the average under way.
        self._arrived: Tensor | None = None  # An average that was waited for before its outer step was due.

    def at_start(self) -> None:
        """Take the model of rank 0 as the reference."""
        super().at_start()
        self.reference = self.vector()
        self.momentum = torch.zeros_like(self.reference)

    def after_backward(self) -> bool:
        """Average the gradients of the first steps."""
        if self.steps < self.after:
            self.load_gradient(self.exchange.compressed_mean(self.gradient(), of="gradient"))
        return True

    def after_step(self) -> None:
        """Begin to average the next fragment, or take the outer step of the one that is due."""
        if self._local <= 0:
            self.reference = self.vector()
            return
        if self._local % self._interval == 0:
            self._begin(self._latest)
        if (self._local - self.delay) % self._interval == 0:
            self._outer_step(self._latest)

    def at_end(self) -> None:
        """Take an outer step of every fragment that has changed since its last one."""
        self._outer_step(self._latest)
        for number in range(self.fragments):
            if self._local > 0 and (self._local % self._interval or number != self._latest):
                self._begin(number)
                self._outer_step(number)
        self.load(self.reference)
        self.average_buffers()
        if self._own is not self.exchange:
            self.exchange.wait_for_all()  # A group must not go while another worker's collective needs it.
            self._own.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state; wait for an average under way, which all workers have begun."""
        self._arrived = self._average()
        return super().state_dict()

    @property
    def _local(self) -> int:
        return self.steps - self.after

    @property
    def _latest(self) -> int:  # The fragment whose average began last.
        return (self._local // self._interval - 1) % self.fragments

    def _part(self, number: int) -> slice:
        return slice(*(each * self.reference.numel() // self.fragments for each in (number, number + 1)))

    def _begin(self, number: int) -> None:
        change = (self.reference - self.vector())[self._part(number)]
        self._under_way = self._own.begin_mean(change, f"model{number or ''}", in_thread=self.delay > 0)

    def _average(self) -> Tensor | None:
        wait, self._under_way = self._under_way, None
        return wait() if wait else self._arrived

    def _outer_step(self, number: int) -> None:
        """Take the outer step of a fragment with the average under way, if there is one."""
        gradient, self._arrived = self._average(), None
        if gradient is not None:
            part, model = self._part(number), self.vector()
            outer_step(self, gradient, part)
            model[part] = self.reference[part].lerp(model[part], self.alpha)
            self.load(model)
