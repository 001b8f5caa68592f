"""Conversion between the names of a P4 program and the numbers of its P4Info, and P4Runtime messages with such numbers."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from google.protobuf import text_format

from controller.entries import Entry, Match, MulticastGroup, Prefix
from controller.errors import WrongProgramError
from netsum_common.p4rt import p4info_pb2, p4runtime_pb2

MatchField = p4info_pb2.MatchField


def read_p4info(path: Path) -> p4info_pb2.P4Info:
    """Read a P4Info file in protobuf text form; `WrongProgramError` if it cannot be read, or is not a P4Info."""
    try:
        p4info = p4info_pb2.P4Info()
        text_format.Parse(path.read_text(encoding="utf-8"), p4info, allow_unknown_field=True)
        return p4info
    except (OSError, UnicodeDecodeError) as error:
        raise WrongProgramError(f"cannot read the P4Info {path}: {error}") from None
    except text_format.ParseError as error:
        raise WrongProgramError(f"{path} is not a P4Info in protobuf text form: {error}") from None


class ProgramNames:
    """Names and numbers of one compiled P4 program.

    A name is the last component of the full name; P4Info calls that component the alias where it is unique.

    `p4info`: the program's P4Info.
    """

    def __init__(self, p4info: p4info_pb2.P4Info) -> None:
        self._tables = {_short(table): table for table in p4info.tables}
        self._actions = {_short(action): action for action in p4info.actions}
        self._counters = {_short(counter): counter for counter in p4info.counters}
        self._directly_counted = {counter.direct_table_id for counter in p4info.direct_counters}
        self._table_by_id = {table.preamble.id: (name, table) for name, table in self._tables.items()}
        self._counter_by_id = {counter.preamble.id: name for name, counter in self._counters.items()}
        self._action_by_id = {action.preamble.id: (name, action) for name, action in self._actions.items()}

    def missing(
        self,
        tables: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, ...]]]],
        counters: Iterable[str],
    ) -> list[str]:
        """Return the parts of a control surface that the program lacks.

        `tables`: table to (key fields, action to parameters). Returns one phrase for each part that is missing or differs;
        empty if the program has all parts.
        """
        lacks: list[str] = []
        for name, (fields, actions) in tables.items():
            table = self._tables.get(name)
            if table is None:
                lacks.append(f"table {name}")
                continue
            own_fields = tuple(field.name for field in table.match_fields)
            if own_fields != fields:
                lacks.append(
                    f"table {name} with the key ({', '.join(fields)}) instead of ({', '.join(own_fields)})"
                )
            action_ids = {reference.id for reference in table.action_refs}
            for action_name, params in actions.items():
                action = self._actions.get(action_name)
                if action is None or action.preamble.id not in action_ids:
                    lacks.append(f"action {action_name} of table {name}")
                elif tuple(param.name for param in action.params) != params:
                    lacks.append(f"action {action_name}({', '.join(params)})")
        lacks.extend(f"counter {name}" for name in counters if name not in self._counters)
        return lacks

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the program's tables."""
        return tuple(self._tables)

    def counter_message(self, name: str, index: int) -> p4runtime_pb2.Entity:
        """Return a request for one cell of a counter."""
        entity = p4runtime_pb2.Entity()
        entity.counter_entry.counter_id = self._counters[name].preamble.id
        entity.counter_entry.index.index = index
        return entity

    def read_counter(self, entity: p4runtime_pb2.Entity) -> tuple[str, int, int]:
        """Return (counter's name, index, packets) of a counter cell that a switch returned."""
        message = entity.counter_entry
        counted = int(message.data.packet_count)
        return self._counter_by_id[message.counter_id], int(message.index.index), counted

    def counts_entries(self, table: str) -> bool:
        """Whether the program counts the packets that each entry of a table matched."""
        return self._tables[table].preamble.id in self._directly_counted

    def entry_counter_message(self, entry: Entry) -> p4runtime_pb2.Entity:
        """Return a request for the number of packets that an entry matched."""
        entity = p4runtime_pb2.Entity()
        entity.direct_counter_entry.table_entry.CopyFrom(self.entry_message(entry).table_entry)
        entity.direct_counter_entry.table_entry.ClearField("action")
        return entity

    def read_entry_counter(self, entity: p4runtime_pb2.Entity) -> tuple[dict[str, Match], int]:
        """Return (entry's key, packets) of an entry's counter that a switch returned."""
        message = entity.direct_counter_entry
        return dict(self._read_key(message.table_entry)), int(message.data.packet_count)

    def table_message(self, table: str) -> p4runtime_pb2.Entity:
        """Return a request for all entries of a table."""
        entity = p4runtime_pb2.Entity()
        entity.table_entry.table_id = self._tables[table].preamble.id
        return entity

    def entry_message(self, entry: Entry) -> p4runtime_pb2.Entity:
        """Return a table entry as P4Runtime writes it; `ValueError` if a value does not fit its field."""
        table = self._tables[entry.table]
        action = self._actions[entry.action]
        entity = p4runtime_pb2.Entity()
        message = entity.table_entry
        message.table_id = table.preamble.id
        message.is_default_action = not entry.match
        for field in table.match_fields if entry.match else ():
            value = entry.value(field.name)
            where = f"{entry.table}.{field.name}"
            if not isinstance(value, Prefix):
                message.match.add(field_id=field.id).exact.value = _to_bytes(value, field.bitwidth, where)
            elif value.length:  # P4Runtime writes "any value" by leaving the field out.
                match = message.match.add(field_id=field.id)
                match.lpm.value = _to_bytes(value.value, field.bitwidth, where)
                match.lpm.prefix_len = value.length
        call = message.action.action
        call.action_id = action.preamble.id
        values = dict(entry.params)
        for param in action.params:
            encoded = _to_bytes(values[param.name], param.bitwidth, f"{entry.action}.{param.name}")
            call.params.add(param_id=param.id, value=encoded)
        return entity

    def read_entry(self, entity: p4runtime_pb2.Entity) -> Entry:
        """Return the entry a switch returned, by name."""
        message = entity.table_entry
        table_name, _ = self._table_by_id[message.table_id]
        call = message.action.action
        action_name, action = self._action_by_id[call.action_id]
        values = {param.param_id: int.from_bytes(param.value, "big") for param in call.params}
        params = tuple((param.name, values[param.id]) for param in action.params)
        return Entry(table_name, tuple(self._read_key(message)), action_name, params)

    def _read_key(self, message: p4runtime_pb2.TableEntry) -> Iterator[tuple[str, Match]]:
        """Iterate over (field, value) of an entry's key, in the table's order; over nothing for a default action."""
        _, table = self._table_by_id[message.table_id]
        held = {match.field_id: match for match in message.match}
        for field in () if message.is_default_action else table.match_fields:
            match = held.get(field.id)
            if match is None:
                yield field.name, Prefix(0, 0)
            elif match.HasField("lpm"):
                yield field.name, Prefix(int.from_bytes(match.lpm.value, "big"), match.lpm.prefix_len)
            else:
                yield field.name, int.from_bytes(match.exact.value, "big")


