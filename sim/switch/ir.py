"""The typed form of a v1model program: what `loader` makes of BMv2 JSON and `codegen` compiles.

Names are those of the JSON. Expressions have BMv2's meaning: integers of unlimited precision, cut to a
field's width when they are stored.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from sim.switch.operands import *  # noqa: F403  # the operands are names of this module too
from sim.switch.operands import Expr, FieldRef, HeaderRef

MatchKind = Literal["exact", "lpm", "ternary", "range", "optional", "valid"]


@dataclass(frozen=True)
class FieldType:
    """A field of a header type; `width` in bits, of a varbit field the largest."""

    name: str
    width: int
    signed: bool = False
    varbit: bool = False


@dataclass(frozen=True)
class HeaderType:
    """A header or metadata type; `length` is the expression BMv2 computes a varbit's width with, if given."""

    name: str
    fields: tuple[FieldType, ...]
    length: Expr | None = None

    @property
    def max_bytes(self) -> int:
        """The most bytes a header of this type takes in a packet."""
        return sum(f.width for f in self.fields) // 8

    @property
    def varbit(self) -> FieldType | None:
        """The variable-length field, if there is one."""
        return next((f for f in self.fields if f.varbit), None)

    def index(self, name: str) -> int:
        """Return the position of the field `name`."""
        return next(i for i, f in enumerate(self.fields) if f.name == name)


@dataclass(frozen=True)
class Header:
    """A header or metadata instance."""

    name: str
    type: HeaderType
    metadata: bool


@dataclass(frozen=True)
class Stack:
    """A stack of headers, or of header unions, and its elements, first to last."""

    name: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Union:
    """A header union: at most one of its members is valid."""

    name: str
    members: tuple[str, ...]
    member_names: tuple[str, ...]


@dataclass(frozen=True)
class Primitive:
    """One call in an action or parser state; `place` is where it stands in the P4 source, if that is known."""

    op: str
    args: tuple[Expr, ...]
    place: str = ""


@dataclass(frozen=True)
class Action:
    """An action; `params` are (name, width in bits)."""

    id: int
    name: str
    params: tuple[tuple[str, int], ...]
    primitives: tuple[Primitive, ...]


@dataclass(frozen=True)
class Transition:
    """One case of a parser's select: ``default``, a value under a mask (``None``: all bits), or a value set."""

    kind: Literal["default", "value", "vset"]
    value: int
    mask: int | None
    vset: str
    next_state: str | None


@dataclass(frozen=True)
class ParseState:
    """A parser state; `key` holds (expression, width in bits); values are of byte-padded concatenated keys."""

    name: str
    ops: tuple[Primitive, ...]
    key: tuple[tuple[Expr, int], ...]
    transitions: tuple[Transition, ...]


@dataclass(frozen=True)
class KeyField:
    """A match field; `mask` is applied before matching."""

    name: str
    kind: MatchKind
    target: Expr
    width: int
    mask: int | None


@dataclass(frozen=True)
class ConstEntry:
    """An entry written in the program: per key field (value, mask | prefix length | upper bound)."""

    key: tuple[tuple[int, int | None], ...]
    priority: int
    action: int
    params: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """A match-action table."""

    id: int
    name: str
    kind: MatchKind
    key: tuple[KeyField, ...]
    actions: tuple[int, ...]
    next_tables: dict[int | str, str | None]
    base_next: str | None
    default_action: int | None
    default_params: tuple[int, ...]
    default_const: bool
    entries: tuple[ConstEntry, ...]
    immutable: bool
    size: int
    profile: str | None
    with_counters: bool
    direct_meter: str | None
    place: str = ""


@dataclass(frozen=True)
class If:
    """A branch of a control."""

    name: str
    condition: Expr
    true_next: str | None
    false_next: str | None


@dataclass(frozen=True)
class Pipeline:
    """A control: tables and branches by name, and where it starts."""

    name: str
    start: str | None
    tables: dict[str, Table]
    branches: dict[str, If]


@dataclass(frozen=True)
class ActionProfile:
    """An action profile; `selector` is (hash algorithm, inputs) if members are chosen by hash."""

    name: str
    size: int
    selector: tuple[str, tuple[tuple[Expr, int], ...]] | None


@dataclass(frozen=True)
class Calculation:
    """A hash: inputs are (expression, width in bits)."""

    name: str
    algorithm: str
    inputs: tuple[tuple[Expr, int], ...]
    payload: bool


@dataclass(frozen=True)
class Checksum:
    """A checksum of the parser's (`verify`) or the deparser's (`update`) side."""

    name: str
    target: FieldRef
    calculation: str
    condition: Expr | None
    verify: bool
    update: bool


@dataclass(frozen=True)
class Register:
    """A register array."""

    name: str
    width: int
    size: int


@dataclass(frozen=True)
class Counter:
    """A counter array; `table` names the owner of direct counters."""

    name: str
    size: int
    table: str | None


@dataclass(frozen=True)
class Meter:
    """A meter array; `table` and `target` belong to direct meters."""

    name: str
    size: int
    unit: Literal["packets", "bytes"]
    rates: int
    table: str | None
    target: FieldRef | None


