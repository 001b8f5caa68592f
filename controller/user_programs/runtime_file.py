"""Table entries, multicast groups and clone sessions in the JSON of p4lang's tutorials, as P4Runtime updates.

docs/testbed.md lists the members of such a file.

Failures raise `ConfigError` with the reason.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from controller.errors import ConfigError
from controller.p4info import canonical
from controller.user_programs.values import bits_of
from netsum_common.p4rt import p4info_pb2, p4runtime_pb2
from topologies.fields import FieldError, Fields, flag_field, integer_field, read_json, text_field

MatchField = p4info_pb2.MatchField
Update = p4runtime_pb2.Update

SECTIONS = ("table_entries", "multicast_group_entries", "clone_session_entries")
_PRIORITIZED = (MatchField.TERNARY, MatchField.RANGE, MatchField.OPTIONAL)


class RuntimeFile:
    """A runtime file of the tutorials, such as ``s1-runtime.json``.

    `program`, `p4info`: the members ``bmv2_json`` and ``p4info``; empty if the file does not have them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._whole = read_json(path)
            self._whole.only("target", "p4info", "bmv2_json", *SECTIONS)
            self._whole.get("target", _bmv2, "bmv2")
            self.program = self._whole.get("bmv2_json", text_field, "")
            self.p4info = self._whole.get("p4info", text_field, "")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except FieldError as error:
            raise ConfigError(error.in_file(path)) from None

    def updates(self, p4info: p4info_pb2.P4Info) -> list[Any]:
        """Return the file's entries, groups and sessions as P4Runtime updates, in the file's order.

        Default actions are modified; entries, groups and sessions are inserted.
        """
        names = _Names(p4info)
        try:
            return [
                *(_table_entry(names, one) for one in self._whole.items(SECTIONS[0])),
                *(_multicast_group(one) for one in self._whole.items(SECTIONS[1])),
                *(_clone_session(one) for one in self._whole.items(SECTIONS[2])),
            ]
        except FieldError as error:
            raise ConfigError(error.in_file(self.path)) from None


class _Names:
    """The tables and actions of a program by their full names and their aliases."""

    def __init__(self, p4info: p4info_pb2.P4Info) -> None:
        self.tables = {name: table for table in p4info.tables for name in _names_of(table)}
        self.actions = {action.preamble.id: action for action in p4info.actions}


def _names_of(described: Any) -> tuple[str, str]:
    return described.preamble.alias, described.preamble.name


def _table_entry(names: _Names, one: Fields) -> Any:
    one.only(
        *("table", "match", "priority", "default_action", "action_name", "action_params"),
        required=("table", "action_name"),
    )
    table = one.need("table", lambda found: _one_of(names.tables, found, "a table of the program"))
    if table.implementation_id:
        raise FieldError(
            f"{one.place}.table", "the table has an action profile, which such a file cannot fill"
        )
    update = Update(type=Update.INSERT)
    entry = update.entity.table_entry
    entry.table_id = table.preamble.id
    entry.is_default_action = one.get("default_action", flag_field, False)
    if entry.is_default_action:
        if "match" in one.keys:
            raise FieldError(f"{one.place}.match", "expected no match for a default action")
        update.type = Update.MODIFY
    else:
        entry.match.extend(_matches(table, one))
        if any(field.match_type in _PRIORITIZED for field in table.match_fields):
            entry.priority = one.need("priority", _priority)
        elif one.get("priority", _any_priority, 0):
            raise FieldError(
                f"{one.place}.priority", "a table with exact and LPM fields only has no priorities"
            )
    _call(names, table, one, entry.action.action)
    return update


def _matches(table: Any, one: Fields) -> Iterator[Any]:
    """Iterate over the match fields of an entry in the table's order; a field that the entry omits matches any value."""
    held = one.child("match")
    fields = {field.name: field for field in table.match_fields}
    held.only(*fields)
    for name, field in fields.items():
        if name not in held.keys:
            if field.match_type == MatchField.EXACT:
                raise FieldError(f"{held.place}.{name}", "missing, but an exact match needs a value")
            continue
        match = held.need(name, partial(_match, field))
        if match is not None:
            yield match


