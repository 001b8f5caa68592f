"""Parser value sets: operands of a select statement, set at run time. BMv2 cannot do it by P4Runtime."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from netsum_common.p4rt import p4runtime_pb2
from sim.switch import Exact
from sim.switch.control_plane import ControlPlane
from sim.switch.p4runtime.catalog import Catalog, KeyField, MatchKind, ValueSet, lookup
from sim.switch.p4runtime.errors import already_exists, exhausted, invalid, unimplemented
from sim.switch.p4runtime.keys import decode_key


class ValueSets:
    """The value sets of a switch."""

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
        if message.value_set_id:
            asked = [lookup(self._catalog.value_sets, message.value_set_id, "value set")]
        else:
            asked = list(self._catalog.value_sets.values())
        found = [
            self._sets.get(each.id) or p4runtime_pb2.ValueSetEntry(value_set_id=each.id) for each in asked
        ]
        return (p4runtime_pb2.Entity(value_set_entry=each) for each in found)

    def save(self) -> Any:
        """Return what `restore` takes."""
        return dict(self._sets)

    def restore(self, saved: Any) -> None:
        """Restore a saved state."""
        self._sets = dict(saved)


def _value(member: Any, value_set: ValueSet) -> int:
    """Join a member's fields as the parser does: each filled up to whole bytes, the first one foremost."""
    number = 0
    for match, field in zip(
        decode_key(member.match, value_set.key, value_set.name), value_set.key, strict=True
    ):
        number = number << _byte_bits(field) | (match.value if isinstance(match, Exact) else 0)
    return number


def _byte_bits(field: KeyField) -> int:
    return (field.bitwidth + 7) // 8 * 8
