"""The layout of memory: the state of a packet, and the context the machine code is called with.

A packet's state is one block of bytes: bookkeeping, then metadata, then headers. A header is its valid byte,
the bit length of its varbit field, then its fields, each in the smallest of 8, 16, 32, 64, 128, … bits that
holds it (a varbit field as its raw bytes). Elements of a stack, and of a stack of unions, are evenly spaced, with
one spare element at the end for writes by an out-of-range index.

The context is an array of 64-bit words: pointers and counts that Python writes and the code reads, and back.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sim.switch import ir

# The most bytes a header may have to be kept in registers.
_SMALL = 64
_CACHE_LINE = 64
# Bookkeeping values in order: addresses (`home`: that of a packet's whole state), then values of 32 bits. Those from
# `clone_session` to `exit` are requests of primitives to the target.
ADDRESSES = ("packet", "home")
_VALUES = (
    *("packet_length", "payload_offset", "length_register", "ingress_length"),
    *("replica_offset", "replica_count", "replica_next", "egress_port", "passes", "ingress_port", "truncate"),
    *("clone_session", "clone_fields", "digest", "resubmit", "recirculate", "exit"),
    *("parser_error", "checksum_error"),
)
INTERNAL = {name: 8 * at for at, name in enumerate(ADDRESSES)}
INTERNAL |= {name: 8 * len(ADDRESSES) + 4 * at for at, name in enumerate(_VALUES)}
_INTERNAL_BYTES = (8 * len(ADDRESSES) + 4 * len(_VALUES) + 7) // 8 * 8

CONTEXT = (
    # Input: rows of frames, their lengths (int32) and ports (uint16); `in_next` is the next row to take.
    *("in_frames", "in_stride", "in_lengths", "in_ports", "in_count", "in_next"),
    # Output, the same, `out_count` rows filled of `out_capacity`.
    *("out_frames", "out_stride", "out_lengths", "out_ports", "out_capacity", "out_count"),
    # Packets in flight: slots of `slot_bytes` (a state, then room for a frame), a stack of free slots, two rings.
    *("slots", "slot_bytes", "free", "free_count", "ring_mask"),
    *("egress_ring", "egress_head", "egress_tail", "ingress_ring", "ingress_head", "ingress_tail"),
    # Replication: (offset, count) per multicast group, (offset, count, truncate, set) per clone session,
    # and (port, rid) per replica.
    *("groups", "sessions", "replicas"),
    *("digest_rows", "digest_capacity", "digest_count"),
    *("now_us", "random", "steps_left", "steps_limit", "passes_limit", "scratch", "needed", "log_level"),
    # Events, in packets.
    *("dropped_ingress", "dropped_egress", "dropped_looping", "dropped_assertion", "parser_loops"),
)


def storage_bits(width: int) -> int:
    """Return how many bits of memory a value of `width` bits takes."""
    for bits in (8, 16, 32, 64):
        if width <= bits:
            return bits
    return (width + 63) // 64 * 64


def align(offset: int, to: int) -> int:
    """Return the first multiple of `to` at or after `offset`."""
    return (offset + to - 1) // to * to


@dataclass(frozen=True)
class FieldSlot:
    """A field's place in its header: byte offset, width in bits, kind."""

    offset: int
    width: int
    signed: bool
    varbit: bool

    @property
    def storage(self) -> int:
        """Bits of memory the field takes (fixed-width fields)."""
        return storage_bits(self.width)


@dataclass(frozen=True)
class WireSlot(FieldSlot):
    """The place of a field that is kept as it is in packets, most significant byte first."""


@dataclass(frozen=True)
class HeaderShape:
    """How headers of one type are laid out; `valid` is at offset 0, the varbit length (uint32) at 4."""

    type: ir.HeaderType
    fields: dict[str, FieldSlot]
    size: int


@dataclass(frozen=True)
class StackPlace:
    """A stack's elements: `base + i * stride`, i < size; the uint32 `next` counts the extracted ones."""

    base: int
    stride: int
    size: int
    next: int


