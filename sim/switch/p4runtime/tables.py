"""Table entries: key and priority, action, direct counter and meter, and what only controllers read."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from netsum_common.p4rt import p4runtime_pb2
from sim.switch import SwitchError, TableEntry, UnknownNameError
from sim.switch.control_plane import ControlPlane
from sim.switch.entries import Match
from sim.switch.p4runtime.actions import decode_action, encode_action
from sim.switch.p4runtime.catalog import Catalog, MatchKind, Scope, Table, lookup
from sim.switch.p4runtime.direct import DirectResources
from sim.switch.p4runtime.idle import IdleWatch
from sim.switch.p4runtime.keys import canonical_key, decode_key, encode_key
from sim.switch.p4runtime.profiles import ActionProfiles
from sim.switch.p4runtime.status_errors import invalid, not_found, permission_denied
from sim.switch.p4runtime.stores import EntityStore

Identity: TypeAlias = tuple[tuple[Match, ...], int]
"""Identity of an entry: its key and its priority."""


@dataclass(frozen=True)
class Note:
    """Data that a controller writes with an entry and only controllers read; the entry itself is in the engine alone."""

    # The `ActionProfileActionSet` it brought along, which its group stands for.
    action_set: Any | None = None
    # metadata, cookie: P4Runtime's `metadata` and the older `controller_metadata`.
    metadata: bytes = b""
    cookie: int = 0
    idle_timeout_ns: int = 0  # After how long without a hit the controller is notified; 0 for never.


_NO_NOTE = Note()


class Tables(EntityStore):
    """The tables of a switch, as P4Runtime describes them.

    The engine stores the entries and checks them against the program. Kept here are the notes of those entries that have one.
    """

    CHANGED = ("_notes", "_defaults")

    def __init__(
        self,
        catalog: Catalog,
        switch: ControlPlane,
        profiles: ActionProfiles,
        direct: DirectResources,
        clock_ns: Callable[[], int],
    ) -> None:
        self._catalog = catalog
        self._switch = switch
        self._profiles = profiles
        self._direct = direct
        self._clock_ns = clock_ns
        self.idle_watch = IdleWatch(lambda table, entry: switch.direct_counter_read(table, entry)[0])
        self._notes: dict[int, dict[Identity, Note]] = {number: {} for number in catalog.tables}
        self._defaults: dict[int, Note] = {}
        for table in catalog.tables.values():
            for entry in self._entries(table):
                self._keep(table, entry, _NO_NOTE)

    # Writing

    def insert(self, message: Any) -> None:
        """Add an entry."""
        table = self.table(message)
        if message.is_default_action:
            raise invalid(f"{table.name}: the default entry always exists; use MODIFY")
        if table.fixed:
            raise permission_denied(f"{table.name}: the program fixes its entries")
        identity = self._identity(message, table)
        if not message.HasField("action"):
            raise invalid(f"{table.name}: the action is missing")
        self._check(message, table)
        entry, note = self._put(message, table, identity, self._switch.table_insert)
        self._keep(table, entry, note)
        self._direct.write(message, table, entry)

    def modify(self, message: Any) -> None:
        """Change an entry, or the default one."""
        table = self.table(message)
        if message.is_default_action:
            self._modify_default(message, table)
            return
        identity = self._identity(message, table)
        self._check(message, table)
        old = self._existing(table, identity)
        old_note = self._note(table, old)
        if message.HasField("action"):
            if table.fixed:
                raise permission_denied(f"{table.name}: the program fixes the actions of its entries")
            entry, note = self._put(message, table, identity, self._switch.table_modify)
            self._release(table, old, old_note)
        else:
            entry, note = old, _note_of(message, old_note.action_set)
        self._keep(table, entry, note)
        self._direct.write(message, table, entry)

    def delete(self, message: Any) -> None:
        """Remove an entry. Nothing but its key and priority is read."""
        table = self.table(message)
        if message.is_default_action:
            raise invalid(
                f"{table.name}: the default entry cannot be deleted; MODIFY without action resets it"
            )
        identity = self._identity(message, table)
        if table.fixed:
            raise permission_denied(f"{table.name}: the program fixes its entries")
        old = self._existing(table, identity)
        if table.ageing:
            self.idle_watch.evict(table.name, old)
        self._switch.table_delete(table.name, old)
        note = self._notes[table.id].pop(identity, _NO_NOTE)
        self._direct.evict(table, old)
        self._release(table, old, note)

    def _modify_default(self, message: Any, table: Table) -> None:
        if message.match or message.priority:
            raise invalid(f"{table.name}: the default entry has neither key nor priority")
        if message.idle_timeout_ns:
            raise invalid(f"{table.name}: the default entry has no idle time-out")
        if table.profile_id:
            raise invalid(f"{table.name}: the default action of a table with an action profile is fixed")
        if table.const_default:
            raise permission_denied(f"{table.name}: the program fixes the default action")
        self._check(message, table)
        if message.HasField("action"):
            self._switch.table_set_default(table.name, *self._action(message, table))
            self._defaults[table.id] = _note_of(message)
        else:
            self._switch.table_reset_default(table.name)
            self._defaults.pop(table.id, None)

    def _put(
        self, message: Any, table: Table, identity: Identity, put: Callable[[str, TableEntry], None]
    ) -> tuple[TableEntry, Note]:
        """Give an entry the message's action by `put`, the engine's method."""
        form = message.action.WhichOneof("type")
        action_set = None
        if not table.profile_id:
            name, params = self._action(message, table)
            entry = TableEntry(*identity, name, params)
            put(table.name, entry)
        elif form == "action_profile_action_set":
            action_set = p4runtime_pb2.ActionProfileActionSet()
            action_set.CopyFrom(message.action.action_profile_action_set)
            entry = TableEntry(*identity, group=self._profiles.add_set(table.profile_id, action_set))
            try:
                put(table.name, entry)
            except SwitchError:
                self._profiles.remove_set(table.profile_id, entry.group or 0)
                raise
        elif form in ("action_profile_member_id", "action_profile_group_id"):
            kind = "member" if form == "action_profile_member_id" else "group"
            number = getattr(message.action, form)
            self._profiles.by_hand(table.profile_id)
            entry = replace(TableEntry(*identity), **{kind: number})
            put(table.name, entry)
        else:
            raise invalid(f"{table.name} has an action profile: give a member, a group or a set of actions")
        return entry, _note_of(message, action_set)

    def _release(self, table: Table, entry: TableEntry, note: Note) -> None:
        """Remove the set of actions that an entry brought along, once nothing leads to it."""
        if entry.group is not None and note.action_set is not None:
            self._profiles.remove_set(table.profile_id, entry.group)

    def _keep(self, table: Table, entry: TableEntry, note: Note) -> None:
        notes, identity = self._notes[table.id], entry.identity
        if note != _NO_NOTE:
            notes[identity] = note
        else:
            notes.pop(identity, None)
        if table.ageing:
            self.idle_watch.watch(table.name, entry, note.idle_timeout_ns, self._clock_ns())

    def _note(self, table: Table, entry: TableEntry) -> Note:
        return self._notes[table.id].get(entry.identity, _NO_NOTE)

    def _action(self, message: Any, table: Table) -> tuple[str, tuple[int, ...]]:
        if message.action.WhichOneof("type") != "action":
            raise invalid(f"{table.name} has no action profile: give an action")
        action, params = decode_action(message.action.action, self._catalog)
        scope = table.scopes.get(action.id)
        if scope is None:
            raise invalid(f"{table.name} has no action {action.name}")
        if scope is Scope.TABLE_ONLY and message.is_default_action:
            raise permission_denied(f"{table.name}: {action.name} may not be the default action")
        if scope is Scope.DEFAULT_ONLY and not message.is_default_action:
            raise permission_denied(f"{table.name}: {action.name} may only be the default action")
        return action.name, params

    def _check(self, message: Any, table: Table) -> None:
        """Refuse properties that the table or its entries cannot have, before anything is changed."""
        if message.is_const:
            raise invalid(f"{table.name}: is_const is set by the switch; leave it unset")
        if message.HasField("time_since_last_hit"):
            raise invalid(f"{table.name}: time_since_last_hit can be read, not written")
        if message.idle_timeout_ns < 0:
            raise invalid(f"{table.name}: idle_timeout_ns must not be negative")
        if message.idle_timeout_ns and not table.ageing:
            raise invalid(f"{table.name} has no idle time-out; leave idle_timeout_ns 0")
        self._direct.check(message, table)

    # Finding

    def default_is_set(self, table_id: int) -> bool:
        """Whether a controller has set the table's default action."""
        return table_id in self._defaults

    def table(self, message: Any) -> Table:
        """Find the table that a message names."""
        return lookup(self._catalog.tables, message.table_id, "table")

    def find(self, message: Any) -> tuple[Table, TableEntry]:
        """Find the entry that a message names by its key and priority.

        Raises P4RuntimeError: NOT_FOUND: there is none; INVALID_ARGUMENT or OUT_OF_RANGE: the key is malformed.
        """
        table = self.table(message)
        return table, self._existing(table, self._identity(message, table))

    def selected(self, message: Any) -> list[tuple[Table, TableEntry]]:
        """List one entry if the message has a key, those of a table if it names one, or all."""
        if message.match:
            return [self.find(message)]
        return [(table, entry) for table in self._selected(message) for entry in self._entries(table)]

    def key_message(self, table: Table, entry: TableEntry) -> Any:
        """Write which entry it is: table, key and priority."""
        message = p4runtime_pb2.TableEntry(table_id=table.id, priority=entry.priority)
        message.match.extend(encode_key(entry.key, table.key))
        return message

    def _selected(self, message: Any) -> Iterable[Table]:
        return [self.table(message)] if message.table_id else self._catalog.tables.values()

    def _identity(self, message: Any, table: Table) -> Identity:
        priority: int = message.priority
        if table.prioritized and priority <= 0:
            raise invalid(f"{table.name}: entries need a priority above 0, as keys may overlap")
        if not table.prioritized and priority:
            raise invalid(f"{table.name}: entries have no priority; leave it 0")
        return decode_key(message.match, table.key, table.name), priority

    def _existing(self, table: Table, identity: Identity) -> TableEntry:
        try:
            entry = self._switch.table_entry(table.name, *identity)
        except UnknownNameError:
            raise not_found(f"{table.name} has no such entry; use INSERT") from None
        return replace(entry, key=identity[0])

    def _entries(self, table: Table) -> list[TableEntry]:
        entries = self._switch.table_entries(table.name)
        if any(field.kind is MatchKind.OPTIONAL for field in table.key):
            return [replace(entry, key=canonical_key(entry.key, table.key)) for entry in entries]
        return entries

    # Reading

    def read(self, message: Any) -> Iterator[Any]:
        """Yield the entries of one table or of all that the message's fields select."""
        ageing_asked = message.HasField("time_since_last_hit")
        if ageing_asked and message.is_default_action:
            raise invalid("the default entry has no idle time-out; leave time_since_last_hit unset")
        if ageing_asked and message.table_id and not self.table(message).ageing:
            raise invalid("the table has no idle time-out; leave time_since_last_hit unset")
        found = []
        for table in self._selected(message):
            for entry, note in self._select(message, table):
                answer = p4runtime_pb2.TableEntry(is_default_action=message.is_default_action)
                if not message.is_default_action:
                    self._add_resources(answer, message, table, entry)
                    if ageing_asked and table.ageing:
                        elapsed_ns = self.idle_watch.elapsed_ns(table.name, entry, self._clock_ns())
                        answer.time_since_last_hit.elapsed_ns = elapsed_ns
                found.append((answer, table, entry, note))
        return (self._completed(*each) for each in found)

    def idle(self, now_ns: int) -> list[Any]:
        """List the entries whose idle time-out has passed since they were hit or listed last."""
        tables = {table.name: table for table in self._catalog.tables.values()}
        found = []
        for name, entry in self.idle_watch.expired(now_ns):
            table = tables[name]
            note = self._note(table, entry)
            found.append(self._completed(p4runtime_pb2.TableEntry(), table, entry, note).table_entry)
        return found

    def _select(self, message: Any, table: Table) -> Iterator[tuple[TableEntry, Note]]:
        if message.is_default_action:
            default = self._switch.table_default(table.name)
            if default is not None:
                entry = TableEntry(action=default[0], params=default[1])
                yield entry, self._defaults.get(table.id, _NO_NOTE)
            return
        key = decode_key(message.match, table.key, table.name) if message.match else None
        action = message.action.action.action_id
        wanted = lookup(self._catalog.actions, action, "action").name if action else ""
        for entry in self._entries(table):
            note = self._note(table, entry)
            if (
                key in (None, entry.key)
                and message.priority in (0, entry.priority)
                and message.controller_metadata in (0, note.cookie)
                and message.metadata in (b"", note.metadata)
                and wanted in ("", entry.action)
            ):
                yield entry, note

    def _add_resources(self, answer: Any, message: Any, table: Table, entry: TableEntry) -> None:
        """Read the direct counter and meter, if the request has their fields."""
        if message.HasField("counter_data") and table.counter_id:
            answer.counter_data.CopyFrom(self._direct.counter(table, entry))
        config = self._direct.meter(table, entry) if message.HasField("meter_config") else None
        if config is not None:
            answer.meter_config.CopyFrom(config)

    def _completed(self, answer: Any, table: Table, entry: TableEntry, note: Note) -> Any:
        """Write the rest of an entry, which nothing but the control plane changes."""
        answer.table_id = table.id
        answer.priority = entry.priority
        answer.match.extend(encode_key(entry.key, table.key) if entry.key else ())
        answer.is_const = table.const_default if answer.is_default_action else table.fixed
        answer.metadata = note.metadata
        answer.controller_metadata = note.cookie
        answer.idle_timeout_ns = note.idle_timeout_ns
        if note.action_set is not None:
            answer.action.action_profile_action_set.CopyFrom(note.action_set)
        elif entry.group is not None:
            answer.action.action_profile_group_id = entry.group
        elif entry.member is not None:
            answer.action.action_profile_member_id = entry.member
        else:
            answer.action.action.CopyFrom(encode_action(entry.action, entry.params, self._catalog))
        return p4runtime_pb2.Entity(table_entry=answer)


def _note_of(message: Any, action_set: Any | None = None) -> Note:
    return Note(action_set, message.metadata, message.controller_metadata, message.idle_timeout_ns)
