"""Places of fields and headers that a program names: instances, stack elements, union members."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from llvmlite import ir as ll

from sim.switch import ir
from sim.switch.codegen.emit import I1, I8, I32, I64, Fn, Space, i, resize
from sim.switch.layout import FieldSlot, HeaderShape, StackPlace
from sim.switch.switch_errors import UnsupportedProgramError

VALID = FieldSlot(0, 1, False, False)


@dataclass(frozen=True)
class HeaderPlace:
    """A header in memory; `siblings` are byte offsets, from it, of the other members of its union.

    Metadata is always valid.
    """

    pointer: Any
    shape: HeaderShape
    siblings: tuple[int, ...] = ()
    metadata: bool = False


class Places(ABC):
    """Finds fields and headers from the function `fn`; `Expressions` adds the arithmetic it needs for indices."""

    def __init__(self, fn: Fn) -> None:
        self.fn = fn

    @abstractmethod
    def bounded_index(self, index: ir.Expr, size: int) -> tuple[Any, Any]:
        """Return `index` as an i64, `size` if it is out of range, and whether it is in range (None: always)."""

    # Stacks.

    def stack_place(self, expr: ir.Expr) -> StackPlace:
        """Return the place of a stack named by an expression."""
        state = self.fn.unit.state
        if isinstance(expr, ir.StackRef):
            return state.stacks[expr.name]
        if isinstance(expr, ir.UnionStackRef):
            return state.union_stacks[expr.name]
        raise UnsupportedProgramError([f"{type(expr).__name__} used as a stack"])

    def stack_size(self, expr: ir.Expr) -> int:
        """Return how many elements a stack has."""
        return self.stack_place(expr).size

    def stack_next(self, expr: ir.Expr) -> Any:
        """Load how many elements have been extracted to a stack (i32)."""
        return self.fn.load(Space.STATE, self.fn.at(self.fn.st, self.stack_place(expr).next), I32, 4)

    def set_stack_next(self, expr: ir.Expr, value: Any) -> None:
        """Store how many elements of a stack are extracted."""
        self.fn.store(Space.STATE, value, self.fn.at(self.fn.st, self.stack_place(expr).next), 4)

    def element(self, place: StackPlace, index: Any) -> Any:
        """Return the address of element `index` (i64, at most the size)."""
        b = self.fn.b
        index = self.fn.within(index, place.size + 1)
        offset = b.add(b.mul(index, place.stride), place.base)
        return self.fn.at(self.fn.home(), offset)

    def _last(self, place: StackPlace) -> Any:
        """Return the address of the last extracted element; of an empty stack, the spare one."""
        b = self.fn.b
        count = self.fn.load(Space.STATE, self.fn.at(self.fn.st, place.next), I32, 4)
        empty = b.icmp_unsigned("==", count, 0)
        last = b.select(empty, place.size, b.sub(count, 1))
        return self.element(place, b.zext(last, I64))

    # Headers.

    def header(self, expr: ir.Expr) -> HeaderPlace:
        """Find a header."""
        return self._find_header(expr)[1]()

    def _find_header(self, expr: ir.Expr) -> tuple[HeaderShape, Callable[[], HeaderPlace]]:
        """Return the shape of a header, and a function that writes the code for its place."""
        state, program = self.fn.unit.state, self.fn.unit.program
        if isinstance(expr, ir.HeaderRef):
            shape, name = state.shape(expr.name), expr.name
            metadata, siblings = (
                program.headers[name].metadata,
                self._siblings(*state.membership.get(name, ("", 0))),
            )
            return shape, lambda: HeaderPlace(self.fn.field_pointer(name), shape, siblings, metadata)
        if isinstance(expr, ir.StackLast) and expr.field == "last":
            # p4c's form of a stack's last header as a whole.
            shape, place = state.shape(program.stacks[expr.stack].members[0]), state.stacks[expr.stack]
            return shape, lambda: HeaderPlace(self._last(place), shape)
        if isinstance(expr, ir.Op) and expr.op == "dereference_header_stack":
            stack, index = expr.args
            assert isinstance(stack, ir.StackRef)
            shape, place = state.shape(program.stacks[stack.name].members[0]), state.stacks[stack.name]
            return shape, lambda: HeaderPlace(self._indexed(place, index), shape)
        if isinstance(expr, ir.Op) and expr.op == "access_union_header":
            member = expr.args[1]
            assert isinstance(member, ir.Const)
            union, base = self._find_union(expr.args[0])
            shape, position = state.shape(program.unions[union].members[member.value]), member.value
            return shape, lambda: self.union_member(base(), union, position)
        raise UnsupportedProgramError([f"{type(expr).__name__} used as a header"])

    def union(self, expr: ir.Expr) -> tuple[Any, str]:
        """Find a union: its address and the name of an instance laid out like it."""
        name, base = self._find_union(expr)
        return base(), name

    def _find_union(self, expr: ir.Expr) -> tuple[str, Callable[[], Any]]:
        state = self.fn.unit.state
        if isinstance(expr, ir.UnionRef):
            name = expr.name
            return name, lambda: self.fn.place(state.unions[name])
        if isinstance(expr, ir.Op) and expr.op == "dereference_union_stack":
            stack, index = expr.args
            assert isinstance(stack, ir.UnionStackRef)
            place = state.union_stacks[stack.name]
            return self.fn.unit.program.union_stacks[stack.name].members[0], lambda: self._indexed(
                place, index
            )
        raise UnsupportedProgramError([f"{type(expr).__name__} used as a header union"])

    def _indexed(self, place: StackPlace, index: ir.Expr) -> Any:
        return self.element(place, self.bounded_index(index, place.size)[0])

    def _siblings(self, union: str, position: int) -> tuple[int, ...]:
        """Return the offsets, from a member of a union, of its other members; of no union, none."""
        offsets = self.fn.unit.state.union_offsets(union) if union else ()
        return tuple(o - offsets[position] for o in offsets if o != offsets[position])

    def union_member(self, base: Any, union: str, position: int) -> HeaderPlace:
        """Return member number `position` of the union at `base`."""
        state = self.fn.unit.state
        offsets = state.union_offsets(union)
        shape = state.shape(self.fn.unit.program.unions[union].members[position])
        return HeaderPlace(self.fn.at(base, offsets[position]), shape, self._siblings(union, position))

    def is_valid(self, place: HeaderPlace) -> Any:
        """Whether a header is valid (i1)."""
        if place.metadata:
            return ll.Constant(I1, 1)
        return resize(self.fn.b, self.fn.load(Space.STATE, place.pointer, I8, 8), 1)

    def union_valid(self, expr: ir.Expr) -> Any:
        """Whether any member of a union is valid (i1)."""
        base, union = self.union(expr)
        result = ll.Constant(I1, 0)
        for position in range(len(self.fn.unit.program.unions[union].members)):
            result = self.fn.b.or_(result, self.is_valid(self.union_member(base, union, position)))
        return result

    def set_valid(self, place: HeaderPlace, valid: bool | Any) -> None:
        """Mark a header valid, which makes its siblings in a union invalid, or invalid."""
        b = self.fn.b
        known = isinstance(valid, bool)
        bits = ll.Constant(I8, int(valid)) if known else b.zext(valid, I8)
        self.fn.store(Space.STATE, bits, place.pointer, 8)
        if place.siblings and valid is not False:
            with nullcontext() if known else b.if_then(valid):
                for sibling in place.siblings:
                    self.fn.store(Space.STATE, ll.Constant(I8, 0), self.fn.at(place.pointer, sibling), 8)

    def varbit_bits(self, header: Any) -> Any:
        """Load the width of a header's varbit field in bits (i32)."""
        return self.fn.load(Space.STATE, self.fn.at(header, 4), I32, 4)

    def set_varbit_bits(self, header: Any, bits: Any) -> None:
        """Store the width of a header's varbit field in bits (i32)."""
        self.fn.store(Space.STATE, bits, self.fn.at(header, 4), 4)

    def header_bytes(self, place: HeaderPlace) -> Any:
        """Return how many bytes a header takes in a packet (i32)."""
        fixed = sum(s.width for s in place.shape.fields.values() if not s.varbit) // 8
        size = ll.Constant(I32, fixed)
        if place.shape.type.varbit is None:
            return size
        varbit = self.fn.b.lshr(self.varbit_bits(place.pointer), 3)
        return self.fn.b.add(size, varbit)

    # Fields.

    def slot_of(self, expr: ir.Expr) -> FieldSlot:
        """Return a field's place in its header, without writing code."""
        return self._find_field(expr)[1]

    def field_place(self, expr: ir.Expr) -> tuple[Any, FieldSlot]:
        """Find a field: the address of its header and its place there."""
        pointer, slot = self._find_field(expr)
        return pointer(), slot

    def _find_field(self, expr: ir.Expr) -> tuple[Callable[[], Any], FieldSlot]:
        state, program = self.fn.unit.state, self.fn.unit.program
        if isinstance(expr, ir.FieldRef):
            header = expr.header
            slot = VALID if expr.field == "$valid$" else state.shape(header).fields[expr.field]
            return lambda: self.fn.field_pointer(header), slot
        if isinstance(expr, ir.StackLast):
            place, shape = state.stacks[expr.stack], state.shape(program.stacks[expr.stack].members[0])
            return lambda: self._last(place), shape.fields[expr.field]
        if isinstance(expr, ir.UnionStackLast):
            place, union = state.union_stacks[expr.stack], program.union_stacks[expr.stack].members[0]
            position = program.unions[union].member_names.index(expr.member)
            shape = state.shape(program.unions[union].members[position])
            return lambda: self.union_member(self._last(place), union, position).pointer, shape.fields[
                expr.field
            ]
        if isinstance(expr, ir.Op) and expr.op == "access_field":
            number = expr.args[1]
            assert isinstance(number, ir.Const)
            shape, header_place = self._find_header(expr.args[0])
            names, position = shape.type.fields, number.value
            slot = VALID if position == len(names) else shape.fields[names[position].name]
            return lambda: header_place().pointer, slot
        raise UnsupportedProgramError([f"{type(expr).__name__} used as a field"])

    def read_slot(self, header: Any, slot: FieldSlot) -> Any:
        """Load a field's value; of a varbit field, its bytes as one big-endian number."""
        if not slot.varbit:
            return self.fn.load_slot(header, slot)
        size = (slot.width + 7) // 8
        raw = self.fn.load(Space.STATE, self.fn.at(header, slot.offset), i(8 * size), 1)
        value = self.fn.bswap(raw)
        missing = self.fn.b.sub(ll.Constant(I32, 8 * size), self.varbit_bits(header))
        full = self.fn.b.icmp_unsigned(">=", missing, 8 * size)
        shift = resize(self.fn.b, self.fn.b.select(full, 0, missing), 8 * size)
        value = self.fn.b.select(full, 0, self.fn.b.lshr(value, shift))
        return resize(self.fn.b, value, max(slot.width, 1))

    def same_varbit(self, header: Any, slot: FieldSlot, other: Any, other_slot: FieldSlot) -> Any:
        """Whether two varbit fields have equal width and bits."""
        b = self.fn.b
        x, y = self.read_slot(header, slot), self.read_slot(other, other_slot)
        width = max(x.type.width, y.type.width)
        same = b.icmp_unsigned("==", resize(b, x, width), resize(b, y, width))
        return b.and_(same, b.icmp_unsigned("==", self.varbit_bits(header), self.varbit_bits(other)))

    def lookahead(self, expr: ir.Lookahead) -> Any:
        """Read bits past the parser's cursor; only parsers can."""
        raise UnsupportedProgramError(["lookahead outside a parser"])
