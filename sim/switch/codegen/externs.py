"""Machine code for registers, counters, meters and the hash primitive."""

from typing import Any

from llvmlite import ir as ll

from sim.switch import ir
from sim.switch.codegen.emit import I1, I32, I64, PTR, Fn, Space, Unit, i, resize
from sim.switch.codegen.expressions import Expressions
from sim.switch.codegen.hashing import calculated

# Per rate: info rate (tokens per microsecond, a double), burst, tokens, tokens since the start, configured.
METER_RATE_WORDS = 5
F64 = ll.DoubleType()


class Externs(Expressions):
    """Writes calls of stateful externs; `Primitives` adds the rest."""

    def _do_register_read(self, target: ir.Expr, array: ir.Expr, index: ir.Expr) -> None:
        """Read a cell; an index out of range leaves the target as it is."""
        assert isinstance(array, ir.Named)
        b = self.fn.b
        pointer, slot = self.field_place(target)
        cell, inside, storage = self.register_pointer(array.name, index)
        value = self.fn.load(Space.REGISTER, cell, i(storage), min(storage // 8, 8))
        value = resize(b, value, slot.width)
        if inside is not None:
            value = b.select(inside, value, self.fn.load_slot(pointer, slot))
        self.fn.store_slot(pointer, slot, value)

    def _do_register_write(self, array: ir.Expr, index: ir.Expr, source: ir.Expr) -> None:
        """Write a cell; an index out of range writes the spare one."""
        assert isinstance(array, ir.Named)
        width = self.fn.unit.program.registers[array.name].width
        value = self.low(source, width)
        cell, _, storage = self.register_pointer(array.name, index)
        self.fn.store(Space.REGISTER, resize(self.fn.b, value, storage), cell, min(storage // 8, 8))

    def _do_count(self, array: ir.Expr, index: ir.Expr) -> None:
        """Count the packet and its bytes; an index out of range counts in a spare cell."""
        assert isinstance(array, ir.Named)
        size = self.fn.unit.program.counters[array.name].size
        at = self.fn.within(self.bounded_index(index, size)[0], size + 1)
        base = self.fn.pointer(f"counter {array.name}")
        count_packet(self.fn, self.fn.at(base, self.fn.b.shl(at, 4)))

    def _do_execute_meter(self, array: ir.Expr, index: ir.Expr, target: ir.Expr) -> None:
        """Run a meter and store its color (0 green, 1 yellow, 2 red)."""
        assert isinstance(array, ir.Named)
        meter = self.fn.unit.program.meters[array.name]
        at, _ = self.bounded_index(index, meter.size)
        base = self.fn.pointer(f"meter {array.name}")
        color = run_meter(self.fn, base, at, meter)
        pointer, slot = self.field_place(target)
        self.fn.store_slot(pointer, slot, resize(self.fn.b, color, slot.width))

    def _do_modify_field_with_hash_based_offset(
        self, target: ir.Expr, base: ir.Expr, calculation: ir.Expr, size: ir.Expr
    ) -> None:
        """Store `base + hash mod size`; a size of zero counts as one."""
        assert isinstance(calculation, ir.Named)
        b = self.fn.b
        value = calculated(self, calculation.name)
        modulus = self.low(size, 64)
        modulus = b.select(b.icmp_unsigned("==", modulus, 0), 1, modulus)
        result = b.add(b.urem(value, modulus), self.low(base, 64))
        pointer, slot = self.field_place(target)
        self.fn.store_slot(pointer, slot, resize(b, result, slot.width))


def count_packet(fn: Fn, cell: Any) -> None:
    """Add the packet to the (packets, bytes) pair at `cell`."""
    size = fn.b.zext(fn.internal("ingress_length"), I64)
    for offset, amount in ((0, ll.Constant(I64, 1)), (8, size)):
        fn.add(Space.STATISTICS, fn.at(cell, offset), amount)


def run_meter(fn: Fn, base: Any, index: Any, meter: ir.Meter) -> Any:
    """Run the meter number `index` of the array at `base`; returns the color (i32)."""
    stride = 8 * METER_RATE_WORDS * meter.rates
    cell = fn.at(base, fn.b.mul(index, stride))
    if meter.unit == "packets":
        amount: Any = ll.Constant(I64, 1)
    else:
        amount = fn.b.zext(fn.internal("ingress_length"), I64)
    return fn.call("meter", fn.ctx, cell, ll.Constant(I64, meter.rates), amount)


def write_meter_function(unit: Unit) -> None:
    """Write ``meter(ctx, cell, rates, amount) -> color``: BMv2's token buckets, lowest threshold first."""
    if not unit.program.meters:
        return
    fn = unit.fn("meter", [("ctx", PTR), ("cell", PTR), ("rates", I64), ("amount", I64)], I32)
    b = fn.b
    color = fn.variable(I32, 0)
    stopped = fn.variable(I1, 0)
    now = b.uitofp(fn.word("now_us"), F64)
    with fn.loop(fn.args["rates"]) as index:
        rate = fn.at(fn.args["cell"], b.mul(index, 8 * METER_RATE_WORDS))

        def word(number: int, kind: Any = I64, rate: Any = rate) -> Any:
            return fn.load(Space.STATISTICS, fn.at(rate, 8 * number), kind, 8)

        configured = b.icmp_unsigned("!=", word(4), 0)
        with b.if_then(b.and_(configured, b.not_(b.load(stopped, typ=I1)))):
            since = b.fptoui(b.fmul(now, word(0, F64)), I64)
            earned = b.add(word(2), b.sub(since, word(3)))
            burst = word(1)
            tokens = b.select(b.icmp_unsigned("<", earned, burst), earned, burst)
            fn.store(Space.STATISTICS, since, fn.at(rate, 24), 8)
            short = b.icmp_unsigned("<", tokens, fn.args["amount"])
            left = b.select(short, tokens, b.sub(tokens, fn.args["amount"]))
            fn.store(Space.STATISTICS, left, fn.at(rate, 16), 8)
            with b.if_then(short):
                # Rates are kept highest first: the first that is short decides.
                above = b.sub(fn.args["rates"], index)
                b.store(b.trunc(above, I32), color)
                b.store(ll.Constant(I1, 1), stopped)
    b.ret(b.load(color, typ=I32))