def group_message(group: MulticastGroup) -> p4runtime_pb2.Entity:
    """Return a multicast group as P4Runtime writes it."""
    entity = p4runtime_pb2.Entity()
    message = entity.packet_replication_engine_entry.multicast_group_entry
    message.multicast_group_id = group.group_id
    for port, replica_id in group.replicas:
        message.replicas.add(egress_port=port, instance=replica_id)
    return entity


def read_group(entity: p4runtime_pb2.Entity) -> MulticastGroup:
    """Return the multicast group a switch returned."""
    message = entity.packet_replication_engine_entry.multicast_group_entry
    replicas = tuple((int(each.egress_port), int(each.instance)) for each in message.replicas)
    return MulticastGroup(int(message.multicast_group_id), replicas)


def _short(described: object) -> str:
    return str(described.preamble.name).rpartition(".")[2]  # type: ignore[attr-defined]  # all P4Info objects have it


def _to_bytes(value: int, bitwidth: int, where: str) -> bytes:
    if value < 0 or value.bit_length() > bitwidth:
        raise ValueError(f"{where} has {bitwidth} bits, {value} does not fit")
    return canonical(value)


def canonical(number: int) -> bytes:
    """Return a number in the shortest big-endian form, which P4Runtime 1.3, section 8.4, calls canonical."""
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")
