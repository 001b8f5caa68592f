"""Runs of an action: the same few primitives again and again, each time on the next fields and registers.

p4c writes a program's work on each of 256 lanes as 256 times the same primitives. A run becomes a loop with a hint to LLVM
to vectorize it. Within it, fields that are the same in all turns live in variables, which are written back after the last turn.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sim.switch import ir
from sim.switch.layout import Context, StateLayout

_LONGEST_TURN = 6
_FEWEST_TURNS = 8
_OPS = {"register_read", "register_write", "assign", "_jump", "_jump_if_zero"}
_TARGETS = {"register_read", "assign"}
_JUMPS = ("_jump", "_jump_if_zero")
FieldName = tuple[str, str]


@dataclass
class PrimitiveRun:
    """`turns` times the `length` primitives from `first` on."""

    first: int
    length: int
    turns: int = 1
    # fields, registers: names in the first turn, each of which every further turn finds one place further on: bytes from
    # place to place.
    fields: dict[FieldName, int] = field(default_factory=dict)
    registers: dict[str, int] = field(default_factory=dict)
    # fixed, written: fields that all turns share, and those of them that are written.
    fixed: set[FieldName] = field(default_factory=set)
    written: set[FieldName] = field(default_factory=set)

    @property
    def end(self) -> int:
        """The position after the last turn."""
        return self.first + self.length * self.turns


def find_runs(action: ir.Action, state: StateLayout, context: Context) -> dict[int, PrimitiveRun]:
    """Return the runs of an action by the position of their first primitive."""
    steps, runs, at = action.primitives, {}, 0
    targets = {_target(p) for p in steps if p.op in _JUMPS}
    while at < len(steps):
        found = None
        for length in range(1, _LONGEST_TURN + 1):
            run = _Matcher(steps, PrimitiveRun(at, length), state, context).match()
            inner = targets & set(range(at + 1, run.end)) if run else set()
            if run and all(_own(steps, run, t) for t in inner):
                found = run
                break
        if found:
            runs[at] = found
        at = found.end if found else at + 1
    return runs


def _target(step: ir.Primitive) -> int:
    target = step.args[-1]
    return target.value if isinstance(target, ir.Const) else -1


def _own(steps: tuple[ir.Primitive, ...], run: PrimitiveRun, target: int) -> bool:
    """Whether all jumps to `target` come from the turn that it lies in or ends."""
    turn = (target - 1 - run.first) // run.length
    start = run.first + turn * run.length
    origins = [at for at, p in enumerate(steps) if p.op in _JUMPS and _target(p) == target]
    return all(start <= at < target for at in origins)


def _names(expr: ir.Expr) -> Iterator[FieldName]:
    if isinstance(expr, ir.FieldRef):
        yield expr.header, expr.field
    elif isinstance(expr, ir.Op):
        for arg in expr.args:
            yield from _names(arg)


class _Matcher:
    """Finds how many turns there are from a position on."""

    def __init__(
        self, steps: tuple[ir.Primitive, ...], run: PrimitiveRun, state: StateLayout, context: Context
    ) -> None:
        self.steps, self.run, self.state, self.places = steps, run, state, context.registers.places
        self.moved: set[FieldName] = set()

    def match(self) -> PrimitiveRun | None:
        run, steps = self.run, self.steps
        if run.first + _FEWEST_TURNS * run.length > len(steps):
            return None
        turn = steps[run.first : run.first + run.length]
        if any(p.op not in _OPS for p in turn) or not all(
            self._forward(run.first + n) for n in range(run.length)
        ):
            return None
        while run.end + run.length <= len(steps) and self._same_turn(turn):
            run.turns += 1
        if run.turns < _FEWEST_TURNS:
            return None
        for step in turn:
            run.fixed |= {n for a in step.args for n in _names(a)} - run.fields.keys()
            if step.op in _TARGETS:
                run.written |= set(_names(step.args[0])) - run.fields.keys()
        indices = {
            n for p in turn if p.op in ("register_read", "register_write") for n in _names(self._index(p))
        }
        odd = run.written & indices or indices & run.fields.keys() or run.fixed & self.moved
        varbits = any(self._slot(n) is None for n in run.fixed | run.fields.keys())
        # A value in registers has no address to which a turn could be added.
        near = any(self.state.headers[header] < self.state.local for header, _ in run.fields)
        return None if odd or varbits or near else run

    def _index(self, step: ir.Primitive) -> ir.Expr:
        return step.args[2 if step.op == "register_read" else 1]

    def _slot(self, name: FieldName) -> tuple[int, int] | None:
        slot = self.state.shape(name[0]).fields.get(name[1])
        return None if slot is None or slot.varbit else (slot.offset, slot.storage // 8)

    def _forward(self, at: int) -> bool:
        end = self.run.first + self.run.length
        return self.steps[at].op not in _JUMPS or at < _target(self.steps[at]) <= end

    def _same_turn(self, turn: tuple[ir.Primitive, ...]) -> bool:
        shift = self.run.end - self.run.first
        for at, (one, other) in enumerate(zip(turn, self.steps[self.run.end :], strict=False)):
            if one.op != other.op or len(one.args) != len(other.args):
                return False
            args = list(zip(one.args, other.args, strict=True))
            if one.op in _JUMPS:
                args.pop()
                if _target(other) != _target(one) + shift or _target(one) <= self.run.first + at:
                    return False
            if not all(self._same(a, b) for a, b in args):
                return False
        return True

    def _same(self, one: ir.Expr, other: ir.Expr) -> bool:
        if isinstance(one, ir.FieldRef) and isinstance(other, ir.FieldRef):
            return one.header == other.header and self._same_field(one, other)
        if isinstance(one, ir.Named) and isinstance(other, ir.Named):
            return self._same_register(one.name, other.name)
        if isinstance(one, ir.Op) and isinstance(other, ir.Op):
            return (
                one.op == other.op
                and len(one.args) == len(other.args)
                and all(self._same(a, b) for a, b in zip(one.args, other.args, strict=True))
            )
        if isinstance(one, (ir.Const, ir.Boolean)) and type(one) is type(other):
            return one.value == other.value
        return isinstance(one, ir.Param) and isinstance(other, ir.Param) and one.index == other.index

    def _same_field(self, one: ir.FieldRef, other: ir.FieldRef) -> bool:
        name, run = (one.header, one.field), self.run
        if run.turns == 1 and one.field != other.field:
            place = self._slot(name)
            run.fields[name] = place[1] if place else 0
        step = run.fields.get(name)
        if step is None:
            return one.field == other.field
        fields = self.state.shape(one.header).fields
        a, b = fields.get(one.field), fields.get(other.field)
        self.moved.add((one.header, other.field))
        return (
            a is not None
            and b is not None
            and (a.width, a.signed, a.varbit) == (b.width, b.signed, b.varbit)
            and b.offset == a.offset + step * run.turns
        )

    def _same_register(self, one: str, other: str) -> bool:
        a, b, run = self.places.get(one), self.places.get(other), self.run
        if a is None or b is None:
            return False
        if run.turns == 1 and one != other:
            run.registers[one] = a.storage // 8
        step = run.registers.get(one, 0)
        return (a.group, a.width, a.size) == (
            b.group,
            b.width,
            b.size,
        ) and b.offset == a.offset + step * run.turns
