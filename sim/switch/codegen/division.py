"""Division beyond 64 bits, bit by bit: LLVM would call functions of a compiler's runtime, which is not linked here."""

from typing import Any

from llvmlite import ir as ll

from sim.switch.codegen.emit import Fn, i


def divide_wide(fn: Fn, op: str, left: Any, right: Any, *, signed: bool) -> Any:
    """Return the quotient (``/``) or remainder (``%``), cut towards zero; `right` is not zero."""
    b, kind = fn.b, left.type
    zero = ll.Constant(kind, 0)
    if not signed:
        return _call(fn, op, left, right)
    negative, other = b.icmp_signed("<", left, zero), b.icmp_signed("<", right, zero)
    result = _call(fn, op, b.select(negative, b.neg(left), left), b.select(other, b.neg(right), right))
    flip = b.xor(negative, other) if op == "/" else negative
    return b.select(flip, b.neg(result), result)


def _call(fn: Fn, op: str, left: Any, right: Any) -> Any:
    width = left.type.width
    name = f"{'quotient' if op == '/' else 'remainder'}_{width}"
    if name not in fn.unit.functions:
        _write(fn, name, op, width)
    return fn.call(name, left, right)


def _write(caller: Fn, name: str, op: str, width: int) -> None:
    kind = i(width)
    fn = caller.unit.fn(name, [("left", kind), ("right", kind)], kind)
    b = fn.b
    one, zero = ll.Constant(kind, 1), ll.Constant(kind, 0)
    dividend = fn.variable(kind, fn.args["left"])
    quotient, remainder = fn.variable(kind, zero), fn.variable(kind, zero)
    with fn.loop(width):
        value = b.load(dividend, typ=kind)
        top = b.lshr(value, width - 1)
        b.store(b.shl(value, one), dividend)
        before = b.load(remainder, typ=kind)
        # The bit that the shift pushes out still counts: the divisor may have its top bit set.
        carried = b.icmp_unsigned("!=", b.lshr(before, width - 1), zero)
        rest = b.or_(b.shl(before, one), top)
        fits = b.or_(carried, b.icmp_unsigned(">=", rest, fn.args["right"]))
        b.store(b.select(fits, b.sub(rest, fn.args["right"]), rest), remainder)
        digit = b.zext(fits, kind)
        b.store(b.or_(b.shl(b.load(quotient, typ=kind), one), digit), quotient)
    b.ret(b.load(quotient if op == "/" else remainder, typ=kind))
