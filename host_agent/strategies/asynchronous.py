"""Downpour and stale-synchronous SGD, and elastic averaging: workers and a parameter server that do not wait for all."""

from typing import Any

import torch
from torch import Tensor

from host_agent.options import Count, Fraction, Natural
from host_agent.strategies.parameter_server import ServedStrategy


class Downpour(ServedStrategy):
    """Push gradients to a server and pull its parameters, without waiting for other workers.

    The server applies each push with its own optimizer; between two pulls a worker goes on with its own.

    `fetch`: steps between two pulls. `push_every`: steps whose gradients are added up for a push.

    References
    ----------
    J. Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, section 4.1 and algorithm 7.1 of its supplement.
    """

    name = "downpour"
    summary = "asynchronous: push gradients to a parameter server, pull its parameters"
    source = "Dean et al. 2012"
    cost = "d; at the server n d"

    def __init__(
        self, model: Any, optimizer: Any, *, fetch: Count = 1, push_every: Count = 1, **common: Any
    ) -> None:
        super().__init__(model, optimizer, **common)
        self.fetch, self.push_every = fetch, push_every
        self._sum: Tensor | None = None

    def before_step(self) -> None:
        """Pull parameters every `fetch` steps."""
        super().before_step()
        if self.steps % self.fetch == 0:
            self.pull()

    def after_backward(self) -> bool:
        """Add the gradient to those of the next push."""
        gradient = self.gradient()
        self._sum = gradient if self._sum is None else self._sum + gradient
        return True

    def after_step(self) -> None:
        """Push every `push_every` steps."""
        if self.steps % self.push_every == 0:
            self._push()

    def at_end(self) -> None:
        """Push the gradients that were not pushed yet."""
        self._push()
        super().at_end()

    def _push(self) -> None:
        if self._sum is not None:
            self.push(self._sum)
            self._sum = None


class StaleSynchronous(Downpour):
    """Downpour in which no worker is more than a given number of steps ahead of the slowest.

    A worker that is farther ahead gets the server's parameters only when the slowest has come near enough. With ``bound=0`` no
    worker begins a step before all have ended the one before.

    `bound`: in steps. `fetch`, `push_every`: see `Downpour`. The bound counts steps: gradients that a worker still adds up are
    up to ``push_every - 1`` steps older.

    References
    ----------
    Q. Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013.
    """

    name = "stale-synchronous"
    summary = "asynchronous, but no worker is more than a given number of steps ahead of the slowest"
    source = "Ho et al. 2013"
    cost = "d; at the server n d"

    def __init__(self, model: Any, optimizer: Any, *, bound: Natural = 3, **common: Any) -> None:
        super().__init__(model, optimizer, **common)
        self.require(
            self.fetch <= bound + 1,
            f"a worker that asks every {self.fetch} steps is up to {self.fetch - 1} ahead: expected a bound of at least "
            f"{self.fetch - 1} or a fetch of at most {bound + 1}, not a bound of {bound}",
        )
        self.bound = bound

    def pull_is_due(self, clock: int) -> bool:
        """Return whether the worker stays within the bound until it asks again, `fetch` steps on."""
        return clock + self.fetch - 1 - min(self._clocks.values()) <= self.bound


class ElasticAveraging(ServedStrategy):
    """Pull workers' parameters and the server's center towards one another (asynchronous EASGD).

    Every `every` steps a worker and the center move towards each other by `elasticity` times their difference. Workers explore
    on their own in between.

    `every`: steps between two exchanges, the paper's communication period. `elasticity`: the paper's alpha; at most 1 divided
    by the number of workers keeps the center stable.

    References
    ----------
    S. Zhang, A. Choromanska, Y. LeCun, "Deep Learning with Elastic Averaging SGD", NIPS 2015, arXiv:1412.6651, algorithm 1.
    """

    name = "easgd"
    summary = "asynchronous: models and a center on a server pull at one another"
    source = "Zhang et al. 2015"
    cost = "d / H; at the server n d / H"

    def __init__(
        self, model: Any, optimizer: Any, *, every: Count = 4, elasticity: Fraction = 0.1, **common: Any
    ) -> None:
        super().__init__(model, optimizer, **common)
        self.every, self.elasticity = every, elasticity

    def after_step(self) -> None:
        """Exchange every `every` steps."""
        if self.steps % self.every == 0:
            model = self.vector()
            self.load(torch.lerp(model, self.swap(model), self.elasticity))

    def take_in(self, parameters: Tensor) -> None:
        """Move the center towards a worker's parameters."""
        self.load(torch.lerp(self.vector(), parameters, self.elasticity))
