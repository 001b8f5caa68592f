"""Machine code for expressions of BMv2: integers of unlimited precision, at the width that holds them.

Two ways to compute an integer expression. `exact` gives its value, in as many bits as the range it can take needs
(ranges are known from the widths of fields). `low` gives the value modulo 2^n, which for sums, products, masks and left
shifts needs only n bits of the operands: what p4c writes as ``(a + b) & 0xffffffff`` is a 32-bit addition.

What BMv2 leaves undefined is defined here: division by zero gives zero, an index out of a stack's range reads
and writes a spare element.
"""

from dataclasses import dataclass
from typing import Any

from llvmlite import ir as ll

from sim.switch import ir
from sim.switch.codegen.division import divide_wide
from sim.switch.codegen.emit import I1, Space, i, resize
from sim.switch.codegen.places import HeaderPlace
from sim.switch.codegen.ranges import WIDEST, Ranges, needed_bits
from sim.switch.layout import storage_bits
from sim.switch.load_expressions import BOOLEAN_OPS
from sim.switch.switch_errors import UnsupportedProgramError

_COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}


@dataclass(frozen=True)
class Value:
    """An integer known exactly: its bits, and the range it lies in (negative `lo`: two's complement)."""

    bits: Any
    lo: int
    hi: int

    @property
    def signed(self) -> bool:
        """Whether the bits are two's complement."""
        return self.lo < 0


def _constant(value: int, width: int) -> Any:
    return ll.Constant(i(width), value % (1 << width))


