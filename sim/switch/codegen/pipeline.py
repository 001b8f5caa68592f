"""Machine code for a control: ``ingress(ctx, st)`` and ``egress(ctx, st)``, tables and branches as basic blocks."""

from typing import Any

from llvmlite import ir as ll

from sim.switch import ir
from sim.switch.codegen.actions import DROP_PORT
from sim.switch.codegen.emit import I64, PTR, VOID, Fn, Space, Unit, resize
from sim.switch.codegen.expressions import Expressions
from sim.switch.codegen.externs import count_packet, run_meter
from sim.switch.codegen.hashing import hash_inputs
from sim.switch.codegen.tables import write_lookup
from sim.switch.table_layout import TableShape, member_words


def write_pipeline(unit: Unit, pipeline: ir.Pipeline) -> None:
    """Write a control and the lookups of its tables."""
    lookups = {}
    for table in pipeline.tables.values():
        if table.key:
            lookups[table.name] = f"lookup_{pipeline.name}_{table.id}"
            write_lookup(unit, table, lookups[table.name])
    ControlWriter(unit.fn(pipeline.name, [("ctx", PTR), ("st", PTR)], VOID), pipeline, lookups).write()


def may_exit(program: ir.Program, action: int) -> bool:
    """Whether an action can end the control: by `exit`, a failed assertion, or a loop that does not end."""
    ends = ("exit", "assert", "assume", "_jump", "_jump_if_zero")
    return any(p.op in ends for p in program.actions[action].primitives)


def set_egress_metadata(fn: Fn, port: Any) -> None:
    """Write the target's view of a packet that comes to egress, but for times."""
    for name in ("deq_timedelta", "enq_qdepth", "deq_qdepth"):
        fn.set_well_known(f"queueing_metadata.{name}", 0)
    fn.set_well_known("standard_metadata.egress_port", port)
    # One past the drop port, as BMv2 does: anything but the drop port.
    fn.set_well_known("standard_metadata.egress_spec", DROP_PORT + 1)
    fn.set_well_known("standard_metadata.packet_length", fn.internal("length_register"))


def egress_spec(fn: Fn) -> Any:
    """Return the port (i32) that the program has chosen, or `DROP_PORT`."""
    target = fn.unit.program.well_known("standard_metadata.egress_spec")
    assert target is not None
    return resize(fn.b, fn.read_field(target), 32)