def _shape(header: ir.HeaderType) -> HeaderShape:
    at, fields = 8, {}
    for f in header.fields:
        if f.varbit:
            fields[f.name] = FieldSlot(at, f.width, f.signed, True)
            at += (f.width + 7) // 8
            continue
        size = storage_bits(f.width) // 8
        at = align(at, min(size, 8))
        fields[f.name] = FieldSlot(at, f.width, f.signed, False)
        at += size
    return HeaderShape(header, fields, align(at, 8))


class StateLayout:
    """The layout of a packet's state.

    What lies before `local` is named by constant offsets alone, so code that works on a packet has it in registers:
    bookkeeping, metadata (`metadata_start` to `metadata_end`, which clones and recirculated packets lose), small headers. Then
    come stacks, unions and large headers. From `copied` on, the headers `apart`: nothing reads or writes them after replication
    until they leave, and a packet's replicas share them.
    """

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        # Layout of each header type.
        self.shapes = {name: _shape(t) for name, t in program.header_types.items()}
        self.headers: dict[str, int] = {}  # Byte offset of each header instance.
        # stacks, union_stacks: place of each stack.
        self.stacks: dict[str, StackPlace] = {}
        self.union_stacks: dict[str, StackPlace] = {}
        self.unions: dict[str, int] = {}
        # header name -> (union, position in it)
        self.membership: dict[str, tuple[str, int]] = {
            member: (union.name, position)
            for union in program.unions.values()
            for position, member in enumerate(union.members)
        }
        at = self.metadata_start = _INTERNAL_BYTES
        for header in program.headers.values():
            if header.metadata:
                at = self._place(header.name, at)
        self.metadata_end = counters = at
        at = align(at + 4 * (len(program.stacks) + len(program.union_stacks)), 8)
        together = {m for s in program.stacks.values() for m in s.members} | self.membership.keys()
        single = [h for h in program.headers if h not in self.headers and h not in together]
        small = [h for h in single if self.shape(h).size <= _SMALL and self.shape(h).type.varbit is None]
        self.large = [h for h in single if h not in small]
        self.apart = set(self.large) - program.headers_seen_leaving
        self.large.sort(key=self.apart.__contains__)
        at = self.local = align(self._place_all(small, at), 64)
        for union_stack in program.union_stacks.values():
            base, stride = at, 0
            for union in union_stack.members:
                at = self._place_union(union, at)
                stride = stride or at - base
            at = base + stride * (len(union_stack.members) + 1)
            self.union_stacks[union_stack.name] = StackPlace(base, stride, len(union_stack.members), counters)
            counters += 4
        for union_name in program.unions:
            if union_name not in self.unions:
                at = self._place_union(union_name, at)
        for stack in program.stacks.values():
            base = at
            for member in stack.members:
                at = self._place(member, at)
            stride = self.shape(stack.members[0]).size
            at += stride
            self.stacks[stack.name] = StackPlace(base, stride, len(stack.members), counters)
            counters += 4
        at = self.copied = self._place_all((h for h in self.large if h not in self.apart), at)
        at = self._place_all((h for h in self.large if h in self.apart), at)
        self.size = align(at, 64)  # Bytes in all.

    def shape(self, header: str) -> HeaderShape:
        """Return the layout of a header instance's type."""
        return self.shapes[self.program.headers[header].type.name]

    def is_small(self, header: str) -> bool:
        """Whether a header may be in registers, and is in slots as it is in packets."""
        return self.metadata_end <= self.headers[header] < self.local

    def union_offsets(self, union: str) -> tuple[int, ...]:
        """Return the members' offsets from the union's first byte."""
        members = self.program.unions[union].members
        return tuple(self.headers[m] - self.unions[union] for m in members)

    def _place_all(self, headers: Iterable[str], at: int) -> int:
        for header in headers:
            # A large header's fields begin on a cache line.
            at = self._place(header, at if self.shape(header).size <= _SMALL else align(at + 8, 64) - 8)
        return at

    def _place(self, header: str, at: int) -> int:
        self.headers[header] = at
        return at + self.shape(header).size

    def _place_union(self, union: str, at: int) -> int:
        self.unions[union] = at
        for member in self.program.unions[union].members:
            at = self._place(member, at)
        return at


