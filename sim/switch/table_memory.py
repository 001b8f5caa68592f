"""One table's entries: as the control plane wrote them, and as the arrays that machine code searches."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.switch import ir
from sim.switch.action_words import find_action, pack_action
from sim.switch.codegen.externs import METER_RATE_WORDS
from sim.switch.entries import Exact, Lpm, Match, Optional, Range, TableEntry, Ternary
from sim.switch.profile_memory import ProfileMemory
from sim.switch.switch_errors import DuplicateError, EntryError, FullError, UnknownNameError
from sim.switch.table_layout import TOMBSTONE, TableShape, mix, split, words

_M64 = (1 << 64) - 1
# A constant entry of BMv2 priority p, where the smallest wins, has the P4Runtime priority CONST_PRIORITY - p.
CONST_PRIORITY = 0xFFFFFF


def _address(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


class TableMemory:
    """The entries of one table."""

    def __init__(self, program: ir.Program, table: ir.Table, profile: ProfileMemory | None) -> None:
        self.program = program
        self.table = table
        self.profile = profile
        self.shape = TableShape.of(program, table)
        self.dirty = True
        # identity of an entry -> its number; number -> entry
        self.numbers: dict[object, int] = {}
        self.entries: dict[int, TableEntry] = {}
        self.free: list[int] = []
        self.records = np.zeros((2, self.shape.entry_words), np.uint64)
        self.counters = np.zeros((2, 2), np.uint64)
        self.meter = program.meters[table.direct_meter] if table.direct_meter else None
        rates = self.meter.rates if self.meter else 0
        self.meters = np.zeros((2, rates, METER_RATE_WORDS), np.uint64)
        self.rows = np.zeros((1, self.shape.row_words), np.uint64)
        self.row_count = 0
        self._used = 0
        self.default: TableEntry = TableEntry()
        self._load()

    def _load(self) -> None:
        """Write the entries that the program itself declares."""
        table = self.table
        if table.default_action is not None:
            action = self.program.actions[table.default_action]
            self.default = TableEntry(action=action.name, params=table.default_params)
            if not self.shape.indirect:
                self.records[0, : 1 + sum(words(w) for _, w in action.params)] = pack_action(
                    action, table.default_params
                )
        elif self.shape.indirect:
            self.records[0] = 0
        else:
            self.records[0, 0] = _M64
        for entry in table.entries:
            key = tuple(self._const_match(f, v, s) for f, (v, s) in zip(table.key, entry.key, strict=True))
            priority = 0 if table.kind in ("exact", "lpm") else CONST_PRIORITY - entry.priority
            name = self.program.actions[entry.action].name
            if self.numbers.get(self._identity(TableEntry(key, priority))) is None:
                self._insert(TableEntry(key, priority, name, entry.params), entry.action)

    def _const_match(self, field: ir.KeyField, value: int, second: int | None) -> Match:
        if field.kind == "range":
            assert second is not None
            return Range(value, second)
        if field.kind == "lpm":
            return Lpm(value, second if second is not None else field.width)
        if field.kind in ("ternary", "optional"):
            return Ternary(value, second if second is not None else (1 << field.width) - 1)
        return Exact(value)

    # Match of an entry.

    def _value_and_mask(self, field: ir.KeyField, match: Match) -> tuple[int, int]:
        full = (1 << field.width) - 1
        if isinstance(match, Exact):
            value, mask = match.value, full
        elif isinstance(match, Lpm):
            if not 0 <= match.prefix_length <= field.width:
                raise EntryError(
                    f"prefix length {match.prefix_length} of {field.name} is not 0…{field.width}"
                )
            value, mask = match.value, full ^ (full >> match.prefix_length)
        elif isinstance(match, Ternary):
            value, mask = match.value, match.mask
        elif isinstance(match, Optional):
            value, mask = (0, 0) if match.value is None else (match.value, full)
        else:
            raise EntryError(f"field {field.name} of table {self.table.name} takes no range")
        if not (0 <= value <= full and 0 <= mask <= full):
            raise EntryError(f"key field {field.name} of table {self.table.name} has {field.width} bits")
        return value & mask, mask

    def _check_kinds(self, key: tuple[Match, ...]) -> None:
        allowed: dict[str, tuple[type, ...]] = {
            "exact": (Exact,),
            "valid": (Exact,),
            "lpm": (Lpm, Exact),
            "ternary": (Ternary, Optional, Lpm, Exact),
            "optional": (Optional, Exact, Ternary),
            "range": (Range,),
        }
        if len(key) != len(self.table.key):
            raise EntryError(f"table {self.table.name} has {len(self.table.key)} key fields, not {len(key)}")
        for field, match in zip(self.table.key, key, strict=True):
            if not isinstance(match, allowed[field.kind]):
                kind = type(match).__name__
                raise EntryError(
                    f"key field {field.name} of table {self.table.name} is {field.kind}, not {kind}"
                )
            if isinstance(match, Range) and not 0 <= match.low <= match.high < 1 << field.width:
                raise EntryError(f"range of key field {field.name} is empty or wider than {field.width} bits")

    def _identity(self, entry: TableEntry) -> object:
        """Return the identity of an entry: its match and, where it counts, its priority."""
        self._check_kinds(entry.key)
        matches: list[object] = []
        for field, match in zip(self.table.key, entry.key, strict=True):
            if isinstance(match, Range):
                matches.append((match.low, match.high))
            else:
                matches.append(self._value_and_mask(field, match))
        return tuple(matches), (0 if self.table.kind in ("exact", "lpm") else entry.priority)

    # The control plane's requests.

    def number(self, entry: TableEntry) -> int:
        """Return the number of the entry with this key (and priority), or raise `UnknownNameError`."""
        number = self.number_of(entry)
        if number is None:
            raise UnknownNameError(f"table {self.table.name} has no entry with key {entry.key}")
        return number

    def _check_mutable(self) -> None:
        if self.table.immutable:
            raise EntryError(f"table {self.table.name} has constant entries, which cannot be changed")

    def insert(self, entry: TableEntry) -> None:
        """Add an entry.

        Raises EntryError if the table takes none, or not this one. Raises DuplicateError if one with its key is there.
        Raises FullError if the table holds as many as it can.
        """
        self._check_mutable()
        if not self.table.key:
            raise EntryError(
                f"table {self.table.name} has no key, so it has only the default entry: modify that"
            )
        if self._identity(entry) in self.numbers:
            raise DuplicateError(
                f"table {self.table.name} has this entry already: modify it to change its action"
            )
        if len(self.entries) >= self.table.size:
            raise FullError(f"table {self.table.name} is full: it holds {self.table.size} entries")
        self._insert(entry, None)

    def _insert(self, entry: TableEntry, action: int | None) -> None:
        record = self._record(entry, action)
        number = self.free.pop() if self.free else len(self.entries) + 1
        if number >= len(self.records):
            self._grow()
        self.numbers[self._identity(entry)] = number
        self.entries[number] = entry
        self._write(number, record)
        self.counters[number] = 0
        self.meters[number] = 0
        if self.shape.hashed:
            self._hash_in(entry, number)
        self.dirty = True

    def _grow(self) -> None:
        self.records, self.counters, self.meters = (
            np.concatenate([a, np.zeros_like(a)]) for a in (self.records, self.counters, self.meters)
        )

    def modify(self, entry: TableEntry) -> None:
        """Give an entry another action."""
        self._check_mutable()
        number = self.number(entry)
        self._write(number, self._record(entry, None))
        self.entries[number] = entry
        self.dirty = True

    def delete(self, entry: TableEntry) -> None:
        """Remove an entry."""
        self._check_mutable()
        number = self.number(entry)
        if self.shape.hashed:
            self._hash_out(self.entries[number])
        del self.entries[number], self.numbers[self._identity(entry)]
        self.free.append(number)
        self.dirty = True

    def set_default(self, action: str, params: tuple[int, ...]) -> None:
        """Set what happens on a miss.

        Raises EntryError if the program keeps it, or the table has an action profile. Raises UnknownNameError if the table
        has no such action.
        """
        if self.table.default_const:
            raise EntryError(f"the default action of table {self.table.name} is constant")
        if self.shape.indirect:
            raise EntryError(f"table {self.table.name} has an action profile, so no default action to set")
        found = find_action(self.program, self.table.actions, action, self.table.name)
        self._write(0, pack_action(found, params))
        self.default = TableEntry(action=action, params=params)
        self.dirty = True

    def reset_default(self) -> None:
        """Restore the default action that the program declares."""
        if self.table.default_action is not None and not self.table.default_const:
            action = self.program.actions[self.table.default_action]
            self.set_default(action.name, self.table.default_params)

    def _write(self, number: int, record: list[int]) -> None:
        self.records[number] = 0
        self.records[number, : len(record)] = np.array(record, np.uint64)

    def _record(self, entry: TableEntry, action: int | None) -> list[int]:
        if self.profile is not None:
            if (entry.member is None) == (entry.group is None):
                raise EntryError(
                    f"an entry of table {self.table.name} names a member or a group of its profile"
                )
            if entry.member is not None:
                return [0, self.profile.member_index(entry.member)]
            assert entry.group is not None
            return [1, self.profile.group_index(entry.group)]
        found = (
            self.program.actions[action]
            if action is not None
            else find_action(self.program, self.table.actions, entry.action, self.table.name)
        )
        return pack_action(found, entry.params)

    # The arrays.

    def _key(self, entry: TableEntry) -> tuple[int, int]:
        """Return the value and mask of an entry's key as single numbers, range fields left out."""
        value = mask = 0
        for field, match in zip(self.table.key, entry.key, strict=True):
            if field.kind != "range":
                v, m = self._value_and_mask(field, match)
                value, mask = value << field.width | v, mask << field.width | m
        return value, mask

    def _hash_in(self, entry: TableEntry, number: int) -> None:
        if 2 * (self._used + 1) > len(self.rows):
            self._rehash()
            return
        self._place(split(self._key(entry)[0], self.shape.key_words), number)

    def _place(self, key: list[int], number: int) -> None:
        last = len(self.rows) - 1
        at = mix(tuple(key)) & last
        while self.rows[at, -1]:
            at = (at + 1) & last
        self.rows[at] = np.array([*key, number + 1], np.uint64)
        self._used += 1

    def _rehash(self) -> None:
        size = 4
        while size < 4 * len(self.entries):
            size *= 2
        self.rows = np.zeros((size, self.shape.row_words), np.uint64)
        self._used = 0
        for number, entry in self.entries.items():
            self._place(split(self._key(entry)[0], self.shape.key_words), number)

    def _hash_out(self, entry: TableEntry) -> None:
        """Make an entry's row one that no key matches, so that rows probed past it are still found."""
        key = split(self._key(entry)[0], self.shape.key_words)
        last = len(self.rows) - 1
        at = mix(tuple(key)) & last
        while self.rows[at, :-1].tolist() != key or self.rows[at, -1] == TOMBSTONE:
            at = (at + 1) & last
        self.rows[at, -1] = TOMBSTONE

    def _order(self) -> list[int]:
        """Return the entries' numbers, the one that wins first."""
        if self.table.kind == "lpm":
            return sorted(self.entries, key=lambda n: -self._key(self.entries[n])[1].bit_count())
        return sorted(self.entries, key=lambda n: -self.entries[n].priority)

    def _row(self, number: int) -> list[int]:
        entry = self.entries[number]
        value, mask = self._key(entry)
        row = split(value, self.shape.key_words) + split(mask, self.shape.key_words)
        for position in self.shape.ranges:
            match = entry.key[position]
            assert isinstance(match, Range)
            width = words(self.table.key[position].width)
            row += split(match.low, width) + split(match.high, width)
        return [*row, number]

    def sync(self, context: NDArray[np.int64], first: int) -> None:
        """Write the table's words into the context, from position `first`."""
        if self.shape.hashed:
            self.row_count = len(self.rows) - 1
        elif self.dirty:
            rows = [self._row(number) for number in self._order()]
            self.rows = np.array(rows, np.uint64).reshape(len(rows), self.shape.row_words)
            self.row_count = len(rows)
        arrays = [self.rows, self.records, self.counters, self.meters]
        context[first] = _address(arrays[0])
        context[first + 1] = self.row_count
        context[first + 2 : first + 5] = [_address(a) for a in arrays[1:]]
        if self.profile is not None:
            context[first + 5 : first + 8] = self.profile.addresses()
        self.dirty = False

    def shared_arrays(self) -> list[NDArray[Any]]:
        """Return the arrays of entries whose addresses `sync` wrote."""
        profile = [] if self.profile is None else self.profile.arrays()
        return [self.rows, self.records, *profile]

    def number_of(self, entry: TableEntry) -> int | None:
        """Return the number of the entry with this key, None if it is not there."""
        return self.numbers.get(self._identity(entry))
