"""One packet through a control of a compiled program, as formulas: every branch at once, values as bitvectors.

A register is the one cell that the packet may touch; `Step.indices` has what each access is at, for a lemma to compare.
A lookup may have any outcome, with any parameters.
"""

from dataclasses import dataclass, field
from typing import Any

import z3

from sim.switch import ir

COUNT = z3.Function("count", z3.BitVecSort(32), z3.BitVecSort(8))
"""Number of workers in a bitmap. A lemma of its own shows that the program's arithmetic is it."""

_COUNTED, _BITMAP = ("scalars", "slot_added"), ("scalars", "slot_seen")

BITS = 64
"""Width of values between two assignments: BMv2's have no limit, and nothing here needs more."""

Term = Any
Fields = dict[tuple[str, str], Term]

_VALID = "$valid$"
_COMPARE = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip
_COMPUTE = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "&": lambda a, b: a & b, "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b, "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b, "*": lambda a, b: a * b,
}  # fmt: skip


def _number(value: int) -> Term:
    return z3.BitVecVal(value, BITS)


@dataclass
class Step:
    """A packet's way through a control: what it starts with, what is there at the end, and what was looked up."""

    program: ir.Program
    start: Fields
    end: Fields = field(default_factory=dict)
    indices: list[tuple[Term, Term]] = field(default_factory=list)  # condition, index of a register access
    chosen: dict[str, Term] = field(default_factory=dict)  # by table: the id of the action
    hit: dict[str, Term] = field(default_factory=dict)
    given: dict[str, dict[str, Term]] = field(default_factory=dict)  # by action: its parameters
    counts: list[tuple[Term, Term]] = field(
        default_factory=list
    )  # a bitmap, and what `CountWorkers` makes of it

    def width(self, header: str, name: str) -> int:
        """Return a field's width; a register's array is a header named `register`."""
        if header == "register":
            return self.program.registers[name].width
        if name == _VALID or header == "count":
            return 1
        return next(f.width for f in self.program.headers[header].type.fields if f.name == name)


def action_number(program: ir.Program, name: str) -> int:
    """Return the number of the first action of a name."""
    return next(action.id for action in program.actions.values() if action.name == name)


def start_of(program: ir.Program, prefix: str = "") -> Fields:
    """Return a packet and registers that nothing is known about."""
    fields: Fields = {}
    for header in program.headers.values():
        fields[header.name, _VALID] = z3.BitVec(f"{prefix}{header.name}.valid", 1)
        for f in header.type.fields:
            fields[header.name, f.name] = z3.BitVec(f"{prefix}{header.name}.{f.name}", f.width)
    for register in program.registers.values():
        fields["register", register.name] = z3.BitVec(f"{prefix}{register.name}", register.width)
    for counter in program.counters.values():
        fields["count", counter.name] = z3.BitVecVal(0, 1)
        fields["job", counter.name] = z3.BitVecVal(0, 32)
    return fields


def run(program: ir.Program, pipeline: ir.Pipeline, start: Fields) -> Step:
    """Take a packet through a control."""
    step = Step(program, start)
    for table in pipeline.tables.values():  # also of those that no packet comes to
        step.hit[table.name] = z3.Bool(f"{table.name}.hit")
        step.chosen[table.name] = z3.BitVec(f"{table.name}.action", 16)
        for action in (program.actions[number] for number in table.actions):
            step.given[action.name] = {
                name: z3.BitVec(f"{action.name}.{name}", w) for name, w in action.params
            }
    arriving: dict[str | None, list[tuple[Term, Fields]]] = {pipeline.start: [(z3.BoolVal(True), start)]}
    for name in _in_order(pipeline):
        ways = arriving.pop(name, [])
        if not ways:
            continue
        condition, fields = _merged(ways)
        if name in pipeline.branches:
            branch = pipeline.branches[name]
            holds = _boolean(step, fields, (), branch.condition)
            for following, taken in ((branch.true_next, holds), (branch.false_next, z3.Not(holds))):
                arriving.setdefault(following, []).append((z3.And(condition, taken), fields))
        else:
            for following, taken, after in _look_up(step, pipeline.tables[name], condition, fields):
                arriving.setdefault(following, []).append((z3.And(condition, taken), after))
    step.end = _merged(arriving[None])[1]
    return step


