"""Strategies by name."""

import inspect
from dataclasses import dataclass
from typing import Any

from host_agent.errors import MisuseError
from host_agent.options import parameters_of, require_known
from host_agent.strategies.base import STRATEGIES, Strategy

_GIVEN = ("model", "optimizer")  # Parameters that are not options.


@dataclass(frozen=True)
class Option:
    """An option of a strategy."""

    name: str  # As a keyword.
    default: Any  # `inspect.Parameter.empty` if it must be given.

    def __str__(self) -> str:
        return self.name if self.default is inspect.Parameter.empty else f"{self.name}={self.default!r}"


def options_of(kind: type[Strategy]) -> list[Option]:
    """Return the options of a strategy, its own before those that all have."""
    return [Option(name, each.default) for name, each in parameters_of(kind).items() if name not in _GIVEN]


def own_options_of(kind: type[Strategy]) -> list[Option]:
    """Return the options of a strategy without those that all have."""
    common = {each.name for each in options_of(Strategy)}
    return [each for each in options_of(kind) if each.name not in common]


def strategy(name: str, model: Any, optimizer: Any, **options: Any) -> Strategy:
    """Return a strategy by name, for ``with netsum.strategy(…) as s:``.

    Parameters
    ----------
    name : str
        ``netsum strategies list`` prints them.
    model : torch.nn.Module
        Not wrapped.
    optimizer : torch.optim.Optimizer
        Of its parameters.
    **options
        Of the strategy; and `group` and `scaler`, see `Strategy`.

    Returns
    -------
    Strategy
        `Strategy` describes its use in a training loop.

    Raises
    ------
    MisuseError
        For a name, or an option, that does not exist, and for an option that is missing; the message lists those that exist.
    """
    if not isinstance(name, str) or name not in STRATEGIES:
        raise MisuseError(f"unknown strategy {name!r}: expected one of {', '.join(sorted(STRATEGIES))}")
    kind = STRATEGIES[name]
    known = options_of(kind)
    listed = ", ".join(map(str, known))
    require_known(f"strategy {name}", known, options)
    for each in known:
        if each.default is inspect.Parameter.empty and each.name not in options:
            raise MisuseError(f"strategy {name} needs the option {each.name!r}; its options are {listed}")
    return kind(model, optimizer, **options)
