"""Machine code for runs: a loop whose body names the fields and registers of the first turn."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sim.switch import ir
from sim.switch.codegen.emit import i
from sim.switch.codegen.externs import Externs
from sim.switch.codegen.primitive_runs import FieldName, PrimitiveRun
from sim.switch.layout import FieldSlot


@dataclass(frozen=True)
class _Turn:
    """The turn being written: its number, the shared fields' variables, the first turn's cells."""

    run: PrimitiveRun
    number: Any  # i64; `further` is added to it.
    further: int
    variables: dict[FieldName, Any]
    cells: dict[str, tuple[Any, Any, int]]


class Turns(Externs):
    """Finds fields and registers from the turn of a run that is being written; `Primitives` adds the rest."""

    _turn: _Turn | None = None

    def turns(self, run: PrimitiveRun, steps: tuple[ir.Primitive, ...]) -> Iterator[None]:
        """Write a run as a loop around the body, which the caller writes at each yield.

        Twice where an index may be out of range: a cell that is read leaves its target as it was there, and then a
        turn depends on the one before.
        """
        fn, b = self.fn, self.fn.b
        places = {n: super(Turns, self).field_place(ir.FieldRef(*n)) for n in sorted(run.fixed)}
        variables = {
            n: fn.variable(i(slot.storage), fn.load_raw(at, slot)) for n, (at, slot) in places.items()
        }
        cells = {}
        for step in steps[run.first : run.first + run.length]:
            if step.op in ("register_read", "register_write"):
                array, index = (step.args[1], step.args[2]) if step.op == "register_read" else step.args[:2]
                assert isinstance(array, ir.Named)
                cells[array.name] = super().register_pointer(array.name, index)
        bounds = [inside for _, inside, _ in cells.values() if inside is not None]
        if bounds:
            inner = {name: (pointer, None, storage) for name, (pointer, _, storage) in cells.items()}
            with b.if_else(functools.reduce(b.and_, bounds)) as (inside, outside):
                with inside:
                    yield from self._loop(run, variables, inner)
                with outside:
                    yield from self._loop(run, variables, cells)
        else:
            yield from self._loop(run, variables, cells)
        for name in sorted(run.written):
            header, slot = places[name]
            fn.store_raw(header, slot, b.load(variables[name], typ=i(slot.storage)))

    def _loop(
        self, run: PrimitiveRun, variables: dict[FieldName, Any], cells: dict[str, Any]
    ) -> Iterator[None]:
        fn = self.fn
        at_once = fn.unit.turns_at_once if run.turns % fn.unit.turns_at_once == 0 else 1
        with fn.loop(run.turns // at_once, vectorized=True) as number:
            first = fn.b.mul(number, at_once)
            for further in range(at_once):
                self._turn = _Turn(run, first, further, variables, cells)
                yield
                self._turn = None

    def _moved(self, pointer: Any, step: int) -> Any:
        assert self._turn is not None
        if step == 0:
            return pointer
        first = self.fn.at(pointer, self.fn.b.mul(self._turn.number, step))
        return self.fn.at(first, step * self._turn.further)

    def field_place(self, expr: ir.Expr) -> tuple[Any, FieldSlot]:
        """Find a field: the address of its header and its place there."""
        pointer, slot = super().field_place(expr)
        if self._turn is None or not isinstance(expr, ir.FieldRef):
            return pointer, slot
        name = (expr.header, expr.field)
        if name in self._turn.run.fields:
            return self._moved(pointer, self._turn.run.fields[name]), slot
        return self._turn.variables[name], replace(slot, offset=0)

    def register_pointer(self, register: str, index: ir.Expr) -> tuple[Any, Any, int]:
        """Return a cell's address, whether the index is in range (None: always), the cell's bits of storage."""
        if self._turn is None:
            return super().register_pointer(register, index)
        pointer, inside, storage = self._turn.cells[register]
        return self._moved(pointer, self._turn.run.registers.get(register, 0)), inside, storage