class ControlWriter:
    """Writes a control into the function `fn`; `node` is the table or branch that is being written."""

    def __init__(self, fn: Fn, pipeline: ir.Pipeline, lookups: dict[str, str]) -> None:
        self.fn = fn
        self.expressions = Expressions(fn)
        self.pipeline = pipeline
        self.lookups = lookups
        nodes = [*pipeline.tables, *pipeline.branches]
        self.blocks = {name: fn.function.append_basic_block(f"node.{name}") for name in nodes}
        self.end = fn.function.append_basic_block("end")
        self.node: str | None = None

    def block(self, name: str | None) -> Any:
        """Return where to go from `node` to reach another; None is the end."""
        return self.end if name is None else self.blocks[name]

    def write(self) -> None:
        """Write the control."""
        b = self.fn.b
        b.branch(self.block(self.pipeline.start))
        for branch in self.pipeline.branches.values():
            self.node = branch.name
            b.position_at_end(self.blocks[branch.name])
            condition = self.expressions.boolean(branch.condition)
            b.cbranch(condition, self.block(branch.true_next), self.block(branch.false_next))
        for table in self.pipeline.tables.values():
            self.node = table.name
            b.position_at_end(self.blocks[table.name])
            self._apply(table)
        b.position_at_end(self.end)
        b.ret_void()

    def _apply(self, table: ir.Table) -> None:
        fn = self.fn
        if not table.key and table.default_const and table.default_action is not None and not table.profile:
            # p4c compiles an action called outside a table to a table like this: always a miss, always this action.
            self._call(table.default_action, self._constant_params(table))
            self._leave_table(table, table.default_action, ll.Constant(I64, 0))
            return
        entry, record = self.find(table)
        if table.with_counters or table.direct_meter:
            self._direct(table, entry)
        if table.profile is not None:
            record = self._member(table, record)
        action = fn.load(Space.TABLE, record, I64, 8)
        self._dispatch(table, action, fn.at(record, 8), entry)

    def find(self, table: ir.Table) -> tuple[Any, Any]:
        """Look the key up; return the entry's number, 0 on a miss, and the address of its action and arguments."""
        fn = self.fn
        shape = TableShape.of(fn.unit.program, table)
        lookup = self.lookups.get(table.name)
        entry = fn.call(lookup, fn.ctx, fn.st) if lookup else ll.Constant(I64, 0)
        offset = fn.b.mul(entry, 8 * shape.entry_words)
        return entry, fn.at(fn.pointer(fn.unit.context.tables[table.name]["entries"]), offset)

    def _constant_params(self, table: ir.Table) -> Any:
        assert table.default_action is not None
        content = b""
        params = self.fn.unit.program.actions[table.default_action].params
        for (_, width), value in zip(params, table.default_params, strict=True):
            content += value.to_bytes((width + 63) // 64 * 8, "little")
        return self.fn.unit.constant_bytes(content or b"\0" * 8)

    def _direct(self, table: ir.Table, entry: Any) -> None:
        fn = self.fn
        place = fn.unit.context.tables[table.name]
        with fn.b.if_then(fn.b.icmp_unsigned("!=", entry, 0)):
            if table.with_counters:
                row = fn.within(entry, len(table.entries) + table.size + 1)
                cell = fn.at(fn.pointer(place["counters"]), fn.b.shl(row, 4))
                count_packet(fn, cell)
            if table.direct_meter:
                meter = fn.unit.program.meters[table.direct_meter]
                color = run_meter(fn, fn.pointer(place["meters"]), entry, meter)
                fn.write_field(meter.target, resize(fn.b, color, 32))

    def _member(self, table: ir.Table, record: Any) -> Any:
        """Return the member an entry of an indirect table leads to."""
        fn, b = self.fn, self.fn.b
        place = fn.unit.context.tables[table.name]
        assert table.profile is not None
        profile = fn.unit.program.profiles[table.profile]
        kind = fn.load(Space.TABLE, record, I64, 8)
        number = fn.load(Space.TABLE, fn.at(record, 8), I64, 8)
        member = fn.variable(I64, number)
        if profile.selector is not None:
            with b.if_then(b.icmp_unsigned("==", kind, 1)):
                group = fn.at(fn.pointer(place["groups"]), b.shl(number, 4))
                first = fn.load(Space.TABLE, group, I64, 8)
                count = fn.load(Space.TABLE, fn.at(group, 8), I64, 8)
                algorithm, inputs = profile.selector
                value = hash_inputs(self.expressions, algorithm, inputs)
                empty = b.icmp_unsigned("==", count, 0)
                chosen = b.urem(value, b.select(empty, 1, count))
                offset = b.shl(b.add(first, chosen), 3)
                at = fn.at(fn.pointer(place["group_members"]), offset)
                found = fn.load(Space.TABLE, at, I64, 8)
                # Member 0 does nothing: an empty group leads to it.
                b.store(b.select(empty, 0, found), member)
        size = member_words(fn.unit.program, table.profile)
        offset = b.mul(b.load(member, typ=I64), 8 * size)
        return fn.at(fn.pointer(place["members"]), offset)

    def _dispatch(self, table: ir.Table, action: Any, params: Any, entry: Any) -> None:
        b = self.fn.b
        none = b.append_basic_block("no_action")
        switch = b.switch(action, none)
        for number in dict.fromkeys(table.actions):
            block = b.append_basic_block(f"action.{number}")
            switch.add_case(number, block)
            b.position_at_end(block)
            self._call(number, params)
            self._leave_table(table, number, entry)
        b.position_at_end(none)
        self._follow(table, None, entry)

    def _call(self, action: int, params: Any) -> None:
        if self.fn.unit.program.actions[action].primitives:
            self.fn.call(f"action_{action}", self.fn.ctx, self.fn.st, params)

    def _leave_table(self, table: ir.Table, action: int, entry: Any) -> None:
        fn, b = self.fn, self.fn.b
        if may_exit(fn.unit.program, action):
            resume = b.append_basic_block("resume")
            exited = b.icmp_unsigned("!=", fn.internal("exit"), 0)
            b.cbranch(exited, self.block(None), resume)
            b.position_at_end(resume)
        self._follow(table, action, entry)

    def _follow(self, table: ir.Table, action: int | None, entry: Any) -> None:
        """Go to the node after a table: by hit and miss where the program asks for it, else by action."""
        b, following = self.fn.b, table.next_tables
        if "__HIT__" in following or "__MISS__" in following:
            hit = b.icmp_unsigned("!=", entry, 0)
            on_hit = following.get("__HIT__", table.base_next)
            on_miss = following.get("__MISS__", table.base_next)
            b.cbranch(hit, self.block(on_hit), self.block(on_miss))
            return
        by_action = following.get(action, table.base_next) if action is not None else table.base_next
        b.branch(self.block(by_action))
