"""Machine code for actions: ``action_<id>(ctx, st, params)``, one call per primitive."""

from collections.abc import Callable, Iterable
from typing import Any

from llvmlite import ir as ll

from sim.switch import ir
from sim.switch.codegen.emit import I32, I64, PTR, VOID, Fn, Space, Unit, i, resize
from sim.switch.codegen.places import HeaderPlace
from sim.switch.codegen.primitive_runs import PrimitiveRun, find_runs
from sim.switch.codegen.turns import Turns
from sim.switch.layout import StackPlace
from sim.switch.switch_errors import UnsupportedProgramError

DROP_PORT = 511
# Value of `exit` once a packet is to be dropped; 1 where the control alone has ended.
DROP = 2
MAX_TURNS = 1 << 18
_REQUESTS = {"resubmit": "resubmit", "recirculate": "recirculate", "generate_digest": "digest"}
"""Requests that a packet makes by the last argument, and the internal field that keeps each."""


def write_actions(unit: Unit) -> None:
    """Write every action of the program."""
    for action in unit.program.actions.values():
        fn = unit.fn(f"action_{action.id}", [("ctx", PTR), ("st", PTR), ("params", PTR)], VOID)
        fn.action = action
        fn.mark(f"action {action.name}")
        _write_body(Primitives(fn), action)


def _write_body(primitives: "Primitives", action: ir.Action) -> None:
    fn = primitives.fn
    end = fn.function.append_basic_block("end")
    runs = find_runs(action, fn.unit.state, fn.unit.context)
    _write_steps(primitives, action.primitives, 0, len(action.primitives), end, runs)
    fn.b.ret_void()


def _write_steps(
    primitives: "Primitives",
    steps: tuple[ir.Primitive, ...],
    first: int,
    last: int,
    end: Any,
    runs: dict[int, PrimitiveRun],
) -> None:
    """Write the primitives from `first` on; the block `end`, where writing goes on, stands for all from `last` on."""
    fn = primitives.fn
    targets = {
        argument.value
        for primitive in steps[first:last]
        if primitive.op in ("_jump", "_jump_if_zero") and isinstance(argument := primitive.args[-1], ir.Const)
    }
    within = {at for run in runs.values() for at in range(run.first + 1, run.end)}
    blocks = {t: fn.function.append_basic_block(f"at.{t}") for t in sorted(targets - within) if t < last}
    position = first
    while position < last:
        primitive, run = steps[position], runs.get(position)
        if position in blocks:
            if not fn.b.block.is_terminated:
                fn.b.branch(blocks[position])
            fn.b.position_at_end(blocks[position])
        elif fn.b.block.is_terminated:
            fn.b.position_at_end(fn.function.append_basic_block("after"))
        if run:
            for _ in primitives.turns(run, steps):
                turn_end = fn.function.append_basic_block("turn_end")
                _write_steps(primitives, steps, position, position + run.length, turn_end, {})
            position = run.end
            continue
        if primitive.op in ("_jump", "_jump_if_zero"):
            offset = primitive.args[-1]
            assert isinstance(offset, ir.Const)
            target = blocks.get(offset.value, end)
            if offset.value <= position:
                _count_turn(fn, end)
            if primitive.op == "_jump":
                fn.b.branch(target)
            else:
                following = fn.function.append_basic_block("following")
                fn.b.cbranch(primitives.boolean(primitive.args[0]), following, target)
                fn.b.position_at_end(following)
        else:
            primitives.primitive(primitive)
        position += 1
    if not fn.b.block.is_terminated:
        fn.b.branch(end)
    fn.b.position_at_end(end)


def _count_turn(fn: Fn, end: Any) -> None:
    """End the action, and drop the packet, after `MAX_TURNS` jumps back: a loop need not end."""
    turns = fn.variable(I32)
    with fn.b.goto_entry_block():
        fn.b.store(ll.Constant(I32, 0), turns)
    count = fn.b.add(fn.b.load(turns, typ=I32), 1)
    fn.b.store(count, turns)
    stop, resume = fn.b.append_basic_block("stop"), fn.b.append_basic_block("turn")
    fn.b.cbranch(fn.b.icmp_unsigned(">", count, MAX_TURNS), stop, resume)
    fn.b.position_at_end(stop)
    fn.bump("dropped_looping")
    fn.set_internal("exit", DROP)
    fn.b.branch(end)
    fn.b.position_at_end(resume)


