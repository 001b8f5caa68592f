"""The interface by which `controller.switch_tables` reads and writes a switch, independent of the transport.

Two classes implement them: `controller.p4runtime_writer.P4RuntimeWriter` for switches that serve P4Runtime, and
`sim.programming.InProcessWriter` for an embedded switch in the same process.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Protocol

from controller.entries import Entry, Match, MulticastGroup

Key = tuple[str, tuple[tuple[str, Match], ...]]  # `Entry.key`: the table, and the value of each key field.


class Change(Enum):
    """A kind of change to an entry."""

    INSERT = "insert"
    MODIFY = "modify"
    DELETE = "delete"


class TableWriter(Protocol):
    """Reads and writes one switch, by the names of its P4 program. Not for several threads at once.

    Every method raises `ControllerError` if the switch refuses the request or does not answer. The argument `what`
    names the purpose of the request in the error message.
    """

    @property
    def tables(self) -> Collection[str]:
        """The names of the program's tables."""

    def write(self, change: Change, changed: Sequence[Entry], what: str) -> None:
        """Write entries in one request; an entry without a match is its table's default action, which can only be modified."""

    def read(self, table: str) -> list[Entry]:
        """Return a table's entries, without its default action."""

    def set_group(self, group: MulticastGroup, what: str) -> None:
        """Create or replace a multicast group."""

    def delete_groups(self, group_ids: Collection[int], what: str) -> None:
        """Delete multicast groups; those that this writer neither set nor read are left as they are."""

    def groups(self) -> Mapping[int, MulticastGroup]:
        """Return the multicast groups by id; none if the switch cannot list them."""

    def counters(self, names: Sequence[str], indexes: Sequence[int]) -> dict[int, dict[str, int]]:
        """Return the packets counted in some cells of some counters: by index, then by the counter's name."""

    def reset_counters(self, names: Sequence[str], index: int) -> None:
        """Set one cell of some counters to zero."""

    def entry_counts(self, counted: Sequence[Entry]) -> dict[Key, int]:
        """Return the packets that matched each of some entries of one table; none if the program does not count them."""