@dataclass(frozen=True)
class RegisterPlace:
    """A register array's place: cell i is at `i * stride + offset` of its group's memory."""

    group: int
    offset: int
    width: int
    size: int

    @property
    def storage(self) -> int:
        """Bits of memory a cell takes."""
        return storage_bits(self.width)


def _index_key(expr: ir.Expr) -> object:
    if isinstance(expr, ir.FieldRef):
        return (expr.header, expr.field)
    return expr.value if isinstance(expr, ir.Const) else id(expr)


def _register_uses(program: ir.Program) -> Iterator[tuple[object, str]]:
    for action in program.actions.values():
        for primitive in action.primitives:
            if primitive.op == "register_read":
                array, index = primitive.args[1], primitive.args[2]
            elif primitive.op == "register_write":
                array, index = primitive.args[0], primitive.args[1]
            else:
                continue
            if isinstance(array, ir.Named):
                yield (action.id, _index_key(index)), array.name


class Registers:
    """Register arrays of equal length that one action indexes alike share a group, laid out slot by slot.

    Apart, 256 arrays of 1,024 cells put all cells of a slot into one set of the L1 cache. `lines`: arrays of equal length
    that would be alone share a group too, in which a slot has cache lines of its own: for several processors, which work on
    different slots at once.
    """

    def __init__(self, program: ir.Program, *, lines: bool = False) -> None:
        leader = {name: name for name in program.registers}

        def find(name: str) -> str:
            while leader[name] != name:
                name = leader[name]
            return name

        first: dict[object, str] = {}
        for use, name in _register_uses(program):
            key = (use, program.registers[name].size)
            other = find(first.setdefault(key, name))
            leader[find(name)] = other
        members: dict[str, list[ir.Register]] = {}
        for register in program.registers.values():
            members.setdefault(find(register.name), []).append(register)
        if lines:
            members = _alone_together(members)
        self.places: dict[str, RegisterPlace] = {}  # Place of each array.
        # (bytes from one index to the next, cells) per group; one spare cell follows the last, written by indices out of
        # range.
        self.groups: list[tuple[int, int]] = []
        for group, registers in enumerate(members.values()):
            at = 0
            # Widest first keeps every cell aligned; equal widths keep their order, so lanes stay in a row.
            for register in sorted(registers, key=lambda r: -min(storage_bits(r.width), 64)):
                self.places[register.name] = RegisterPlace(group, at, register.width, register.size)
                at += storage_bits(register.width) // 8
            to = _CACHE_LINE if lines and len(registers) > 1 else 8
            self.groups.append((align(at, to), registers[0].size))


def _alone_together(groups: dict[str, list[ir.Register]]) -> dict[str, list[ir.Register]]:
    """Join the groups of one array that have equal length."""
    joined: dict[str, list[ir.Register]] = {}
    for name, registers in groups.items():
        key = name if len(registers) > 1 else f" {registers[0].size}"
        joined.setdefault(key, []).extend(registers)
    return joined


@dataclass(frozen=True)
class TableWords:
    """Offsets of a table's words in the context: `rows`, `row_count`, `entries`, `counters`, `meters`."""

    first: int

    def __getitem__(self, name: str) -> int:
        return self.first + _TABLE_WORDS.index(name)


_TABLE_WORDS = ("rows", "row_count", "entries", "counters", "meters", "members", "groups", "group_members")


class Context:
    """The positions of the context's words, by name; `lines` as `Registers` has it."""

    def __init__(self, program: ir.Program, *, lines: bool = False) -> None:
        self.words = {name: index for index, name in enumerate(CONTEXT)}
        self.tables: dict[str, TableWords] = {}
        at = len(CONTEXT)
        for name in program.tables:
            self.tables[name] = TableWords(at)
            at += len(_TABLE_WORDS)
        self.registers = Registers(program, lines=lines)
        for kind, names in (
            ("register", [str(g) for g in range(len(self.registers.groups))]),
            ("counter", list(program.counters)),
            ("meter", list(program.meters)),
            ("vset", list(program.vsets)),
        ):
            for name in names:
                self.words[f"{kind} {name}"] = at
                at += 2 if kind == "vset" else 1
        self.size = at