def _in_order(pipeline: ir.Pipeline) -> list[str]:
    done: list[str] = []

    def visit(name: str | None) -> None:
        if name is None or name in done:
            return
        if name in pipeline.branches:
            following = {pipeline.branches[name].true_next, pipeline.branches[name].false_next}
        else:
            following = {*pipeline.tables[name].next_tables.values(), pipeline.tables[name].base_next}
        for each in following:
            visit(each)
        done.append(name)

    visit(pipeline.start)
    return done[::-1]


def _merged(ways: list[tuple[Term, Fields]]) -> tuple[Term, Fields]:
    condition, fields = ways[-1]
    merged = dict(fields)
    for other, others in ways[:-1]:
        for key, value in others.items():
            if value is not merged[key]:
                merged[key] = z3.If(other, value, merged[key])
        condition = z3.Or(condition, other)
    return condition, merged


def _look_up(
    step: Step, table: ir.Table, condition: Term, fields: Fields
) -> list[tuple[str | None, Term, Fields]]:
    hit, chosen = step.hit[table.name], step.chosen[table.name]
    ways = []
    for number in table.actions:
        taken = z3.BoolVal(True) if number == table.actions[-1] else chosen == number
        for earlier in table.actions[: table.actions.index(number)]:
            taken = z3.And(taken, chosen != earlier)
        action = step.program.actions[number]
        parameters = step.given[action.name]
        if number == table.default_action and table.default_const and not table.key:
            given = zip(action.params, table.default_params, strict=True)
            parameters = {name: z3.BitVecVal(value, width) for (name, width), value in given}
        after = _act(step, action, tuple(parameters.values()), z3.And(condition, taken), dict(fields))
        if "__HIT__" in table.next_tables:
            ways.append((table.next_tables["__HIT__"], z3.And(taken, hit), after))
            ways.append((table.next_tables["__MISS__"], z3.And(taken, z3.Not(hit)), after))
        else:
            ways.append((table.next_tables[number], taken, after))
    return ways


def _act(
    step: Step, action: ir.Action, parameters: tuple[Term, ...], condition: Term, fields: Fields
) -> Fields:
    arriving: dict[int, list[tuple[Term, Fields]]] = {0: [(z3.BoolVal(True), fields)]}
    for at, primitive in enumerate(action.primitives):
        if at not in arriving:
            continue
        here, fields = _merged(arriving.pop(at))
        here = z3.simplify(here)  # True again where two ways have met
        if primitive.op in ("_jump", "_jump_if_zero"):
            target = primitive.args[-1]
            assert isinstance(target, ir.Const)
            assert target.value > at
            zero = z3.BoolVal(True)
            if primitive.op == "_jump_if_zero":
                zero = _value(step, fields, parameters, primitive.args[0]) == 0
                arriving.setdefault(at + 1, []).append((z3.And(here, z3.Not(zero)), fields))
            arriving.setdefault(target.value, []).append((z3.And(here, zero), fields))
        else:
            fields = dict(fields)
            _do(step, primitive, z3.And(condition, here), parameters, fields)
            arriving.setdefault(at + 1, []).append((here, fields))
    return _merged(arriving[len(action.primitives)])[1]