class Expressions(Ranges):
    """Compiles expressions into the function `fn`."""

    # Kinds of expressions.

    def is_boolean(self, expr: ir.Expr) -> bool:
        """Whether BMv2 evaluates `expr` to a boolean."""
        if isinstance(expr, ir.Op):
            return expr.op in BOOLEAN_OPS or (expr.op == "?" and self.is_boolean(expr.args[1]))
        return isinstance(expr, ir.Boolean)

    def is_header(self, expr: ir.Expr) -> bool:
        """Whether `expr` is a whole header."""
        return isinstance(expr, ir.HeaderRef) or (
            isinstance(expr, ir.Op) and expr.op in ("dereference_header_stack", "access_union_header")
        )

    # Integers.

    def exact(self, expr: ir.Expr) -> Value:
        """Compute the value of `expr`."""
        lo, hi = self.range(expr)
        width = needed_bits(lo, hi)
        if width > WIDEST:
            raise UnsupportedProgramError(["a left shift by an unbounded amount that is not cut to a width"])
        return Value(self.low(expr, width), lo, hi)

    def low(self, expr: ir.Expr, width: int) -> Any:
        """Compute the value of `expr` modulo 2^width."""
        b = self.fn.b
        if isinstance(expr, ir.Const):
            return _constant(expr.value, width)
        if isinstance(expr, (ir.FieldRef, ir.StackLast, ir.UnionStackLast)):
            pointer, slot = self.field_place(expr)
            return resize(b, self.read_slot(pointer, slot), width, slot.signed)
        if isinstance(expr, ir.Param):
            return resize(b, self._parameter(expr.index), width)
        if isinstance(expr, ir.Lookahead):
            return resize(b, self.lookahead(expr), width)
        if isinstance(expr, ir.RegisterCell):
            return resize(b, self.register_cell(expr), width)
        if isinstance(expr, ir.Op):
            return self._low_op(expr, width)
        return resize(b, self.boolean(expr), width)

    def _low_op(self, expr: ir.Op, width: int) -> Any:
        b, op, args = self.fn.b, expr.op, expr.args
        if op == "access_field":
            pointer, slot = self.field_place(expr)
            return resize(b, self.read_slot(pointer, slot), width, slot.signed)
        if op in ("+", "-", "*", "|", "^"):
            left, right = self.low(args[0], width), self.low(args[1], width)
            return {"+": b.add, "-": b.sub, "*": b.mul, "|": b.or_, "^": b.xor}[op](left, right)
        if op == "&":
            lo, hi = self.range(expr)
            narrow = min(width, needed_bits(lo, hi)) if lo >= 0 else width
            for mask, other in ((args[1], args[0]), (args[0], args[1])):
                if isinstance(mask, ir.Const) and mask.value >= 0 and (mask.value + 1) & mask.value == 0:
                    return (
                        resize(b, self.low(other, min(narrow, max(1, mask.value.bit_length()))), width)
                        if (mask.value)
                        else _constant(0, width)
                    )
            return resize(b, b.and_(self.low(args[0], narrow), self.low(args[1], narrow)), width)
        if op == "~":
            return b.not_(self.low(args[0], width))
        if op == "<<":
            return self._shift_left(args[0], args[1], width)
        if op == "?":
            return b.select(self.boolean(args[0]), self.low(args[1], width), self.low(args[2], width))
        if op == "b2d":
            return resize(b, self.boolean(args[0]), width)
        if op == "two_comp_mod":
            cut = self.static(args[1])
            return resize(b, self.low(args[0], min(cut, width)), width, signed=True)
        if op == "last_stack_index":
            return resize(b, b.sub(self.stack_next(args[0]), 1), width, signed=True)
        if op == "size_stack":
            return resize(b, self.stack_next(args[0]), width)
        if op in BOOLEAN_OPS:
            return resize(b, self.boolean(expr), width)
        value = self._exact_op(expr)
        return resize(b, value.bits, width, value.signed)

    def _shift_left(self, left: ir.Expr, amount: ir.Expr, width: int) -> Any:
        b = self.fn.b
        if isinstance(amount, ir.Const):
            if amount.value >= width:
                return _constant(0, width)
            return b.shl(self.low(left, width), _constant(amount.value, width))
        shift = self.exact(amount)
        small, inside = self._shift_amount(shift, width)
        return b.select(inside, b.shl(self.low(left, width), small), _constant(0, width))

    def _shift_amount(self, shift: Value, width: int) -> tuple[Any, Any]:
        """Return the amount at `width` bits (zero where it is too large) and whether it is below `width`."""
        b = self.fn.b
        bits = max(shift.bits.type.width, width.bit_length() + 1)
        amount = resize(b, shift.bits, bits, shift.signed)
        inside = b.icmp_unsigned("<", amount, _constant(width, bits))
        return resize(b, b.select(inside, amount, _constant(0, bits)), width), inside

    def _exact_op(self, expr: ir.Op) -> Value:
        """Compute the operations that need all of their operands' bits."""
        b, op, args = self.fn.b, expr.op, expr.args
        lo, hi = self.range(expr)
        if op in ("sat_cast", "usat_cast"):
            return self._saturate(expr)
        left, right = self.exact(args[0]), self.exact(args[1])
        if op == ">>":
            width = left.bits.type.width
            small, inside = self._shift_amount(right, width)
            shifted = b.ashr(left.bits, small) if left.signed else b.lshr(left.bits, small)
            beyond = b.ashr(left.bits, _constant(width - 1, width)) if left.signed else _constant(0, width)
            return Value(b.select(inside, shifted, beyond), left.lo, left.hi)
        if op in ("/", "%"):
            width = max(needed_bits(min(left.lo, right.lo), max(left.hi, right.hi)), 2)
            signed = left.signed or right.signed
            width += int(signed)
            x, y = (resize(b, v.bits, width, v.signed) for v in (left, right))
            zero = b.icmp_unsigned("==", y, _constant(0, width))
            y = b.select(zero, _constant(1, width), y)
            divide = {"/": (b.udiv, b.sdiv), "%": (b.urem, b.srem)}[op][signed]
            result = divide(x, y) if width <= 64 else divide_wide(self.fn, op, x, y, signed=signed)
            return Value(b.select(zero, _constant(0, width), result), lo, hi)
        raise UnsupportedProgramError([f"operator {op!r} used as a number"])

    def _saturate(self, expr: ir.Op) -> Value:
        b = self.fn.b
        inner, width = expr.args[0], self.static(expr.args[1])
        lo, hi = self.range(expr)
        unsigned = expr.op == "usat_cast"
        least, most = (0, (1 << width) - 1) if unsigned else (-(1 << (width - 1)), (1 << (width - 1)) - 1)
        if isinstance(inner, ir.Op) and inner.op in ("+", "-") and len(inner.args) == 2:
            ranges = [self.range(a) for a in inner.args]
            if all(least <= a and z <= most for a, z in ranges):
                x, y = (self.low(a, width) for a in inner.args)
                bits = self.fn.saturate(inner.op, x, y, unsigned=unsigned)
                return Value(bits, least, most)
        value = self.exact(inner)
        size = needed_bits(min(value.lo, least), max(value.hi, most))
        signed = value.signed or least < 0
        compare = b.icmp_signed if signed else b.icmp_unsigned
        bits = resize(b, value.bits, size, value.signed)
        if value.hi > most:
            bits = b.select(compare(">", bits, _constant(most, size)), _constant(most, size), bits)
        if value.lo < least:
            bits = b.select(compare("<", bits, _constant(least, size)), _constant(least, size), bits)
        return Value(bits, min(lo, -1) if signed else lo, hi)

    def _parameter(self, index: int) -> Any:
        assert self.fn.action is not None
        at = 0
        for _, width in self.fn.action.params[:index]:
            at += (width + 63) // 64 * 8
        width = self.fn.action.params[index][1]
        raw = self.fn.load(Space.TABLE, self.fn.at(self.fn.params, at), i((width + 63) // 64 * 64), 8)
        return resize(self.fn.b, raw, width)

    def register_cell(self, expr: ir.RegisterCell) -> Any:
        """Load a register cell; an index out of range reads the spare cell."""
        pointer, _, _ = self.register_pointer(expr.register, expr.index)
        width = self.fn.unit.program.registers[expr.register].width
        storage = storage_bits(width)
        return resize(
            self.fn.b, self.fn.load(Space.REGISTER, pointer, i(storage), min(storage // 8, 8)), width
        )

    def register_pointer(self, register: str, index: ir.Expr) -> tuple[Any, Any, int]:
        """Return a cell's address, whether the index is in range (None: always), the cell's bits of storage."""
        b, context = self.fn.b, self.fn.unit.context
        place = context.registers.places[register]
        stride, size = context.registers.groups[place.group]
        at, inside = self.bounded_index(index, size)
        at = self.fn.within(at, size + 1)
        base = self.fn.pointer(f"register {place.group}")
        offset = b.add(b.mul(at, stride), place.offset)
        return self.fn.at(base, offset), inside, place.storage

    def bounded_index(self, index: ir.Expr, size: int) -> tuple[Any, Any]:
        """Return `index` as an i64, `size` if it is out of range, and whether it is in range (None: always)."""
        b = self.fn.b
        value = self.exact(index)
        if value.lo >= 0 and value.hi < size:
            return resize(b, value.bits, 64), None
        width = max(value.bits.type.width + 1, 64)
        wide = resize(b, value.bits, width, value.signed)
        inside = b.icmp_unsigned("<", wide, _constant(size, width))
        return resize(b, b.select(inside, wide, _constant(size, width)), 64), inside

    # Booleans.

    def boolean(self, expr: ir.Expr) -> Any:
        """Compute a boolean expression as an i1."""
        b = self.fn.b
        if isinstance(expr, ir.Boolean):
            return ll.Constant(I1, int(expr.value))
        if not isinstance(expr, ir.Op) or (expr.op not in BOOLEAN_OPS and expr.op != "?"):
            value = self.exact(expr)
            return b.icmp_unsigned("!=", value.bits, 0)
        op, args = expr.op, expr.args
        if op == "d2b":
            return self.boolean(args[0])
        if op in ("and", "or"):
            left, right = self.boolean(args[0]), self.boolean(args[1])
            return b.and_(left, right) if op == "and" else b.or_(left, right)
        if op == "not":
            return b.not_(self.boolean(args[0]))
        if op == "valid":
            return self.is_valid(self.header(args[0]))
        if op == "valid_union":
            return self.union_valid(args[0])
        if op == "?":
            return b.select(self.boolean(args[0]), self.boolean(args[1]), self.boolean(args[2]))
        assert op in _COMPARISONS
        return self._compare(op, args[0], args[1])

    def _compare(self, op: str, left: ir.Expr, right: ir.Expr) -> Any:
        b = self.fn.b
        if self.is_header(left) and self.is_header(right):
            same = self.same_header(self.header(left), self.header(right))
            return same if op == "==" else b.not_(same)
        if isinstance(left, ir.UnionRef) and isinstance(right, ir.UnionRef):
            same = self._same_union(left, right)
            return same if op == "==" else b.not_(same)
        if self.is_boolean(left):
            x, y = self.boolean(left), self.boolean(right)
            return b.icmp_unsigned(op, x, y)
        if isinstance(left, ir.FieldRef) and isinstance(right, ir.FieldRef):
            (p, s), (q, t) = self.field_place(left), self.field_place(right)
            if s.varbit and t.varbit:
                same = self.same_varbit(p, s, q, t)
                return same if op == "==" else b.not_(same)
        one, other = self.exact(left), self.exact(right)
        signed = one.signed or other.signed
        width = needed_bits(min(one.lo, other.lo), max(one.hi, other.hi))
        x, y = resize(b, one.bits, width, one.signed), resize(b, other.bits, width, other.signed)
        return b.icmp_signed(op, x, y) if signed else b.icmp_unsigned(op, x, y)

    def _same_union(self, left: ir.UnionRef, right: ir.UnionRef) -> Any:
        b, unions = self.fn.b, self.fn.unit.program.unions
        result = ll.Constant(I1, 0)
        for one, other in zip(unions[left.name].members, unions[right.name].members, strict=True):
            same = self.same_header(self.header(ir.HeaderRef(one)), self.header(ir.HeaderRef(other)))
            result = b.or_(result, same)
        return result

    def same_header(self, one: HeaderPlace, other: HeaderPlace) -> Any:
        """Whether two headers are both valid with equal fields."""
        b = self.fn.b
        result = b.and_(self.is_valid(one), self.is_valid(other))
        if one.shape.type.name != other.shape.type.name:
            return ll.Constant(I1, 0)
        for slot in one.shape.fields.values():
            if slot.varbit:
                same = self.same_varbit(one.pointer, slot, other.pointer, slot)
            else:
                x, y = self.fn.load_slot(one.pointer, slot), self.fn.load_slot(other.pointer, slot)
                same = b.icmp_unsigned("==", x, y)
            result = b.and_(result, same)
        return result
