"""The range of values that an expression of BMv2 can take, known from the widths of fields."""

from sim.switch import ir
from sim.switch.codegen.emit import Fn
from sim.switch.codegen.places import Places
from sim.switch.layout import FieldSlot
from sim.switch.load_expressions import BOOLEAN_OPS
from sim.switch.switch_errors import UnsupportedProgramError

WIDEST = 1 << 15  # Farthest shift that is distinguished from one farther.


def needed_bits(lo: int, hi: int) -> int:
    """Return how many bits hold every integer from `lo` to `hi`."""
    if lo >= 0:
        return max(1, hi.bit_length())
    return max((~lo).bit_length(), max(hi, 0).bit_length()) + 1


def field_range(slot: FieldSlot) -> tuple[int, int]:
    """Return the range of a field's values."""
    if slot.signed:
        return -(1 << (slot.width - 1)), (1 << (slot.width - 1)) - 1
    return 0, (1 << slot.width) - 1


class Ranges(Places):
    """Finds the ranges of expressions in the function `fn`."""

    def __init__(self, fn: Fn) -> None:
        super().__init__(fn)
        self._ranges: dict[int, tuple[int, int]] = {}

    def range(self, expr: ir.Expr) -> tuple[int, int]:
        """Return the least and the greatest value `expr` can take."""
        known = self._ranges.get(id(expr))
        if known is None:
            known = self._ranges[id(expr)] = self._range(expr)
        return known

    def _range(self, expr: ir.Expr) -> tuple[int, int]:
        if isinstance(expr, ir.Const):
            return expr.value, expr.value
        if isinstance(expr, (ir.FieldRef, ir.StackLast, ir.UnionStackLast)):
            return field_range(self.slot_of(expr))
        if isinstance(expr, ir.Param):
            assert self.fn.action is not None
            return 0, (1 << self.fn.action.params[expr.index][1]) - 1
        if isinstance(expr, ir.Lookahead):
            return 0, (1 << expr.width) - 1
        if isinstance(expr, ir.RegisterCell):
            return 0, (1 << self.fn.unit.program.registers[expr.register].width) - 1
        if isinstance(expr, ir.Op):
            return self._op_range(expr)
        if isinstance(expr, ir.Boolean):
            return int(expr.value), int(expr.value)
        raise UnsupportedProgramError([f"{type(expr).__name__} used as a number"])

    def _op_range(self, expr: ir.Op) -> tuple[int, int]:
        op, args = expr.op, expr.args
        if op == "access_field":
            return field_range(self.slot_of(expr))
        if op == "last_stack_index":
            return -1, self.stack_size(args[0])
        if op == "size_stack":
            return 0, self.stack_size(args[0])
        if op in BOOLEAN_OPS or op == "b2d":
            return 0, 1
        if op == "?":
            (a, b), (c, d) = self.range(args[1]), self.range(args[2])
            return min(a, c), max(b, d)
        lo, hi = self.range(args[0])
        if op == "~":
            return ~hi, ~lo
        low2, high2 = self.range(args[1])
        if op == "+":
            return lo + low2, hi + high2
        if op == "-":
            return lo - high2, hi - low2
        if op == "*":
            corners = [lo * low2, lo * high2, hi * low2, hi * high2]
            return min(corners), max(corners)
        if op == "/":
            return (0, hi) if lo >= 0 else (min(lo, -hi), max(hi, -lo))
        if op == "%":
            return (0, min(hi, max(high2 - 1, 0))) if lo >= 0 else (min(lo, -hi), max(hi, -lo))
        if op == "<<":
            shift = min(max(high2, 0), WIDEST)
            return min(lo, lo << shift), max(hi << shift, hi)
        if op == ">>":
            least, most = min(max(low2, 0), WIDEST), min(max(high2, 0), WIDEST)
            return lo >> (most if lo >= 0 else least), hi >> (least if hi >= 0 else most)
        if op in ("two_comp_mod", "sat_cast", "usat_cast"):
            width = self.static(args[1])
            low, high = (
                (0, (1 << width) - 1) if op == "usat_cast" else (-(1 << (width - 1)), (1 << (width - 1)) - 1)
            )
            if op == "two_comp_mod":
                return (lo, hi) if low <= lo and hi <= high else (low, high)
            return min(max(lo, low), high), min(max(hi, low), high)
        if op == "&" and (lo >= 0 or low2 >= 0):
            return 0, min(bound for bound, least in ((hi, lo), (high2, low2)) if least >= 0)
        bits = max(needed_bits(lo, hi) + (lo >= 0), needed_bits(low2, high2) + (low2 >= 0))
        if lo >= 0 and low2 >= 0:
            return 0, (1 << (bits - 1)) - 1
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def static(self, expr: ir.Expr) -> int:
        """Return the value of an expression that must be a constant."""
        assert isinstance(expr, ir.Const)
        return expr.value
