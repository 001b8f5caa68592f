"""Machine code for the parser: ``parse(ctx, st, packet, length)``.

States become basic blocks. The parser stops at the end, at an error (noted in the packet's state), or after
`MAX_STATES` states if the program can loop without consuming anything.
"""

from typing import Any

from llvmlite import ir as ll

from sim.switch import ir
from sim.switch.codegen.actions import Primitives
from sim.switch.codegen.emit import I1, I32, I64, PTR, VOID, Fn, Space, Unit, i, joined, resize
from sim.switch.codegen.hashing import write_verify
from sim.switch.codegen.places import HeaderPlace
from sim.switch.codegen.wire import extract_header

MAX_STATES = 65536
_CORE_ERRORS = {
    "NoError": 0,
    "PacketTooShort": 1,
    "NoMatch": 2,
    "StackOutOfBounds": 3,
    "HeaderTooShort": 4,
    "ParserTimeout": 5,
    "ParserInvalidArgument": 6,
}


def write_parser(unit: Unit) -> None:
    """Write the parser and the checksum verification that follows it."""
    arguments = [("ctx", PTR), ("st", PTR), ("packet", PTR), ("length", I32)]
    _Parser(unit.fn("parse", arguments, VOID)).write()


class _Parser(Primitives):
    def __init__(self, fn: Fn) -> None:
        super().__init__(fn)
        self.program = fn.unit.program
        self.packet = fn.args["packet"]
        self.length = fn.args["length"]
        self.cursor = fn.variable(I32, 0)
        self.visited = fn.variable(I32, 0)
        names = self.program.parse_states
        self.blocks = {name: fn.function.append_basic_block(f"state.{name}") for name in names}
        self.done = fn.function.append_basic_block("parsed")
        self.looping = _can_loop(self.program)

    def write(self) -> None:
        fn = self.fn
        fn.set_internal("parser_error", self.error("NoError"))
        fn.set_internal("checksum_error", 0)
        fn.b.branch(self.block(self.program.init_state))
        for name, state in self.program.parse_states.items():
            fn.b.position_at_end(self.blocks[name])
            fn.enter_state(name, fn.b.load(self.cursor, typ=I32))
            if self.looping:
                self._count_state()
            for op in state.ops:
                self._operation(op)
            self._transition(state)
        fn.b.position_at_end(self.done)
        fn.set_internal("payload_offset", fn.b.load(self.cursor, typ=I32))
        write_verify(fn, self)
        fn.b.ret_void()

    def block(self, state: str | None) -> Any:
        return self.done if state is None else self.blocks[state]

    def error(self, name: str) -> Any:
        return ll.Constant(I32, self.program.errors.get(name, _CORE_ERRORS[name]))

    def _count_state(self) -> None:
        b = self.fn.b
        count = b.add(b.load(self.visited, typ=I32), 1)
        b.store(count, self.visited)
        with b.if_then(b.icmp_unsigned(">", count, MAX_STATES)):
            self.fn.bump("parser_loops")
            self.fn.set_internal("parser_error", self.error("ParserTimeout"))
            b.branch(self.done)

    def stop_if(self, condition: Any, code: Any) -> None:
        """Stop with a parser error where `condition` holds."""
        b = self.fn.b
        fail, resume = b.append_basic_block("error"), b.append_basic_block("resume")
        b.cbranch(condition, fail, resume)
        b.position_at_end(fail)
        self.fn.set_internal("parser_error", code)
        b.branch(self.done)
        b.position_at_end(resume)

    def need(self, size: Any) -> None:
        """Stop with PacketTooShort unless `size` (i32) more bytes are there."""
        b = self.fn.b
        left = b.sub(self.length, b.load(self.cursor, typ=I32))
        self.stop_if(b.icmp_unsigned("<", left, size), self.error("PacketTooShort"))

    def here(self) -> Any:
        """Return the address at the cursor."""
        cursor = self.fn.b.zext(self.fn.b.load(self.cursor, typ=I32), I64)
        return self.fn.at(self.packet, self.fn.within(cursor, self.fn.unit.frame_bytes))

    def advance(self, size: Any) -> None:
        b = self.fn.b
        b.store(b.add(b.load(self.cursor, typ=I32), size), self.cursor)

    def lookahead(self, expr: ir.Lookahead) -> Any:
        """Read bits past the cursor; stops with PacketTooShort if they are not there."""
        return self._peek(expr, check=True)

    def _peek(self, expr: ir.Lookahead, *, check: bool) -> Any:
        fn = self.fn
        first, last = expr.offset // 8, (expr.offset + expr.width + 7) // 8
        if check:
            self.need(ll.Constant(I32, last))
        bits = 8 * (last - first)
        value = fn.bswap(fn.load(Space.FRAME, fn.at(self.here(), first), i(bits), 1))
        value = fn.b.lshr(value, 8 * last - expr.offset - expr.width)
        return resize(fn.b, value, expr.width)

    def _operation(self, op: ir.Primitive) -> None:
        if op.op.startswith("extract "):
            self._extract(op)
        elif op.op == "set":
            self.assign(op.args[0], op.args[1])
        elif op.op == "verify":
            code = self.low(op.args[1], 32)
            self.stop_if(self.fn.b.not_(self.boolean(op.args[0])), code)
        elif op.op == "advance":
            self._advance(op.args[0])
        else:
            self.primitive(op)

    def _advance(self, amount: ir.Expr) -> None:
        b = self.fn.b
        value = self.exact(amount)
        width = max(value.bits.type.width, 64)
        bits = resize(b, value.bits, width, value.signed)
        odd = b.icmp_unsigned("!=", b.and_(bits, 7), 0)
        self.stop_if(odd, self.error("ParserInvalidArgument"))
        size = b.lshr(bits, 3)
        left = resize(b, b.sub(self.length, b.load(self.cursor, typ=I32)), width)
        self.stop_if(b.icmp_unsigned("<", left, size), self.error("PacketTooShort"))
        self.advance(resize(b, size, 32))

    def _extract(self, op: ir.Primitive) -> None:
        kind = op.op.removeprefix("extract ")
        assert isinstance(op.args[0], ir.Vector)
        names = [item.text for item in op.args[0].items if isinstance(item, ir.Text)]
        length = op.args[1] if len(op.args) > 1 else None
        if kind == "regular":
            self._extract_to(self.header(ir.HeaderRef(names[0])), length)
            return
        b, state = self.fn.b, self.fn.unit.state
        stack: ir.Expr = ir.StackRef(names[0]) if kind == "stack" else ir.UnionStackRef(names[0])
        place = self.stack_place(stack)
        count = self.stack_next(stack)
        full = b.icmp_unsigned(">=", count, place.size)
        self.stop_if(full, self.error("StackOutOfBounds"))
        pointer = self.element(place, b.zext(count, I64))
        if kind == "stack":
            header = HeaderPlace(pointer, state.shape(self.program.stacks[names[0]].members[0]))
        else:
            union = self.program.union_stacks[names[0]].members[0]
            position = self.program.unions[union].member_names.index(names[1])
            header = self.union_member(pointer, union, position)
        self._extract_to(header, length)
        self.set_stack_next(stack, b.add(count, 1))

    def _extract_to(self, header: HeaderPlace, length: ir.Expr | None) -> None:
        b = self.fn.b
        fixed = sum(s.width for s in header.shape.fields.values() if not s.varbit) // 8
        size: Any = ll.Constant(I32, fixed)
        bits = None
        if header.shape.type.varbit is not None:
            bits = ll.Constant(I32, 0)
            if length is not None:
                value = self.exact(length)
                width = max(value.bits.type.width + 1, 64)
                wide = resize(b, value.bits, width, value.signed)
                odd = b.icmp_unsigned("!=", b.and_(wide, 7), 0)
                self.stop_if(odd, self.error("ParserInvalidArgument"))
                total = b.add(b.lshr(wide, 3), fixed)
                left = resize(b, b.sub(self.length, b.load(self.cursor, typ=I32)), width)
                self.stop_if(b.icmp_unsigned("<", left, total), self.error("PacketTooShort"))
                most = ll.Constant(i(width), (header.shape.type.varbit.width + 7) // 8 + fixed)
                self.stop_if(b.icmp_unsigned("<", most, total), self.error("HeaderTooShort"))
                bits, size = resize(b, wide, 32), resize(b, total, 32)
        else:
            self.need(size)
        if not self.fn.load_whole(header.pointer, header.shape, b.load(self.cursor, typ=I32)):
            extract_header(self.fn, header.pointer, header.shape, self.here(), bits)
        self.set_valid(header, True)
        self.advance(size)

    def _transition(self, state: ir.ParseState) -> None:
        b = self.fn.b
        default = next((t.next_state for t in state.transitions if t.kind == "default"), None)
        cases = []
        for transition in state.transitions:
            if transition.kind == "default":
                break
            cases.append(transition)
        if not cases:
            b.branch(self.block(default))
            return
        key = self._key(state)
        width = key.type.width
        if width <= 64 and all(t.kind == "value" and t.mask is None for t in cases):
            switch = b.switch(key, self.block(default))
            seen: set[int] = set()
            for transition in cases:
                if transition.value not in seen and transition.value < 1 << width:
                    switch.add_case(transition.value, self.block(transition.next_state))
                    seen.add(transition.value)
            return
        for transition in cases:
            following = b.append_basic_block("case")
            b.cbranch(self._matches(key, transition), self.block(transition.next_state), following)
            b.position_at_end(following)
        b.branch(self.block(default))

    def _key(self, state: ir.ParseState) -> Any:
        """Compute the key, each part padded to whole bytes."""
        parts = [(expr, size, (size + 7) // 8 * 8) for expr, size in state.key]
        width = sum(room for *_, room in parts)
        values = ((self._key_part(expr, size), room) for expr, size, room in parts)
        return joined(self.fn.b, values, width, width)

    def _key_part(self, expr: ir.Expr, size: int) -> Any:
        if not isinstance(expr, ir.Lookahead):
            return self.low(expr, size)
        # BMv2 reads on without a check here; bits past the end of the packet are zero instead.
        fn = self.fn
        last = ll.Constant(I32, (expr.offset + expr.width + 7) // 8)
        left = fn.b.sub(self.length, fn.b.load(self.cursor, typ=I32))
        place = fn.variable(i(expr.width), 0)
        fn.b.store(ll.Constant(i(expr.width), 0), place)
        with fn.b.if_then(fn.b.icmp_unsigned(">=", left, last)):
            fn.b.store(self._peek(expr, check=False), place)
        return fn.b.load(place, typ=i(expr.width))

    def _matches(self, key: Any, transition: ir.Transition) -> Any:
        b = self.fn.b
        if transition.mask is not None:
            key = b.and_(key, transition.mask % (1 << key.type.width))
        if transition.kind == "vset":
            return self._in_value_set(key, transition)
        value = transition.value if transition.mask is None else transition.value & transition.mask
        if value >= 1 << key.type.width:
            return ll.Constant(I1, 0)
        return b.icmp_unsigned("==", key, value)

    def _in_value_set(self, key: Any, transition: ir.Transition) -> Any:
        """Search the rows of a value set: 64-bit words, least significant first."""
        fn, b = self.fn, self.fn.b
        words = (key.type.width + 63) // 64
        at = fn.unit.context.words[f"vset {transition.vset}"]
        rows, count = fn.pointer(at), fn.word(at + 1)
        wide = resize(b, key, 64 * words)
        found = fn.variable(I1, 0)
        with fn.loop(count) as row:
            place = fn.at(rows, b.mul(row, 8 * words))
            value = fn.load(Space.TABLE, place, i(64 * words), 8)
            if transition.mask is not None:
                value = b.and_(value, transition.mask)
            same = b.icmp_unsigned("==", value, wide)
            b.store(b.or_(b.load(found, typ=I1), same), found)
        return b.load(found, typ=I1)


def _can_loop(program: ir.Program) -> bool:
    """Whether some cycle of parser states exists."""
    following = {
        name: {t.next_state for t in state.transitions if t.next_state}
        for name, state in program.parse_states.items()
    }
    done: set[str] = set()
    active: set[str] = set()

    def visit(name: str) -> bool:
        if name in active:
            return True
        if name in done:
            return False
        active.add(name)
        looping = any(visit(n) for n in sorted(following[name]))
        active.discard(name)
        done.add(name)
        return looping

    return any(visit(name) for name in following)