@dataclass(frozen=True)
class Program:
    """A whole v1model program.

    `fingerprint` is the SHA-256 of the JSON without source positions; it keys the code cache.
    """

    path: str
    fingerprint: str
    header_types: dict[str, HeaderType]
    headers: dict[str, Header]
    stacks: dict[str, Stack]
    unions: dict[str, Union]
    union_stacks: dict[str, Stack]
    errors: dict[str, int]
    aliases: dict[str, FieldRef]
    init_state: str | None
    parse_states: dict[str, ParseState]
    vsets: dict[str, int]
    actions: dict[int, Action]
    ingress: Pipeline
    egress: Pipeline
    deparser: tuple[str, ...]
    deparser_ops: tuple[Primitive, ...]
    calculations: dict[str, Calculation]
    checksums: tuple[Checksum, ...]
    registers: dict[str, Register]
    counters: dict[str, Counter]
    meters: dict[str, Meter]
    profiles: dict[str, ActionProfile]
    field_lists: dict[int, tuple[Expr, ...]]
    digests: dict[int, tuple[str, tuple[tuple[Expr, int], ...]]] = field(default_factory=dict)

    @property
    def tables(self) -> dict[str, Table]:
        """Every table of both controls."""
        return {**self.ingress.tables, **self.egress.tables}

    @cached_property
    def headers_seen_leaving(self) -> set[str]:
        """The headers that something names after replication, or that a field list names."""
        return headers_of((leaving(self), self.field_lists))

    @cached_property
    def headers_seen_arriving(self) -> set[str]:
        """The headers that the parser or a check of checksums names, other than to extract, add or remove them."""
        states = self.parse_states.values()
        reads = [p for s in states for p in s.ops if p.op not in ("add_header", "remove_header")]
        checks = [(c, self.calculations[c.calculation]) for c in self.checksums if c.verify]
        return headers_of((reads, [s.key for s in states], checks))

    @cached_property
    def metadata_seen_leaving(self) -> list[tuple[str, str]]:
        """The fields of metadata that something names after replication, or that a field list names."""
        named = self._all_fields((leaving(self), self.field_lists))
        return sorted(n for n in named if self.headers[n[0]].metadata and n[1] != "$valid$")

    @cached_property
    def written_leaving(self) -> set[tuple[str, str]]:
        """The fields that may be written after replication."""
        _, actions, _, meters, deparser, checksums = leaving(self)
        return self._all_fields((actions, meters, deparser, [target for _, target, _ in checksums]))

    def _all_fields(self, node: Any) -> set[tuple[str, str]]:
        """Return the fields, by header and name, that something names, alone or with their header."""
        named = fields_of(node)
        whole = {p.name for p in parts(node) if isinstance(p, HeaderRef)}
        whole |= {h for h, f in named if f == "$valid$"}
        return named | {(h, f.name) for h in whole for f in self.headers[h].type.fields}

    def uses(self, *primitives: str) -> bool:
        """Whether some action has one of these primitives."""
        return any(p.op in primitives for a in self.actions.values() for p in a.primitives)

    def well_known(self, name: str) -> FieldRef | None:
        """Return the field the target knows as `name`, or None if the program does not have it."""
        if name in self.aliases:
            return self.aliases[name]
        header, _, member = name.partition(".")
        for holder in (header, "standard_metadata"):
            instance = self.headers.get(holder)
            if instance and any(f.name == member for f in instance.type.fields):
                return FieldRef(holder, member)
        return None


def parts(node: Any) -> Iterator[Any]:
    """Iterate over an expression and its operands, theirs included."""
    yield node
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, (list, tuple)):
        for item in node:
            yield from parts(item)
    elif dataclasses.is_dataclass(node) and not isinstance(node, type):
        for member in dataclasses.fields(node):
            yield from parts(getattr(node, member.name))


def fields_of(node: Any) -> set[tuple[str, str]]:
    """Return the fields that something names."""
    return {(p.header, p.field) for p in parts(node) if isinstance(p, FieldRef)}


def leaving(program: Program) -> tuple[Any, ...]:
    """Return all that runs on a packet between its replication and its last byte: egress, checksums, deparser.

    What only marks metadata to be dropped is left out: it reads nothing.
    """
    called = {a for t in program.egress.tables.values() for a in t.actions}
    actions = [[p for p in program.actions[a].primitives if p.op != "mark_to_drop"] for a in sorted(called)]
    checksums = [
        (c.condition, c.target, program.calculations[c.calculation].inputs)
        for c in program.checksums
        if c.update
    ]
    beside = [program.profiles[t.profile] for t in program.egress.tables.values() if t.profile]
    meters = [m for m in program.meters.values() if m.table in program.egress.tables]
    return program.egress, actions, beside, meters, program.deparser_ops, checksums


def headers_of(node: Any) -> set[str]:
    """Return the headers that something names, or a field of which it names."""
    return {n for n, _ in fields_of(node)} | {p.name for p in parts(node) if isinstance(p, HeaderRef)}
