"""Table entries: key and priority, action, direct counter and meter, and what only controllers read."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from host_agent.p4rt import p4runtime_pb2
from sim.switch import Switch, SwitchError, TableEntry
from sim.switch.p4runtime.actions import decode_action, encode_action
from sim.switch.p4runtime.catalog import Catalog, Scope, Table, lookup
from sim.switch.p4runtime.direct import DirectResources
from sim.switch.p4runtime.errors import already_exists, exhausted, invalid, not_found, permission_denied
from sim.switch.p4runtime.idle import IdleWatch
from sim.switch.p4runtime.keys import Match, canonical_key, decode_key, encode_key
from sim.switch.p4runtime.profiles import ActionProfiles

Identity: TypeAlias = tuple[tuple[Match, ...], int]
"""What makes an entry the one it is: its key and its priority."""


@dataclass(frozen=True)
class Record:
    """An entry of the switch and what the controller said of it.

    Attributes
    ----------
    entry
        The engine's entry; the default one has neither key nor priority.
    action_set
        The `ActionProfileActionSet` it brought along, which its group stands for.
    metadata, cookie
        What the controller wants to read back: `metadata` and the older `controller_metadata`.
    idle_timeout_ns
        After how long without a hit the controller wants to be told; 0 never.
    """

    entry: TableEntry
    action_set: Any | None = None
    metadata: bytes = b""
    cookie: int = 0
    idle_timeout_ns: int = 0


class Tables:
    """The tables of a switch.

    Parameters
    ----------
    catalog
        What the program has.
    switch
        The switch it runs on.
    profiles, direct
        The switch's action profiles, and its direct counters and meters.
    clock_ns
        The present time.
    """

    def __init__(
        self,
        catalog: Catalog,
        switch: Switch,
        profiles: ActionProfiles,
        direct: DirectResources,
        clock_ns: Callable[[], int],
    ) -> None:
        self._catalog = catalog
        self._switch = switch
        self._profiles = profiles
        self._direct = direct
        self._clock_ns = clock_ns
        self._idle = IdleWatch(lambda table, entry: switch.direct_counter_read(table, entry)[0])
        self._records: dict[int, dict[Identity, Record]] = {}
        self._defaults: dict[int, Record] = {}
        for table in catalog.tables.values():
            self._records[table.id] = {}
            for entry in switch.table_entries(table.name):
                entry = replace(entry, key=canonical_key(entry.key, table.key))
                self._keep(table, Record(entry))

    # Writing

    def insert(self, message: Any) -> None:
        """Add an entry."""
        table = self.table(message)
        if message.is_default_action:
            raise invalid(f"{table.name}: the default entry always exists; use MODIFY")
        if not table.key:
            raise invalid(f"{table.name} has no key and thus one entry, the default one; MODIFY that")
        if table.fixed:
            raise permission_denied(f"{table.name}: the program fixes its entries")
        identity = self._identity(message, table)
        if not message.HasField("action"):
            raise invalid(f"{table.name}: the action is missing")
        self._check(message, table)
        records = self._records[table.id]
        if identity in records:
            raise already_exists(f"{table.name} has this entry already; use MODIFY to change its action")
        if table.size and len(records) >= table.size:
            raise exhausted(f"{table.name} is full: it holds {table.size} entries")
        record = self._put(message, table, identity, self._switch.table_insert)
        self._keep(table, record)
        self._direct.write(message, table, record.entry)

    def modify(self, message: Any) -> None:
        """Change an entry, or the default one."""
        table = self.table(message)
        if message.is_default_action:
            self._modify_default(message, table)
            return
        identity = self._identity(message, table)
        self._check(message, table)
        old = self._existing(table, identity)
        if message.HasField("action"):
            if table.fixed:
                raise permission_denied(f"{table.name}: the program fixes the actions of its entries")
            new = self._put(message, table, identity, self._switch.table_modify)
            self._release(table, old)
        else:
            new = _annotated(old, message)
        self._keep(table, new)
        self._direct.write(message, table, new.entry)

    def delete(self, message: Any) -> None:
        """Remove an entry. Nothing but its key and priority is looked at."""
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
            self._idle.forget(table.name, old.entry)
        self._switch.table_delete(table.name, old.entry)
        del self._records[table.id][identity]
        self._direct.forget(table, old.entry)
        self._release(table, old)

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
            self._defaults[table.id] = _annotated(Record(TableEntry()), message)
        else:
            self._switch.table_reset_default(table.name)
            self._defaults.pop(table.id, None)

    def _put(
        self, message: Any, table: Table, identity: Identity, put: Callable[[str, TableEntry], None]
    ) -> Record:
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
            self._profiles.check_target(table.profile_id, kind, number)
            entry = replace(TableEntry(*identity), **{kind: number})
            put(table.name, entry)
            self._profiles.count(table.profile_id, kind, number, +1)
        else:
            raise invalid(f"{table.name} has an action profile: give a member, a group or a set of actions")
        return _annotated(Record(entry, action_set), message)

    def _release(self, table: Table, record: Record) -> None:
        """Let go of what an entry that is gone pointed at."""
        entry = record.entry
        if entry.group is not None and record.action_set is not None:
            self._profiles.remove_set(table.profile_id, entry.group)
        elif entry.group is not None:
            self._profiles.count(table.profile_id, "group", entry.group, -1)
        elif entry.member is not None:
            self._profiles.count(table.profile_id, "member", entry.member, -1)

    def _keep(self, table: Table, record: Record) -> None:
        self._records[table.id][record.entry.key, record.entry.priority] = record
        if table.ageing:
            self._idle.watch(table.name, record.entry, record.idle_timeout_ns, self._clock_ns())

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
        """Refuse what the table or its entries cannot have, before anything is changed."""
        if message.is_const:
            raise invalid(f"{table.name}: is_const is for the switch to say; leave it unset")
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

        Raises
        ------
        P4RuntimeError
            NOT_FOUND: there is none; INVALID_ARGUMENT or OUT_OF_RANGE: the key is malformed.
        """
        table = self.table(message)
        return table, self._existing(table, self._identity(message, table)).entry

    def selected(self, message: Any) -> list[tuple[Table, TableEntry]]:
        """List one entry if the message has a key, those of a table if it names one, or all."""
        if message.match:
            return [self.find(message)]
        return [(table, r.entry) for table in self._asked(message) for r in self._records[table.id].values()]

    def key_message(self, table: Table, entry: TableEntry) -> Any:
        """Write which entry it is: table, key and priority."""
        message = p4runtime_pb2.TableEntry(table_id=table.id, priority=entry.priority)
        message.match.extend(encode_key(entry.key, table.key))
        return message

    def _asked(self, message: Any) -> Iterable[Table]:
        return [self.table(message)] if message.table_id else self._catalog.tables.values()

    def _identity(self, message: Any, table: Table) -> Identity:
        priority: int = message.priority
        if table.prioritized and priority <= 0:
            raise invalid(f"{table.name}: entries need a priority above 0, as keys may overlap")
        if not table.prioritized and priority:
            raise invalid(f"{table.name}: entries have no priority; leave it 0")
        return decode_key(message.match, table.key, table.name), priority

    def _existing(self, table: Table, identity: Identity) -> Record:
        try:
            return self._records[table.id][identity]
        except KeyError:
            raise not_found(f"{table.name} has no such entry; use INSERT") from None

    # Reading

    def read(self, message: Any) -> Iterator[Any]:
        """Yield the entries of one table or of all that the message's fields select."""
        ageing_asked = message.HasField("time_since_last_hit")
        if ageing_asked and message.is_default_action:
            raise invalid("the default entry has no idle time-out; leave time_since_last_hit unset")
        if ageing_asked and message.table_id and not self.table(message).ageing:
            raise invalid("the table has no idle time-out; leave time_since_last_hit unset")
        found = []
        for table in self._asked(message):
            for record in self._select(message, table):
                answer = p4runtime_pb2.TableEntry(is_default_action=message.is_default_action)
                if not message.is_default_action:
                    self._add_resources(answer, message, table, record.entry)
                    if ageing_asked and table.ageing:
                        elapsed_ns = self._idle.elapsed_ns(table.name, record.entry, self._clock_ns())
                        answer.time_since_last_hit.elapsed_ns = elapsed_ns
                found.append((answer, table, record))
        return (self._completed(*each) for each in found)

    def idle(self, now_ns: int) -> list[Any]:
        """List the entries whose idle time-out has passed since they were hit or listed last."""
        tables = {table.name: table for table in self._catalog.tables.values()}
        found = []
        for name, entry in self._idle.expired(now_ns):
            table = tables[name]
            record = self._records[table.id][entry.key, entry.priority]
            found.append(self._completed(p4runtime_pb2.TableEntry(), table, record).table_entry)
        return found

    def _select(self, message: Any, table: Table) -> Iterator[Record]:
        if message.is_default_action:
            default = self._switch.table_default(table.name)
            if default is not None:
                known = self._defaults.get(table.id, Record(TableEntry()))
                yield replace(known, entry=TableEntry(action=default[0], params=default[1]))
            return
        key = decode_key(message.match, table.key, table.name) if message.match else None
        action = message.action.action.action_id
        wanted = lookup(self._catalog.actions, action, "action").name if action else ""
        for record in self._records[table.id].values():
            if (
                key in (None, record.entry.key)
                and message.priority in (0, record.entry.priority)
                and message.controller_metadata in (0, record.cookie)
                and message.metadata in (b"", record.metadata)
                and wanted in ("", record.entry.action)
            ):
                yield record

    def _add_resources(self, answer: Any, message: Any, table: Table, entry: TableEntry) -> None:
        """Read the direct counter and meter, if the request has their fields."""
        if message.HasField("counter_data") and table.counter_id:
            answer.counter_data.CopyFrom(self._direct.counter(table, entry))
        config = self._direct.meter(table, entry) if message.HasField("meter_config") else None
        if config is not None:
            answer.meter_config.CopyFrom(config)

    def _completed(self, answer: Any, table: Table, record: Record) -> Any:
        """Write the rest of an entry, which nothing but the control plane changes."""
        entry = record.entry
        answer.table_id = table.id
        answer.priority = entry.priority
        answer.match.extend(encode_key(entry.key, table.key) if entry.key else ())
        answer.is_const = table.const_default if answer.is_default_action else table.fixed
        answer.metadata = record.metadata
        answer.controller_metadata = record.cookie
        answer.idle_timeout_ns = record.idle_timeout_ns
        if record.action_set is not None:
            answer.action.action_profile_action_set.CopyFrom(record.action_set)
        elif entry.group is not None:
            answer.action.action_profile_group_id = entry.group
        elif entry.member is not None:
            answer.action.action_profile_member_id = entry.member
        else:
            answer.action.action.CopyFrom(encode_action(entry.action, entry.params, self._catalog))
        return p4runtime_pb2.Entity(table_entry=answer)

    # Going back

    def save(self) -> Any:
        """Return what `restore` takes."""
        records = {table_id: dict(records) for table_id, records in self._records.items()}
        return records, dict(self._defaults), self._idle.save()

    def restore(self, saved: Any) -> None:
        """Go back to what was saved."""
        records, defaults, idle = saved
        self._records = {table_id: dict(kept) for table_id, kept in records.items()}
        self._defaults = dict(defaults)
        self._idle.restore(idle)


def _annotated(record: Record, message: Any) -> Record:
    """Note what a message says of an entry for controllers to read back."""
    return replace(
        record,
        metadata=message.metadata,
        cookie=message.controller_metadata,
        idle_timeout_ns=message.idle_timeout_ns,
    )
