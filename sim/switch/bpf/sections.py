"""The part of a control that is one critical section, and the work that must be done before it.

All accesses to registers of a packet happen under one lock, from the first to the last, as v1model's ``@atomic`` demands. A
node (table or branch) is inside if an access may have happened before it, or in it, and may still happen after it, or
in it. No helper of the kernel may be called inside, so tables that are applied there are looked up at the way in.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sim.switch import ir
from sim.switch.switch_errors import UnsupportedProgramError

_WRITES_FIRST = {"register_write", "count", "_jump", "_jump_if_zero", "log_msg", "assert", "assume"}


@dataclass(frozen=True)
class Section:
    """A critical section."""

    nodes: frozenset[str]  # The tables and branches inside.
    # The field or constant that chooses the lock; None if one lock is for all registers.
    index: ir.Expr | None
    cells: int  # How many locks there are, without the one for an index out of range.
    early: tuple[str, ...]  # The tables that are looked up at the way in.


def following(pipeline: ir.Pipeline) -> dict[str, set[str]]:
    """Return the nodes that may come right after each one."""
    found: dict[str, set[str | None]] = {
        b.name: {b.true_next, b.false_next} for b in pipeline.branches.values()
    }
    for table in pipeline.tables.values():
        found[table.name] = {*table.next_tables.values(), table.base_next}
    return {name: {n for n in after if n is not None} for name, after in found.items()}


def _reach(edges: dict[str, set[str]], start: set[str]) -> set[str]:
    reached, waiting = set(start), list(start)
    while waiting:
        for name in edges.get(waiting.pop(), ()):
            if name not in reached:
                reached.add(name)
                waiting.append(name)
    return reached


def _primitives(program: ir.Program, pipeline: ir.Pipeline, node: str) -> list[ir.Primitive]:
    if node not in pipeline.tables:
        return []
    return [p for a in pipeline.tables[node].actions for p in program.actions[a].primitives]


def _contents(program: ir.Program, pipeline: ir.Pipeline, node: str) -> Any:
    if node in pipeline.branches:
        return pipeline.branches[node].condition
    return (pipeline.tables[node].key, _primitives(program, pipeline, node))


def accesses(contents: Any) -> Iterator[tuple[str, ir.Expr]]:
    """Yield (register, index) of each access to a register."""
    for part in ir.parts(contents):
        if isinstance(part, ir.RegisterCell):
            yield part.register, part.index
        elif isinstance(part, ir.Primitive) and part.op in ("register_read", "register_write"):
            first = 1 if part.op == "register_read" else 0
            array = part.args[first]
            assert isinstance(array, ir.Named)
            yield array.name, part.args[first + 1]


def written(primitives: list[ir.Primitive]) -> set[tuple[str, str]]:
    """Return the fields that primitives may write; a header as a whole is (name, "")."""
    found: set[tuple[str, str]] = set()
    for primitive in primitives:
        for target in primitive.args if primitive.op == "execute_meter" else primitive.args[:1]:
            if primitive.op not in _WRITES_FIRST and isinstance(target, ir.FieldRef):
                found.add((target.header, target.field))
            if isinstance(target, ir.HeaderRef):
                found.add((target.name, ""))
    return found


class _Aliases:
    """Follows a field back to the one that it is always a copy of."""

    def __init__(self, program: ir.Program, pipeline: ir.Pipeline) -> None:
        self._widths = {(h.name, f.name): f.width for h in program.headers.values() for f in h.type.fields}
        self._sources: dict[tuple[str, str], list[ir.Expr | None]] = {}
        for node in pipeline.tables:
            for primitive in _primitives(program, pipeline, node):
                for target in written([primitive]):
                    source = primitive.args[1] if primitive.op in ("assign", "modify_field") else None
                    self._sources.setdefault(target, []).append(source)

    def root(self, expr: ir.Expr) -> object:
        """Return the field's name, or a constant's value."""
        if isinstance(expr, ir.Const):
            return expr.value
        if isinstance(expr, ir.Op) and expr.op == "&" and isinstance(expr.args[1], ir.Const):
            inner = expr.args[0]
            if isinstance(inner, ir.FieldRef):
                mask = (1 << self._widths[inner.header, inner.field]) - 1
                if expr.args[1].value & mask == mask:
                    return self.root(inner)
        if not isinstance(expr, ir.FieldRef):
            return expr
        name = (expr.header, expr.field)
        sources = self._sources.get(name, [])
        found = {self.root(s) if s is not None else None for s in sources}
        if len(found) == 1 and (only := found.pop()) is not None and isinstance(only, (tuple, int)):
            return only
        return name


def critical_section(program: ir.Program, pipeline: ir.Pipeline) -> Section | None:
    """Find the critical section of a control; None if it touches no register.

    Raises UnsupportedProgramError if a table inside has a key that is made inside.
    """
    edges = following(pipeline)
    nodes = [*pipeline.tables, *pipeline.branches]
    used = {n: found for n in nodes if (found := list(accesses(_contents(program, pipeline, n))))}
    if not used:
        return None
    back: dict[str, set[str]] = {}
    for node, after in edges.items():
        for name in after:
            back.setdefault(name, set()).add(node)
    inside = _reach(edges, set(used)) & _reach(back, set(used))
    changed = {n: written(_primitives(program, pipeline, n)) for n in inside}
    index, count = _lock_index(program, pipeline, used, edges, set().union(*changed.values()))
    early = []
    for table in pipeline.tables.values():
        if table.name in inside and table.key:
            names = ir.fields_of(table.key)
            before = set().union(*(changed[n] for n in inside if table.name in _reach(edges, edges[n])))
            clash = {n for n in names if n in before or (n[0], "") in before}
            if clash:
                header, field = sorted(clash)[0]
                raise UnsupportedProgramError(
                    [f"table {table.name}, applied between accesses to registers, with the key {header}.{field}, "
                     "which changes between them: in XDP, tables are looked up before registers are locked"],
                    program.path, "XDP",
                )  # fmt: skip
            early.append(table.name)
    return Section(frozenset(inside), index, count, tuple(early))


def _lock_index(
    program: ir.Program,
    pipeline: ir.Pipeline,
    found: dict[str, list[tuple[str, ir.Expr]]],
    edges: dict[str, set[str]],
    changed: set[tuple[str, str]],
) -> tuple[ir.Expr | None, int]:
    """Return the common index of all accesses, and its bound: each index has its own lock then."""
    aliases = _Aliases(program, pipeline)
    used = [access for each in found.values() for access in each]
    roots = {aliases.root(index) for _, index in used}
    sizes = {program.registers[name].size for name, _ in used}
    if len(roots) != 1 or len(sizes) != 1 or (root := roots.pop()) in changed:
        return None, 0
    if isinstance(root, int):
        return ir.Const(root), sizes.pop()
    if not isinstance(root, tuple):
        return None, 0
    # A copy of the root must not be older than the root.
    copies = {n for n in ir.fields_of([i for _, i in used]) if n != root}
    writes = {n: written(_primitives(program, pipeline, n)) for n in pipeline.tables}
    makers = {n for n, names in writes.items() if names & copies}
    if any(root in writes.get(n, ()) for n in _reach(edges, set().union(*(edges[m] for m in makers)))):
        return None, 0
    return ir.FieldRef(*root), sizes.pop()
