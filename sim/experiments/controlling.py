"""The controller of an experiment: the times of its writes, and the behaviour of jobs while it is away."""

from collections.abc import Callable
from typing import Any

from sim.network.network import Network

Action = Callable[..., None]


class Controlling:
    """Carries out requests to the controller: after its delay, and not while it is away.

    `delay_ns`: from a request until its entries are in the switch.
    """

    def __init__(self, network: Network, delay_ns: int) -> None:
        self._network = network
        self._delay_ns = delay_ns
        self._away = False
        self._waiting: list[tuple[Action, tuple[Any, ...]]] = []

    def request(self, action: Action, *arguments: Any) -> None:
        """Let the controller do something, as soon as it can."""
        if self._away:
            self._waiting.append((action, arguments))
        elif self._delay_ns:
            self._network.at(self._network.now_ns + self._delay_ns, self._do, action, *arguments)
        else:
            action(*arguments)

    def leave(self) -> None:
        """Stop the controller: requests wait, those that are not carried out yet included."""
        self._away = True

    def come_back(self) -> None:
        """Carry out the requests that wait, in their order."""
        self._away = False
        waiting, self._waiting = self._waiting, []
        for action, arguments in waiting:
            self.request(action, *arguments)

    def _do(self, action: Action, *arguments: Any) -> None:
        if self._away:
            self._waiting.append((action, arguments))
        else:
            action(*arguments)