def _match(field: Any, found: object) -> Any | None:
    """Return one match field; None if it matches any value, as P4Runtime then omits the field."""
    width, kind = field.bitwidth, field.match_type
    if not width:
        raise ValueError("no value: the program's own types of match fields are not supported")
    match = p4runtime_pb2.FieldMatch(field_id=field.id)
    if kind == MatchField.EXACT:
        match.exact.value = canonical(bits_of(found, width))
        return match
    if kind == MatchField.OPTIONAL:
        match.optional.value = canonical(bits_of(found, width))
        return match
    if kind == MatchField.LPM:
        value, length = _pair(found, "[value, length of the prefix]")
        length = integer_field(length, 0, width, f"a length of the prefix between 0 and {width}")
        mask = (1 << width) - (1 << width - length)
        match.lpm.value, match.lpm.prefix_len = canonical(bits_of(value, width) & mask), length
        return match if length else None
    if kind == MatchField.TERNARY:
        value, written = _pair(found, "[value, mask]")
        mask = bits_of(written, width)
        match.ternary.value, match.ternary.mask = canonical(bits_of(value, width) & mask), canonical(mask)
        return match if mask else None
    if kind == MatchField.RANGE:
        low, high = (bits_of(each, width) for each in _pair(found, "[lowest, highest]"))
        if low > high:
            raise ValueError("[lowest, highest]")
        match.range.low, match.range.high = canonical(low), canonical(high)
        return match if (low, high) != (0, (1 << width) - 1) else None
    raise ValueError("a field that is matched exactly, by prefix, mask or range")


def _call(names: _Names, table: Any, one: Fields, call: Any) -> None:
    actions = {
        name: names.actions[reference.id]
        for reference in table.action_refs
        for name in _names_of(names.actions[reference.id])
    }
    action = one.need("action_name", lambda found: _one_of(actions, found, "an action of the table"))
    call.action_id = action.preamble.id
    params = one.child("action_params")
    widths = {param.name: param for param in action.params}
    params.only(*widths, required=tuple(widths))
    for name, param in widths.items():
        number = params.need(name, partial(bits_of, bitwidth=param.bitwidth))
        call.params.add(param_id=param.id, value=canonical(number))


def _multicast_group(one: Fields) -> Any:
    one.only("multicast_group_id", "replicas", required=("multicast_group_id", "replicas"))
    update = Update(type=Update.INSERT)
    group = update.entity.packet_replication_engine_entry.multicast_group_entry
    group.multicast_group_id = one.need("multicast_group_id", _identifier)
    _replicas(one, group)
    return update


def _clone_session(one: Fields) -> Any:
    one.only(
        *("clone_session_id", "replicas", "packet_length_bytes"), required=("clone_session_id", "replicas")
    )
    update = Update(type=Update.INSERT)
    session = update.entity.packet_replication_engine_entry.clone_session_entry
    session.session_id = one.need("clone_session_id", _identifier)
    session.packet_length_bytes = one.get("packet_length_bytes", _length, 0)
    _replicas(one, session)
    return update


def _replicas(one: Fields, message: Any) -> None:
    for replica in one.items("replicas"):
        replica.only("egress_port", "instance", required=("egress_port",))
        message.replicas.add(
            egress_port=replica.need("egress_port", _port), instance=replica.get("instance", _identifier, 0)
        )


def _one_of(known: dict[str, Any], found: object, what: str) -> Any:
    if not isinstance(found, str) or found not in known:
        names = sorted({each.preamble.name for each in known.values()})
        raise ValueError(f"{what} ({', '.join(names) or 'there is none'})")
    return known[found]


def _pair(found: object, expected: str) -> Sequence[Any]:
    if not isinstance(found, list) or len(found) != 2:
        raise ValueError(expected)
    return found


def _bmv2(found: object) -> str:
    if found != "bmv2":
        raise ValueError('"bmv2"')
    return "bmv2"


def _priority(found: object) -> int:
    return integer_field(
        found, 1, (1 << 31) - 1, "a priority from 1; of the entries that match, the highest wins"
    )


def _any_priority(found: object) -> int:
    return integer_field(found, 0, (1 << 31) - 1, "a priority from 0")


def _identifier(found: object) -> int:
    return integer_field(found, 0, (1 << 32) - 1, "a number from 0")


def _length(found: object) -> int:
    return integer_field(found, 0, (1 << 31) - 1, "a number of bytes from 0")


def _port(found: object) -> int:
    return integer_field(found, 0, 511, "a port between 0 and 511")
