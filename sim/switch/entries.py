"""Table entries as the control plane writes them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Exact:
    """The field equals `value`."""

    value: int


@dataclass(frozen=True)
class Lpm:
    """The first `prefix_length` bits of the field equal those of `value`."""

    value: int
    prefix_length: int


@dataclass(frozen=True)
class Ternary:
    """The field under `mask` equals `value`."""

    value: int
    mask: int


@dataclass(frozen=True)
class Range:
    """The field lies between `low` and `high`, both included."""

    low: int
    high: int


@dataclass(frozen=True)
class Optional:
    """The field equals `value`, or is anything if `value` is None."""

    value: int | None


Match = Exact | Lpm | Ternary | Range | Optional


@dataclass(frozen=True)
class TableEntry:
    """An entry of a table.

    Attributes
    ----------
    key
        One match per key field, in the program's order.
    priority
        As in P4Runtime: of the entries that match, the one with the largest priority wins. Ignored by exact and LPM tables.
    action, params
        The action's name as in the program and its arguments. Of a table with an action profile, `action` is empty and
        `member` or `group` is set.
    """

    key: tuple[Match, ...] = ()
    priority: int = 0
    action: str = ""
    params: tuple[int, ...] = ()
    member: int | None = None
    group: int | None = None

    @property
    def identity(self) -> tuple[tuple[Match, ...], int]:
        """The key and the priority, by which a controller names the entry."""
        return self.key, self.priority
