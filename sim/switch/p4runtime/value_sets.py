"""Parser value sets: operands of a select statement, set at run time. BMv2 cannot do it by P4Runtime."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from netsum_common.p4rt import p4runtime_pb2
from sim.switch import Exact
from sim.switch.control_plane import ControlPlane
from sim.switch.p4runtime.catalog import Catalog, MatchKind, ValueSet, asked, lookup
from sim.switch.p4runtime.keys import decode_key
from sim.switch.p4runtime.status_errors import already_exists, exhausted, invalid, unimplemented
from sim.switch.p4runtime.stores import EntityStore


class ValueSets(EntityStore):
    """The value sets of a switch."""

    CHANGED = ("_sets",)

    def __init__(self, catalog: Catalog, switch: ControlPlane) -> None:
        self._catalog = catalog
        self._switch = switch
        self._sets: dict[int, Any] = {}

    def modify(self, message: Any) -> None:
        """Replace the members of a value set."""
        value_set = lookup(self._catalog.value_sets, message.value_set_id, "value set")
        if any(field.kind is not MatchKind.EXACT for field in value_set.key):
            raise unimplemented(f"{value_set.name}: only value sets with exact matches are supported")
        if value_set.size and len(message.members) > value_set.size:
            raise exhausted(f"{value_set.name} holds {value_set.size} members, not {len(message.members)}")
        values = [_value(member, value_set) for member in message.members]
        if len(set(values)) < len(values):
            raise already_exists(f"{value_set.name}: a member is there twice")
        self._switch.value_set_write(value_set.name, values)
        self._sets[value_set.id] = deepcopy(message)

    def read(self, message: Any) -> Iterator[Any]:
        """Yield one value set, or all."""
        if message.members:
            raise invalid("members must not be set in a request to read")
        found = [
            self._sets.get(each.id) or p4runtime_pb2.ValueSetEntry(value_set_id=each.id)
            for each in asked(self._catalog.value_sets, message.value_set_id, "value set")
        ]
        return (p4runtime_pb2.Entity(value_set_entry=each) for each in found)


def _value(member: Any, value_set: ValueSet) -> int:
    """Join a member's fields as the parser does: each filled up to whole bytes, the first one foremost."""
    number = 0
    key = decode_key(member.match, value_set.key, value_set.name)
    for match, field in zip(key, value_set.key, strict=True):
        size = (field.bitwidth + 7) // 8 * 8
        number = number << size | (match.value if isinstance(match, Exact) else 0)
    return number