def _do(
    step: Step, primitive: ir.Primitive, condition: Term, parameters: tuple[Term, ...], fields: Fields
) -> None:
    args: tuple[Any, ...] = primitive.args
    op = primitive.op
    if op == "assign":
        _store(step, fields, args[0], _value(step, fields, parameters, args[1]))
    elif op == "register_read":
        step.indices.append((condition, _value(step, fields, parameters, args[2])))
        _store(
            step,
            fields,
            args[0],
            z3.ZeroExt(BITS - step.width("register", args[1].name), fields["register", args[1].name]),
        )
    elif op == "register_write":
        step.indices.append((condition, _value(step, fields, parameters, args[1])))
        width = step.width("register", args[0].name)
        fields["register", args[0].name] = z3.Extract(width - 1, 0, _value(step, fields, parameters, args[2]))
    elif op in ("add_header", "remove_header"):
        fields[args[0].name, _VALID] = z3.BitVecVal(int(op == "add_header"), 1)
    elif op == "count":
        fields["count", args[0].name] = z3.BitVecVal(1, 1)
        fields["job", args[0].name] = z3.Extract(31, 0, _value(step, fields, parameters, args[1]))
    elif op == "mark_to_drop":  # as BMv2's
        fields["standard_metadata", "egress_spec"] = z3.BitVecVal(511, 9)
        fields["standard_metadata", "mcast_grp"] = z3.BitVecVal(0, 16)
    else:
        raise NotImplementedError(
            f"primitive {op} of {primitive.place}: tests/proof/program_step.py does not know it"
        )


def _store(step: Step, fields: Fields, target: ir.FieldRef, value: Term) -> None:
    key = (target.header, target.field)
    fields[key] = z3.Extract(step.width(*key) - 1, 0, value)
    if key == _COUNTED and not z3.is_bv_value(value):
        step.counts.append((fields[_BITMAP], fields[key]))
        fields[key] = COUNT(fields[_BITMAP])


def _boolean(step: Step, fields: Fields, parameters: tuple[Term, ...], expr: Any) -> Term:
    value = _value(step, fields, parameters, expr)
    return value if z3.is_bool(value) else value != 0


def _value(step: Step, fields: Fields, parameters: tuple[Term, ...], expr: Any) -> Term:
    if isinstance(expr, ir.Const):
        return _number(expr.value)
    if isinstance(expr, ir.Boolean):
        return z3.BoolVal(expr.value)
    if isinstance(expr, ir.Param):
        return z3.ZeroExt(BITS - parameters[expr.index].size(), parameters[expr.index])
    if isinstance(expr, ir.FieldRef):
        return z3.ZeroExt(BITS - step.width(expr.header, expr.field), fields[expr.header, expr.field])
    if not isinstance(expr, ir.Op):
        raise NotImplementedError(f"operand {expr}: tests/proof/program_step.py does not know it")
    if expr.op == "valid":
        header: Any = expr.args[0]
        return fields[header.name, _VALID] == 1
    values = [_value(step, fields, parameters, arg) for arg in expr.args]
    if expr.op in _COMPARE:
        return _COMPARE[expr.op](*values)
    if expr.op in _COMPUTE:
        return _COMPUTE[expr.op](*values)
    if expr.op == "d2b":
        return values[0] != 0
    if expr.op == "b2d":
        return z3.If(values[0], _number(1), _number(0))
    if expr.op in ("and", "or", "not"):
        return {"and": z3.And, "or": z3.Or, "not": z3.Not}[expr.op](*values)
    width = expr.args[-1].value  # type: ignore[union-attr]
    if expr.op == "two_comp_mod":
        return z3.SignExt(BITS - width, z3.Extract(width - 1, 0, values[0]))
    if expr.op in ("sat_cast", "usat_cast"):
        least, most = (
            (-(1 << (width - 1)), (1 << (width - 1)) - 1) if expr.op == "sat_cast" else (0, (1 << width) - 1)
        )
        return z3.If(values[0] < least, _number(least), z3.If(values[0] > most, _number(most), values[0]))
    raise NotImplementedError(f"operator {expr.op}: tests/proof/program_step.py does not know it")
