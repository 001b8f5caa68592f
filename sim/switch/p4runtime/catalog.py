"""A program's interface for the control plane, read from its P4Info: ids to names, widths and rules."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from netsum_common.p4rt import p4info_pb2
from sim.switch.p4runtime.status_errors import P4RuntimeError, invalid, unimplemented


class MatchKind(Enum):
    """How a table's key field is compared."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"
    OPTIONAL = "optional"


class Scope(Enum):
    """Places where an action of a table may stand."""

    TABLE_AND_DEFAULT = 0
    TABLE_ONLY = 1
    DEFAULT_ONLY = 2


@dataclass(frozen=True)
class Field:
    """A key field of a table or value set, a parameter of an action, or a field of a packet-in/out header.

    A `bitwidth` of 0 is that of a type without bits for controllers, such as `error` or one translated to text. A
    `translated` field has another width in the program.
    """

    id: int
    name: str
    bitwidth: int
    translated: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class KeyField(Field):
    """A key field with its kind of comparison."""

    kind: MatchKind

    @property
    def top(self) -> int:
        """The largest value of the field."""
        return (1 << self.bitwidth) - 1


@dataclass(frozen=True)
class Action:
    """An action and its parameters, in the program's order."""

    id: int
    name: str
    params: tuple[Field, ...]


@dataclass(frozen=True)
class Table:
    """A match-action table."""

    id: int
    name: str
    key: tuple[KeyField, ...]
    scopes: Mapping[int, Scope]  # The ids of its actions and where each may stand.
    # profile_id, counter_id, meter_id: id of its action profile, direct counter and direct meter, or 0.
    profile_id: int
    counter_id: int
    meter_id: int
    const_default: bool  # Whether the default action is fixed by the program.
    # Whether all entries are fixed by the program. So are those of a table that the program fills without `const`, as the
    # compiler's output for BMv2 does not distinguish the two.
    fixed: bool
    size: int  # How many entries it is declared to hold.
    ageing: bool  # Whether it notifies the controller of idle entries.

    @property
    def prioritized(self) -> bool:
        """Whether its entries carry a priority."""
        return any(each.kind in (MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL) for each in self.key)


@dataclass(frozen=True)
class Profile:
    """An action profile, or an action selector if `selector`."""

    id: int
    name: str
    table_ids: tuple[int, ...]
    selector: bool
    size: int
    max_group_size: int


@dataclass(frozen=True)
class Array:
    """An indexed counter, meter or register, or a direct one (`size` 0)."""

    id: int
    name: str
    size: int
    # packets, bytes: units that a counter counts or a meter measures.
    packets: bool = False
    bytes: bool = False
    # bitwidth, signed: type of a register's cells.
    bitwidth: int = 0
    signed: bool = False


@dataclass(frozen=True)
class Digest:
    """A digest; `shape` is the form of its P4Data."""

    id: int
    name: str
    shape: str


@dataclass(frozen=True)
class ValueSet:
    """A parser value set."""

    id: int
    name: str
    key: tuple[KeyField, ...]
    size: int


_KINDS = {p4info_pb2.MatchField.MatchType.Value(kind.name): kind for kind in MatchKind}

Item = TypeVar("Item", Action, Table, Profile, Array, Digest, ValueSet)


class Catalog:
    """The objects of one P4Info by P4Runtime id.

    Raises P4RuntimeError: INVALID_ARGUMENT or UNIMPLEMENTED: two objects share an id, or a key has a match kind of another
    architecture.
    """

    def __init__(self, p4info: Any) -> None:
        self._types = p4info.type_info
        self.actions = _by_id(_action(each) for each in p4info.actions)
        self.tables = _by_id(_table(each) for each in p4info.tables)
        self.profiles = _by_id(_profile(each) for each in p4info.action_profiles)
        self.counters = _by_id(_measure(each) for each in p4info.counters)
        self.direct_counters = _by_id(_measure(each) for each in p4info.direct_counters)
        self.meters = _by_id(_measure(each) for each in p4info.meters)
        self.direct_meters = _by_id(_measure(each) for each in p4info.direct_meters)
        self.registers = _by_id(self._representable(p4info.registers, self._register))
        self.digests = _by_id(self._representable(p4info.digests, self._digest))
        self.value_sets = _by_id(_value_set(each) for each in p4info.value_sets)
        headers = {each.preamble.name: _header(each) for each in p4info.controller_packet_metadata}
        self.packet_in: tuple[Field, ...] | None = headers.get("packet_in")
        self.packet_out: tuple[Field, ...] | None = headers.get("packet_out")
        self._actions_by_name = {action.name: action for action in self.actions.values()}

    def action_named(self, name: str) -> Action:
        """Find the action of a program's name."""
        return self._actions_by_name[name]

    @staticmethod
    def _representable(objects: Iterable[Any], make: Callable[[Any], Item]) -> Iterator[Item]:
        """Leave out objects of types that no message of this server can hold; a program may still have them."""
        for each in objects:
            with suppress(P4RuntimeError):
                yield make(each)

    def _register(self, each: Any) -> Array:
        bitwidth, signed = self._bits(each.type_spec, f"register {each.preamble.name}")
        return Array(each.preamble.id, each.preamble.name, each.size, bitwidth=bitwidth, signed=signed)

    def _digest(self, each: Any) -> Digest:
        what = f"digest {each.preamble.name}"
        form = each.type_spec.WhichOneof("type_spec")
        if form == "struct":
            members = [member.type_spec for member in self._types.structs[each.type_spec.struct.name].members]
        elif form == "tuple":
            members = list(each.type_spec.tuple.members)
        else:
            form, members = "bitstring", [each.type_spec]
        for member in members:
            self._bits(member, what)  # Refuses what no message can hold.
        return Digest(each.preamble.id, each.preamble.name, form)

    def _bits(self, spec: Any, what: str) -> tuple[int, bool]:
        """Find the width of a bit-string-like type and whether it is signed."""
        form = spec.WhichOneof("type_spec")
        if form == "bitstring":
            kind = spec.bitstring.WhichOneof("type_spec")
            if kind == "bit":
                return spec.bitstring.bit.bitwidth, False
            if kind == "int":
                return spec.bitstring.int.bitwidth, True
        elif form == "bool":
            return 1, False
        elif form == "serializable_enum":
            named = self._types.serializable_enums[spec.serializable_enum.name]
            return named.underlying_type.bitwidth, False
        elif form == "new_type":
            named = self._types.new_types[spec.new_type.name]
            if named.WhichOneof("representation") == "original_type":
                return self._bits(named.original_type, what)
            if named.translated_type.WhichOneof("sdn_type") == "sdn_bitwidth":
                return named.translated_type.sdn_bitwidth, False
        raise unimplemented(
            f"{what} has a type that is neither bit<W>, int<W>, bool nor an enum with a width"
        )