class Primitives(Turns):
    """Writes primitive calls into the function `fn`."""

    def primitive(self, primitive: ir.Primitive) -> None:
        """Write one call."""
        self.fn.mark(primitive.place)
        if primitive.op in _REQUESTS:
            self.fn.set_internal(_REQUESTS[primitive.op], self.low(primitive.args[-1], 32))
        else:
            method: Callable[..., None] = getattr(self, f"_do_{primitive.op}")
            method(*primitive.args)

    # Assignments.

    def assign(self, target: ir.Expr, source: ir.Expr) -> None:
        """Store an expression's value into a field, cut to its width."""
        pointer, slot = self.field_place(target)
        if slot.varbit:
            self._do_assign_VL(target, source)
            return
        self.fn.store_slot(pointer, slot, self.low(source, slot.width))

    def _do_assign(self, target: ir.Expr, source: ir.Expr) -> None:
        if isinstance(target, ir.RegisterCell):
            pointer, _, storage = self.register_pointer(target.register, target.index)
            width = self.fn.unit.program.registers[target.register].width
            value = resize(self.fn.b, self.low(source, width), storage)
            self.fn.store(Space.REGISTER, value, pointer, min(storage // 8, 8))
            return
        self.assign(target, source)

    def _do_assign_VL(self, target: ir.Expr, source: ir.Expr) -> None:
        """Copy a varbit field with its width."""
        to, to_slot = self.field_place(target)
        source_header, source_slot = self.field_place(source)
        bits = self.varbit_bits(source_header)
        self.set_varbit_bits(to, bits)
        size = min((to_slot.width + 7) // 8, (source_slot.width + 7) // 8)
        self.fn.copy(self.fn.at(to, to_slot.offset), self.fn.at(source_header, source_slot.offset), size)

    def _copy_header(self, to: HeaderPlace, source: HeaderPlace) -> None:
        """Copy validity and, of a valid header, the fields."""
        if to.shape.type.name != source.shape.type.name:
            raise UnsupportedProgramError(["an assignment between headers of different types"])
        valid = self.is_valid(source)
        with self.fn.b.if_then(valid):
            self.fn.copy(self.fn.at(to.pointer, 4), self.fn.at(source.pointer, 4), to.shape.size - 4)
        self.set_valid(to, valid)

    def _do_assign_header(self, target: ir.Expr, source: ir.Expr) -> None:
        self._copy_header(self.header(target), self.header(source))

    def _do_assign_union(self, target: ir.Expr, source: ir.Expr) -> None:
        (to, union), (origin, _) = self.union(target), self.union(source)
        for position in range(len(self.fn.unit.program.unions[union].members)):
            self._copy_header(
                self.union_member(to, union, position), self.union_member(origin, union, position)
            )

    def _do_assign_header_stack(self, target: ir.Expr, source: ir.Expr) -> None:
        to, origin = self.stack_place(target), self.stack_place(source)
        self.set_stack_next(target, self.stack_next(source))
        self.fn.copy(self.fn.place(to.base), self.fn.place(origin.base), to.stride * to.size)

    _do_assign_union_stack = _do_assign_header_stack

    # Headers.

    def _change_length(self, header: HeaderPlace, *, add: bool) -> None:
        length, size = self.fn.internal("length_register"), self.header_bytes(header)
        changed = self.fn.b.add(length, size) if add else self.fn.b.sub(length, size)
        self.fn.set_internal("length_register", changed)

    def _do_add_header(self, target: ir.Expr) -> None:
        """Make a header valid; the fields of one that was not are zero."""
        header = self.header(target)
        with self.fn.b.if_then(self.fn.b.not_(self.is_valid(header))):
            self.fn.clear(self.fn.at(header.pointer, 4), header.shape.size - 4)
            self.set_valid(header, True)
            self._change_length(header, add=True)

    def _do_remove_header(self, target: ir.Expr) -> None:
        header = self.header(target)
        with self.fn.b.if_then(self.is_valid(header)):
            self._change_length(header, add=False)
            self.set_valid(header, False)

    def _do_push(self, stack: ir.Expr, count: ir.Expr) -> None:
        """Move a stack's elements towards its end; the first ones become invalid."""
        place, b = self.stack_place(stack), self.fn.b
        number = min(self.static(count), place.size)
        grown = b.add(self.stack_next(stack), number)
        fits = b.icmp_unsigned("<", grown, place.size)
        self.set_stack_next(stack, b.select(fits, grown, place.size))
        self._move_elements(place, reversed(range(number, place.size)), -number)
        self.fn.clear(self.fn.place(place.base), number * place.stride)

    def _do_pop(self, stack: ir.Expr, count: ir.Expr) -> None:
        """Move a stack's elements towards its start; the last ones become invalid."""
        place, b = self.stack_place(stack), self.fn.b
        number = min(self.static(count), place.size)
        before = self.stack_next(stack)
        enough = b.icmp_unsigned(">=", before, number)
        self.set_stack_next(stack, b.select(enough, b.sub(before, number), 0))
        self._move_elements(place, range(place.size - number), number)
        self.fn.clear(self.fn.place(place.base + (place.size - number) * place.stride), number * place.stride)

    def _move_elements(self, place: StackPlace, targets: Iterable[int], distance: int) -> None:
        """Copy to each of some elements of a stack the one at a distance from it."""
        for target in targets if distance else ():
            to, origin = (
                self.fn.place(place.base + each * place.stride) for each in (target, target + distance)
            )
            self.fn.copy(to, origin, place.stride)

    # Fate of the packet.

    def _do_exit(self) -> None:
        """Let the control stop after the table; as in BMv2, the rest of the action still runs."""
        self.fn.set_internal("exit", 1)

    def _do_mark_to_drop(self, header: ir.Expr) -> None:
        """Mark the metadata given, which may be a copy of the standard metadata."""
        place = self.header(header)
        for name, value in (("egress_spec", DROP_PORT), ("mcast_grp", 0)):
            if slot := place.shape.fields.get(name):
                self.fn.store_slot(place.pointer, slot, ll.Constant(i(slot.width), value))

    def _do_clone_ingress_pkt_to_egress(self, session: ir.Expr, fields: ir.Expr) -> None:
        number = self.fn.b.and_(self.low(session, 32), 0x7FFF)
        self.fn.set_internal("clone_session", self.fn.b.or_(number, 0x8000))
        self.fn.set_internal("clone_fields", self.low(fields, 32))

    _do_clone_egress_pkt_to_egress = _do_clone_ingress_pkt_to_egress

    def _do_truncate(self, length: ir.Expr) -> None:
        """Note the smallest length asked for, plus one; zero means none."""
        b = self.fn.b
        value = self.exact(length)
        wide = resize(b, value.bits, max(value.bits.type.width + 1, 64), value.signed)
        most = ll.Constant(wide.type, 0x7FFFFFFE)
        wanted = resize(b, b.select(b.icmp_unsigned("<", wide, most), wide, most), 32)
        wanted = b.add(wanted, 1)
        before = self.fn.internal("truncate")
        unset = b.icmp_unsigned("==", before, 0)
        smaller = b.or_(unset, b.icmp_unsigned("<", wanted, before))
        self.fn.set_internal("truncate", b.select(smaller, wanted, before))

    def _do_modify_field_rng_uniform(self, target: ir.Expr, low: ir.Expr, high: ir.Expr) -> None:
        """Store a uniformly random number from `low` to `high`; nothing if `low` is the larger."""
        b = self.fn.b
        lowest, highest = self.low(low, 64), self.low(high, 64)
        with b.if_then(b.icmp_unsigned("<=", lowest, highest)):
            # xorshift64*, seeded by the switch.
            state = self.fn.word("random")
            for shift, write in ((12, b.lshr), (25, b.shl), (27, b.lshr)):
                state = b.xor(state, write(state, ll.Constant(I64, shift)))
            self.fn.set_word("random", state)
            number = b.mul(state, 0x2545F4914F6CDD1D)
            span = b.add(b.sub(highest, lowest), 1)
            wide = b.mul(b.zext(number, i(128)), b.zext(span, i(128)))
            scaled = b.trunc(b.lshr(wide, 64), I64)
            whole = b.icmp_unsigned("==", span, 0)
            value = b.add(lowest, b.select(whole, number, scaled))
            pointer, slot = self.field_place(target)
            self.fn.store_slot(pointer, slot, resize(b, value, slot.width))

    def _do_assert(self, condition: ir.Expr) -> None:
        """Count and drop the packet where the condition does not hold."""
        with self.fn.b.if_then(self.fn.b.not_(self.boolean(condition))):
            self.fn.bump("dropped_assertion")
            self.fn.set_internal("exit", DROP)

    _do_assume = _do_assert

    def _do_log_msg(self, text: ir.Expr, values: ir.Expr) -> None:
        """Generate nothing: the engine keeps no log; the program is otherwise unaffected."""
