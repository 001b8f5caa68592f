"""The controller of an experiment: when it writes what, and what a job does while it is away."""

from collections.abc import Callable
from typing import Any

from sim.network.network import Network

Action = Callable[..., None]


class Controlling:
    """Does what the controller is asked for: after its delay, and not while it is away.

    `delay_ns`: from a request until its entries are in the switch.
    """

    def __init__(self, network: Network, delay_ns: int) -> None:
        self._network = network
        self._delay_ns = delay_ns
        self._away = False
        self._waiting: list[tuple[Action, tuple[Any, ...]]] = []

    def ask(self, action: Action, *arguments: Any) -> None:
        """Let the controller do something, as soon as it can."""
        if self._away:
            self._waiting.append((action, arguments))
        elif self._delay_ns:
            self._network.at(self._network.now_ns + self._delay_ns, self._do, action, *arguments)
        else:
            action(*arguments)

    def leave(self) -> None:
        """Be away: what is asked for, or was and is not done yet, waits."""
        self._away = True

    def come_back(self) -> None:
        """Do what waits, in the order in which it was asked for."""
        self._away = False
        waiting, self._waiting = self._waiting, []
        for action, arguments in waiting:
            self.ask(action, *arguments)

    def _do(self, action: Action, *arguments: Any) -> None:
        if self._away:
            self._waiting.append((action, arguments))
        else:
            action(*arguments)
