"""Values that a switch hands out to keep: its whole state, and its digests."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from sim.switch import ir


@dataclass(frozen=True)
class Digest:
    """A digest that a packet sent to the control plane: its name and its fields' values."""

    name: str
    values: tuple[int, ...]


@dataclass(frozen=True)
class SwitchState:
    """Everything a switch holds, from `Switch.save_state`; immutable, good for any switch of the same program."""

    arrays: tuple[NDArray[Any], ...]
    random: int
    digests: tuple[Digest, ...]
    control: Any
    control_version: tuple[int, int]


def shared_parts(program: ir.Program) -> dict[int, Any]:
    """Return the parts of a program that copies of a table refer to, for `copy.deepcopy` to leave alone."""
    parts: list[Any] = [*program.tables.values(), *program.profiles.values(), *program.meters.values()]
    return {id(part): part for part in parts}
