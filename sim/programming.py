"""Table writes into an embedded switch of this process."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from controller.entries import Entry, MulticastGroup, Prefix
from controller.entries import Match as NamedMatch
from controller.errors import SwitchRefusedError
from controller.table_writer import Change, Key
from sim.switch import Exact, Lpm, Switch, SwitchError, TableEntry
from sim.switch.entries import Match

TOKEN_STEP = 0x9E3779B1
"""Odd, so that its multiples modulo 2^32 are tokens that do not repeat, the same in every run."""


class InProcessWriter:
    """The `controller.table_writer.TableWriter` of an embedded switch in the same process."""

    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        program = switch.program
        self._tables = {_short(name): table for name, table in program.tables.items()}
        self._counters = {_short(name): name for name in program.counters}
        self._actions = {
            short: {_short(program.actions[number].name): program.actions[number] for number in table.actions}
            for short, table in self._tables.items()
        }

    @property
    def tables(self) -> Collection[str]:
        """The names of the program's tables."""
        return self._tables

    def counter_name(self, name: str) -> str:
        """Return the full name of a counter, given its last component."""
        return self._counters[name]

    def write(self, change: Change, changed: Sequence[Entry], what: str) -> None:
        """Write entries; an entry without a match is its table's default action.

        Raises SwitchRefusedError if an entry does not fit the program, exists already, or does not exist. The entries before
        it are written.
        """
        with _refusing(f"{change.value} for {what}"):
            for one in changed:
                table = self._tables[one.table].name
                entry = self._table_entry(one)
                if not one.match:
                    self.switch.table_set_default(table, entry.action, entry.params)
                elif change is Change.INSERT:
                    self.switch.table_insert(table, entry)
                elif change is Change.MODIFY:
                    self.switch.table_modify(table, entry)
                else:
                    self.switch.table_delete(table, entry)

    def read(self, table: str) -> list[Entry]:
        """Return a table's entries."""
        return [self._named(table, entry) for entry in self.switch.table_entries(self._tables[table].name)]

    def set_group(self, group: MulticastGroup, what: str) -> None:
        """Create or replace a multicast group."""
        with _refusing(f"the multicast group of {what}"):
            self.switch.mcast_set(group.group_id, group.replicas)

    def delete_groups(self, group_ids: Collection[int], what: str) -> None:
        """Delete multicast groups; those that do not exist are ignored."""
        del what
        for group_id in self.switch.mcast_groups().keys() & group_ids:
            self.switch.mcast_delete(group_id)

    def groups(self) -> dict[int, MulticastGroup]:
        """Return the multicast groups by id."""
        return {
            number: MulticastGroup(number, replicas)
            for number, replicas in self.switch.mcast_groups().items()
        }

    def counters(self, names: Sequence[str], indexes: Sequence[int]) -> dict[int, dict[str, int]]:
        """Return the packets counted: by index, then by the counter's name."""
        return {
            index: {name: self.switch.counter_read(self._counters[name], index)[0] for name in names}
            for index in indexes
        }

    def reset_counters(self, names: Sequence[str], index: int) -> None:
        """Set one cell of some counters to zero."""
        for name in names:
            self.switch.counter_write(self._counters[name], index, 0, 0)

    def entry_counts(self, counted: Sequence[Entry]) -> dict[Key, int]:
        """Return the packets that matched each of some entries of one table; none if the program does not count them.

        Raises SwitchRefusedError if the table does not hold one of the entries.
        """
        if not counted or not self._tables[counted[0].table].with_counters:
            return {}
        table = self._tables[counted[0].table].name
        with _refusing("reading the counters of entries"):
            return {
                one.key: self.switch.direct_counter_read(table, self._table_entry(one))[0] for one in counted
            }

    def _table_entry(self, entry: Entry) -> TableEntry:
        """Return an entry as the engine takes it: matches and arguments in the program's order."""
        action = self._actions[entry.table][entry.action]
        values, arguments = dict(entry.match), dict(entry.params)
        fields = self._tables[entry.table].key if entry.match else ()
        key = tuple(_engine_match(values[field.name]) for field in fields)
        params = tuple(arguments[name] for name, _ in action.params)
        return TableEntry(key, action=action.name, params=params)

    def _named(self, table: str, entry: TableEntry) -> Entry:
        action = self._actions[table][_short(entry.action)]
        match = tuple(
            (field.name, _named_match(each))
            for field, each in zip(self._tables[table].key, entry.key, strict=True)
        )
        params = tuple((name, value) for (name, _), value in zip(action.params, entry.params, strict=True))
        return Entry(table, match, _short(entry.action), params)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _engine_match(value: NamedMatch) -> Match:
    return Lpm(value.value, value.length) if isinstance(value, Prefix) else Exact(value)


def _named_match(match: Match) -> NamedMatch:
    if isinstance(match, Lpm):
        return Prefix(match.value, match.prefix_length)
    assert isinstance(match, Exact), f"netsum's tables have exact and longest-prefix keys, not {match}"
    return match.value


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    try:
        yield
    except SwitchError as error:
        raise SwitchRefusedError(f"the embedded switch refused {what}: {error}") from None
