"""The control plane's requests of a switch: tables, action profiles, externs, replication."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from netsum_common.targets import TARGETS
from sim.switch import ir
from sim.switch.entries import Match, TableEntry
from sim.switch.extern_memory import ExternMemory, MeterRate, write_meter
from sim.switch.layout import Context
from sim.switch.lending import Counts
from sim.switch.packets import Packets
from sim.switch.profile_memory import ProfileMemory
from sim.switch.replication import Replica, Replication
from sim.switch.saved_state import Digest
from sim.switch.switch_errors import EntryError, InUseError, UnknownNameError
from sim.switch.table_memory import TableMemory

GROWTH_TABLE, BMV2_GROWTH_BYTES = ".packet_growth", TARGETS["bmv2"].growth_bytes
"""How the name of a table ends whose default action has the bytes by which packets may grow, as compiled for BMv2."""


class ControlPlane(ABC):
    """The contents of a program's tables and externs, and the requests that read and change them.

    Calls may come from any thread; they run one after the other.

    `changes`: how often any control plane of this process has changed, so that an owner of thousands need not ask each.
    """

    changes: ClassVar[int] = 0
    growth_bytes: ClassVar[int] = TARGETS["embedded"].growth_bytes  # Bytes by which packets may grow.

    def __init__(self, program: ir.Program, context: Context) -> None:
        self.program = program
        self._lock = threading.RLock()
        self._externs = ExternMemory(program, context)
        self._replication = Replication()
        self._profiles = {p.name: ProfileMemory(program, p) for p in program.profiles.values()}
        self._tables = {
            t.name: TableMemory(program, t, self._profiles.get(t.profile or ""))
            for t in program.tables.values()
        }
        for name, memory in self._tables.items():
            if name.endswith(GROWTH_TABLE) and memory.table.default_params == (BMV2_GROWTH_BYTES,):
                memory.set_default(memory.default.action, (self.growth_bytes,))
        self._lent: list[Counts] = []
        self._version = 0
        self._dirty = True

    @property
    def version(self) -> int:
        """How often entries, groups or other things that the control plane writes have changed."""
        return self._version

    @property
    @abstractmethod
    def statistics(self) -> dict[str, int]:
        """Packets dropped since the switch started, by reason."""

    @abstractmethod
    def inject(self, packets: Packets, now_ns: int) -> Packets:
        """Run a batch through the switch; return what leaves, in order."""

    @abstractmethod
    def drain_digests(self) -> list[Digest]:
        """Return the digests since the last call, oldest first."""

    @abstractmethod
    def save_state(self) -> Any:
        """Return what `restore_state` takes."""

    @abstractmethod
    def restore_state(self, state: Any) -> None:
        """Restore a saved state."""

    def _collect(self) -> None:
        """Add what others count who run the program with these entries."""
        for each in self._lent:
            each.collect(self._externs, self._tables)

    def _changed(self) -> None:
        self._dirty = True
        self._version += 1
        ControlPlane.changes += 1

    @contextmanager
    def _change(self) -> Iterator[None]:
        with self._lock:
            yield
            self._changed()

    # Tables.

    def _table(self, name: str) -> TableMemory:
        if name not in self._tables:
            raise UnknownNameError(f"the program has no table {name!r}")
        return self._tables[name]

    def table_insert(self, table: str, entry: TableEntry) -> None:
        """Add an entry.

        Raises UnknownNameError if no such table, action, member or group. Raises DuplicateError if an entry with this key
        (and priority) is there. Raises FullError if the table holds as many entries as the program declares. Raises
        EntryError if the entry does not fit the table.
        """
        with self._change():
            self._table(table).insert(entry)

    def table_modify(self, table: str, entry: TableEntry) -> None:
        """Replace the action of the entry with the same key (and priority); raises as `table_insert`."""
        with self._change():
            self._table(table).modify(entry)

    def table_delete(self, table: str, entry: TableEntry) -> None:
        """Remove the entry with the same key (and priority); raises as `table_insert`."""
        with self._change():
            self._table(table).delete(entry)

    def table_entry(self, table: str, key: tuple[Match, ...], priority: int = 0) -> TableEntry:
        """Return the entry with this key (and priority); raises `UnknownNameError` if there is none."""
        with self._lock:
            memory = self._table(table)
            return memory.entries[memory.number(TableEntry(key, priority))]

    def table_entries(self, table: str) -> list[TableEntry]:
        """Return a table's entries, constant ones included, in the order they came."""
        with self._lock:
            return list(self._table(table).entries.values())

    def table_set_default(self, table: str, action: str, params: Sequence[int] = ()) -> None:
        """Set the action of a miss; `EntryError` if the program makes it constant."""
        with self._change():
            self._table(table).set_default(action, tuple(params))

    def table_reset_default(self, table: str) -> None:
        """Restore the default action that the program declares."""
        with self._change():
            self._table(table).reset_default()

    def table_default(self, table: str) -> tuple[str, tuple[int, ...]] | None:
        """Return the action of a miss and its arguments, or None if there is none."""
        with self._lock:
            default = self._table(table).default
            return (default.action, default.params) if default.action else None

    def direct_counter_read(self, table: str, entry: TableEntry) -> tuple[int, int]:
        """Return (packets, bytes) that matched an entry."""
        with self._lock:
            self._collect()
            return _count(self._direct_counter(table, entry))

    def direct_counter_write(self, table: str, entry: TableEntry, packets: int, size: int) -> None:
        """Set an entry's (packets, bytes)."""
        with self._lock:
            self._collect()
            _set_count(self._direct_counter(table, entry), packets, size)

    def _direct_counter(self, table: str, entry: TableEntry) -> NDArray[np.uint64]:
        memory = self._table(table)
        if not memory.table.with_counters:
            raise EntryError(f"table {table} has no direct counters")
        cell: NDArray[np.uint64] = memory.counters[memory.number(entry)]
        return cell

    def direct_meter_config(self, table: str, entry: TableEntry, rates: Sequence[MeterRate] | None) -> None:
        """Set the rates of an entry's meter; as `meter_config`."""
        with self._lock:
            write_meter(self._direct_meter(table, entry), None if rates is None else tuple(rates))

    def _direct_meter(self, table: str, entry: TableEntry) -> NDArray[np.uint64]:
        memory = self._table(table)
        if memory.meter is None:
            raise EntryError(f"table {table} has no direct meter")
        cell: NDArray[np.uint64] = memory.meters[memory.number(entry)]
        return cell

    # Action profiles.

    def _profile(self, name: str) -> ProfileMemory:
        if name not in self._profiles:
            raise UnknownNameError(f"the program has no action profile {name!r}")
        return self._profiles[name]

    def member_insert(self, profile: str, member: int, action: str, params: Sequence[int] = ()) -> None:
        """Add a member to an action profile."""
        with self._change():
            self._profile(profile).insert_member(member, action, tuple(params))

    def member_modify(self, profile: str, member: int, action: str, params: Sequence[int] = ()) -> None:
        """Replace a member's action."""
        with self._change():
            self._profile(profile).modify_member(member, action, tuple(params))

    def member_delete(self, profile: str, member: int) -> None:
        """Remove a member that no entry and no group leads to."""
        with self._change():
            self._refuse_if_used(profile, "member", member)
            self._profile(profile).delete_member(member)

    def members(self, profile: str) -> dict[int, tuple[str, tuple[int, ...]]]:
        """Return an action profile's members: action and arguments by member."""
        with self._lock:
            return dict(self._profile(profile).members)

    def group_insert(self, profile: str, group: int, members: Sequence[tuple[int, int]]) -> None:
        """Add a group of (member, weight) pairs."""
        with self._change():
            self._profile(profile).set_group(group, tuple(members), new=True)

    def group_modify(self, profile: str, group: int, members: Sequence[tuple[int, int]]) -> None:
        """Replace a group's (member, weight) pairs."""
        with self._change():
            self._profile(profile).set_group(group, tuple(members), new=False)

    def group_delete(self, profile: str, group: int) -> None:
        """Remove a group that no entry leads to."""
        with self._change():
            self._refuse_if_used(profile, "group", group)
            self._profile(profile).delete_group(group)

    def groups(self, profile: str) -> dict[int, tuple[tuple[int, int], ...]]:
        """Return an action profile's groups: (member, weight) pairs by group."""
        with self._lock:
            return dict(self._profile(profile).groups)

    def _refuse_if_used(self, profile: str, kind: str, number: int) -> None:
        for name, table in self._tables.items():
            if table.table.profile == profile and any(
                getattr(entry, kind) == number for entry in table.entries.values()
            ):
                raise InUseError(f"{kind} {number} of {profile} is used by an entry of table {name}")

    # Externs.

    def counter_read(self, name: str, index: int) -> tuple[int, int]:
        """Return a counter's (packets, bytes)."""
        with self._lock:
            self._collect()
            return _count(self._externs.counter(name, index))

    def counter_write(self, name: str, index: int, packets: int, size: int) -> None:
        """Set a counter's (packets, bytes)."""
        with self._lock:
            self._collect()
            _set_count(self._externs.counter(name, index), packets, size)

    def meter_config(self, name: str, index: int, rates: Sequence[MeterRate] | None) -> None:
        """Set a meter's rates.

        `rates`: (tokens per microsecond, burst in tokens), lowest first; a token is a packet or a byte, as the program says.
        None lets everything pass green.
        """
        with self._lock:
            write_meter(self._externs.meter(name, index), None if rates is None else tuple(rates))

    def register_view(self, name: str) -> NDArray[Any]:
        """Return a register array as a NumPy view: unsigned cells, or uint64[n, words] if wider than 64 bits."""
        return self._externs.register_view(name)

    def value_set_write(self, name: str, values: Sequence[int]) -> None:
        """Replace the members of a parser's value set, each the parts of the key, padded to whole bytes, as one number.

        Raises UnknownNameError if the program has none of that name. Raises EntryError if a value does not fit the key.
        """
        with self._change():
            self._externs.set_value_set(name, values)

    # Replication.

    def mcast_set(self, group: int, replicas: Sequence[Replica]) -> None:
        """Make or replace multicast group `group` (1…65535): (port, rid) per copy."""
        with self._change():
            self._replication.set_group(group, replicas)

    def mcast_delete(self, group: int) -> None:
        """Remove a multicast group."""
        with self._change():
            self._replication.delete_group(group)

    def mcast_groups(self) -> dict[int, tuple[Replica, ...]]:
        """Return the replicas of every multicast group."""
        with self._lock:
            return dict(self._replication.groups)

    def clone_set(self, session: int, replicas: Sequence[Replica], truncate_bytes: int = 0) -> None:
        """Make or replace clone session `session` (0…32767), its copies cut to `truncate_bytes` if not 0."""
        with self._change():
            self._replication.set_session(session, replicas, truncate_bytes)

    def clone_delete(self, session: int) -> None:
        """Remove a clone session."""
        with self._change():
            self._replication.delete_session(session)


def _count(cell: NDArray[np.uint64]) -> tuple[int, int]:
    """Return the (packets, bytes) of a cell, uint64[2] or with a row for each processor."""
    packets, size = cell.reshape(-1, 2).sum(0).tolist()
    return packets, size


def _set_count(cell: NDArray[np.uint64], packets: int, size: int) -> None:
    cell[...] = 0
    cell[(0,) * (cell.ndim - 1)] = (packets, size)