def _by_id(items: Iterable[Item]) -> dict[int, Item]:
    found: dict[int, Item] = {}
    for item in items:
        if item.id in found:
            raise invalid(f"P4Info gives the id {item.id} to both {found[item.id].name} and {item.name}")
        found[item.id] = item
    return found


def _action(each: Any) -> Action:
    params = tuple(
        Field(param.id, param.name, param.bitwidth, translated=bool(param.type_name.name))
        for param in each.params
    )
    return Action(each.preamble.id, each.preamble.name, params)


def _table(each: Any) -> Table:
    name = each.preamble.name
    resources = {identifier >> 24: identifier for identifier in each.direct_resource_ids}
    return Table(
        id=each.preamble.id,
        name=name,
        key=_key(each.match_fields, f"table {name}"),
        scopes={ref.id: Scope(ref.scope) for ref in each.action_refs},
        profile_id=each.implementation_id,
        counter_id=resources.get(p4info_pb2.P4Ids.DIRECT_COUNTER, 0),
        meter_id=resources.get(p4info_pb2.P4Ids.DIRECT_METER, 0),
        const_default=each.const_default_action_id != 0,
        fixed=each.is_const_table or each.has_initial_entries,
        size=each.size,
        ageing=each.idle_timeout_behavior == p4info_pb2.Table.NOTIFY_CONTROL,
    )


def _key(fields: Iterable[Any], what: str) -> tuple[KeyField, ...]:
    key = []
    for each in fields:
        kind = _KINDS.get(each.match_type) if each.WhichOneof("match") == "match_type" else None
        if kind is None:
            raise unimplemented(
                f"{what}: key field {each.name or each.id} has a match kind this server does not know"
            )
        translated = bool(each.type_name.name)
        key.append(KeyField(each.id, each.name, each.bitwidth, kind, translated=translated))
    return tuple(key)


def _profile(each: Any) -> Profile:
    known, tables = each.preamble, tuple(each.table_ids)
    return Profile(known.id, known.name, tables, each.with_selector, each.size, each.max_group_size)


def _measure(each: Any) -> Array:
    # CounterSpec.Unit has BYTES 1, PACKETS 2, BOTH 3 and MeterSpec.Unit BYTES 1, PACKETS 2: bits of the same
    # mask.
    known, size, unit = each.preamble, getattr(each, "size", 0), each.spec.unit
    return Array(known.id, known.name, size, packets=bool(unit & 2), bytes=bool(unit & 1))


def _value_set(each: Any) -> ValueSet:
    name = each.preamble.name
    return ValueSet(each.preamble.id, name, _key(each.match, f"value set {name}"), each.size)


def _header(each: Any) -> tuple[Field, ...]:
    return tuple(Field(part.id, part.name, part.bitwidth) for part in each.metadata)


def by_field(
    given: Iterable[Any], number: str, fields: Iterable[Field], owner: str, what: str
) -> dict[int, Any]:
    """Return messages by the ids of the fields that they are for, which their attribute `number` holds.

    Raises P4RuntimeError: INVALID_ARGUMENT: `owner` has no such field, or one is given twice; `what` is their kind.
    """
    names = {each.id: each.name for each in fields}
    found: dict[int, Any] = {}
    for each in given:
        identifier = getattr(each, number)
        if identifier not in names:
            raise invalid(f"{owner} has no {what} with id {identifier}")
        if identifier in found:
            raise invalid(f"{owner}: {what} {names[identifier]} is given twice")
        found[identifier] = each
    return found


def asked(items: Mapping[int, Item], identifier: int, what: str) -> list[Item]:
    """Return the objects that a request to read means: all if its id is 0; otherwise as `lookup`."""
    return [lookup(items, identifier, what)] if identifier else list(items.values())


def lookup(items: Mapping[int, Item], identifier: int, what: str) -> Item:
    """Find an object by its P4Runtime id. Raises P4RuntimeError: INVALID_ARGUMENT: the P4Info has no such object."""
    try:
        return items[identifier]
    except KeyError:
        raise invalid(
            f"the P4Info has no {what} with id {identifier}; take ids from the P4Info in use"
        ) from None
