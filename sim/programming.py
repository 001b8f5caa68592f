"""The controller's table entries, written into an embedded switch of this process."""

from __future__ import annotations

from collections.abc import Iterable

from controller.entries import Entry, Group, Prefix
from sim.switch import Exact, Lpm, Switch, TableEntry
from sim.switch.entries import Match

__all__ = ["SwitchTables"]


class SwitchTables:
    """The tables and groups of a switch, by the names that `controller.entries` uses.

    Parameters
    ----------
    switch : Switch
        A switch with a netsum program.
    """

    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        program = switch.program
        names = [*program.tables, *program.counters, *(action.name for action in program.actions.values())]
        self._names = {name.rpartition(".")[2]: name for name in names}

    def full_name(self, name: str) -> str:
        """Return the name in the program of a table, an action or a counter, given its last component."""
        return self._names[name]

    def insert(self, entries: Iterable[Entry]) -> None:
        """Add entries; an entry without a match becomes its table's default action."""
        for entry in entries:
            if entry.match:
                self.switch.table_insert(self._names[entry.table], self._table_entry(entry))
            else:
                params = tuple(value for _, value in entry.params)
                self.switch.table_set_default(self._names[entry.table], self._names[entry.action], params)

    def delete(self, entries: Iterable[Entry]) -> None:
        """Remove entries."""
        for entry in entries:
            self.switch.table_delete(self._names[entry.table], self._table_entry(entry))

    def set_group(self, group: Group) -> None:
        """Make or replace a multicast group."""
        self.switch.mcast_set(group.group_id, group.replicas)

    def counter(self, name: str, index: int) -> int:
        """Return how many packets a counter has counted."""
        return self.switch.counter_read(self._names[name], index)[0]

    def _table_entry(self, entry: Entry) -> TableEntry:
        key: list[Match] = []
        for _, value in entry.match:
            key.append(Lpm(value.value, value.length) if isinstance(value, Prefix) else Exact(value))
        params = tuple(value for _, value in entry.params)
        return TableEntry(tuple(key), action=self._names[entry.action], params=params)
