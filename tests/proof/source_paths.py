"""The paths through the worker core's functions, from their source, as formulas over records of 64-bit integers.

A call of a function of the core is followed, unless it is named as opaque: then its value may be any, and it must assign
none of the fields that say which chunks are under way. Fields that a loop assigns may have any value after it.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import z3

from host_agent.wire.constants import HEADER_FIELDS

MODULES = ("records", "recovery", "timeout", "departures", "arrivals")
BITS = 64
TRACKED = frozenset(
    ["chunk", "in_flight", "next_chunk", "slot_count", "quorum", "failure", "results", "pass_number"]
)
"""Fields that only functions that are followed may assign."""

Term = Any


@dataclass(frozen=True)
class Record:
    """A record of a table: `core`, `slots` or `passes`."""

    table: str
    index: Term


@dataclass(frozen=True)
class Table:
    """An array of records."""

    name: str


@dataclass
class Path_:
    """A way through a function: its condition, names, fields, and the value it returns."""

    condition: list[Term]
    names: dict[str, Any]
    fields: dict[tuple[str, str], Term]
    value: Any = None
    done: bool = False
    followed: tuple[str, ...] = ()

    def copy(self) -> "Path_":
        """Return a path that goes on from here."""
        return replace(self, condition=[*self.condition], names={**self.names}, fields={**self.fields})


@dataclass
class Sources:
    """The functions of the worker core; `opaque`: those not followed; `steady`: tests that have one value in a run."""

    opaque: frozenset[str]
    steady: frozenset[str] = frozenset()
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    fresh: int = 0

    @classmethod
    def of_core(
        cls, opaque: frozenset[str], steady: frozenset[str], texts: dict[str, str] | None = None
    ) -> "Sources":
        """Read the core's modules; `texts`: other texts of some."""
        sources = cls(opaque, steady)
        for name in MODULES:
            module = import_module(f"host_agent.protocol.{name}")
            assert module.__file__
            sources.constants.update({k: v for k, v in vars(module).items() if isinstance(v, int)})
            text = (texts or {}).get(name) or Path(module.__file__).read_text()
            for node in ast.parse(text).body:
                if isinstance(node, ast.FunctionDef):
                    sources.functions[node.name] = node
        for name in opaque & sources.functions.keys():
            sources._check_opaque(name)
        return sources

    def _check_opaque(self, name: str) -> None:
        """Refuse a function that, itself or by one that it calls, assigns a field that says which chunks are under way."""
        to_read, read = [name], set()
        while to_read:
            called = to_read.pop()
            if called in read or called not in self.functions:
                continue
            read.add(called)
            for inner in ast.walk(self.functions[called]):
                if (
                    isinstance(inner, ast.Attribute)
                    and isinstance(inner.ctx, ast.Store)
                    and inner.attr in TRACKED
                ):
                    raise AssertionError(f"{called} assigns {ast.unparse(inner)}: follow {name}")
                if isinstance(inner, ast.Call):
                    to_read.append(ast.unparse(inner.func))

    def followed(self, functions: Iterable[str]) -> set[str]:
        """Return functions, and those that they call, but for opaque ones and what these call."""
        to_read, found = [*functions], set()
        while to_read:
            name = to_read.pop()
            if name not in found and name in self.functions:
                found.add(name)
                calls = [
                    ast.unparse(n.func) for n in ast.walk(self.functions[name]) if isinstance(n, ast.Call)
                ]
                to_read += [called for called in calls if called not in self.opaque]
        return found

    def unknown(self, name: str) -> Term:
        """Return an integer that nothing is known about."""
        self.fresh += 1
        return z3.BitVec(f"{name}!{self.fresh}", BITS)

    def run(
        self, function: str, arguments: list[Any], fields: dict[tuple[str, str], Term] | None = None
    ) -> list[Path_]:
        """Return the paths through a function."""
        node = self.functions[function]
        names = dict(zip([a.arg for a in node.args.args], arguments, strict=True))
        return list(self._block(node.body, Path_([], names, dict(fields or {}), followed=(function,))))

    def turn(self, function: str, number: int, arguments: list[Any]) -> tuple[Term, list[Path_]]:
        """Return the condition of a function's loop, and the paths through one turn of it."""
        node = self.functions[function]
        loop = [each for each in node.body if isinstance(each, ast.While)][number]
        names = dict(zip([a.arg for a in node.args.args], arguments, strict=True))
        path = Path_([], names, {}, followed=(function,))
        [(_, test)] = self._value(loop.test, path.copy())
        return _truth(test), list(self._block(loop.body, path))

    def _block(self, body: list[ast.stmt], path: Path_) -> Iterator[Path_]:
        if not body or path.done:
            yield path
            return
        for after in self._statement(body[0], path):
            if after.done:
                yield after
            else:
                yield from self._block(body[1:], after)

    def _statement(self, node: ast.stmt, path: Path_) -> Iterator[Path_]:
        if isinstance(node, ast.If):
            for at, test in self._value(node.test, path):
                holds = _truth(test)
                for branch, taken in ((node.body, holds), (node.orelse, z3.Not(holds))):
                    after = at.copy()
                    after.condition.append(taken)
                    yield from self._block(branch, after)
        elif isinstance(node, ast.Return):
            for at, value in self._value(node.value, path) if node.value else [(path, None)]:
                yield replace(at, value=value, done=True)
        elif isinstance(node, ast.Assign):
            for at, value in self._value(node.value, path):
                yield self._assigned(node.targets[0], value, at)
        elif isinstance(node, ast.AnnAssign):
            assert node.value
            for at, value in self._value(node.value, path):
                yield self._assigned(node.target, value, at)
        elif isinstance(node, ast.AugAssign):
            target = ast.parse(ast.unparse(node.target), mode="eval").body
            for at, value in self._value(ast.BinOp(target, node.op, node.value), path):
                yield self._assigned(node.target, value, at)
        elif isinstance(node, ast.Expr):
            for at, _ in self._value(node.value, path):
                yield at
        elif isinstance(node, ast.While):
            after = path.copy()
            for inner in ast.walk(node):
                if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                    for record in [v for v in after.names.values() if isinstance(v, Record)]:
                        self._write(record, inner.attr, self.unknown(inner.attr), after)
            yield after
        elif isinstance(node, ast.Pass):
            yield path
        elif isinstance(node, ast.Break):  # in one turn of a loop
            yield replace(path, done=True)
        else:
            raise NotImplementedError(ast.unparse(node))

    def _assigned(self, target: ast.expr, value: Any, path: Path_) -> Path_:
        after = path.copy()
        if isinstance(target, ast.Name):
            after.names[target.id] = value
        elif isinstance(target, ast.Tuple):
            for name, each in zip(target.elts, value, strict=True):
                assert isinstance(name, ast.Name)
                after.names[name.id] = each
        elif isinstance(target, ast.Attribute):
            [(_, record)] = self._value(target.value, path)
            self._write(record, target.attr, value, after)
        elif not isinstance(target, ast.Subscript):  # a datagram's words, or their number
            raise NotImplementedError(ast.unparse(target))
        return after

    def _array(self, record: Record, name: str, path: Path_) -> Term:
        key = (record.table, name)
        if key not in path.fields:
            path.fields[key] = z3.Array(f"{record.table}.{name}", z3.BitVecSort(BITS), z3.BitVecSort(BITS))
        return path.fields[key]

    def _write(self, record: Record, name: str, value: Term, path: Path_) -> None:
        path.fields[record.table, name] = z3.Store(
            self._array(record, name, path), record.index, _integer(value)
        )

    def _value(self, node: ast.expr, path: Path_) -> Iterator[tuple[Path_, Any]]:
        if isinstance(node, ast.Constant):
            yield path, _constant(node.value)
        elif isinstance(node, ast.Name):
            name = node.id
            if name in path.names:
                yield path, path.names[name]
            elif name in self.constants:
                yield path, z3.BitVecVal(int(self.constants[name]), BITS)
            else:
                yield path, self.unknown(name)
        elif isinstance(node, ast.Attribute):
            for at, record in self._value(node.value, path):
                known = isinstance(record, Record)
                yield (
                    at,
                    z3.Select(self._array(record, node.attr, at), record.index)
                    if known
                    else self.unknown(node.attr),
                )
        elif isinstance(node, ast.Subscript):
            for at, holder in self._value(node.value, path):
                if isinstance(holder, tuple):
                    assert isinstance(node.slice, ast.Constant)
                    yield at, holder[node.slice.value]  # type: ignore[index]
                elif isinstance(holder, Table) and not isinstance(node.slice, ast.Slice):
                    for then, index in self._value(node.slice, at):
                        yield then, Record(holder.name, index)
                elif isinstance(node.value, ast.Attribute) and not isinstance(node.slice, ast.Slice):
                    for then, index in self._value(node.slice, at):
                        yield then, item(node.value.attr, _integer(index))
                else:
                    yield at, self.unknown("item")
        elif isinstance(node, ast.Call):
            yield from self._call(node, path)
        elif isinstance(node, ast.Tuple):
            for at, values in self._values(node.elts, path):
                yield at, tuple(values)
        elif isinstance(node, (ast.BoolOp, ast.Compare, ast.BinOp, ast.UnaryOp, ast.IfExp)):
            yield from self._operation(node, path)
        else:
            raise NotImplementedError(ast.unparse(node))

    def _values(self, nodes: list[ast.expr], path: Path_) -> Iterator[tuple[Path_, list[Any]]]:
        if not nodes:
            yield path, []
            return
        for at, first in self._value(nodes[0], path):
            for then, rest in self._values(nodes[1:], at):
                yield then, [first, *rest]

    def _operation(self, node: ast.expr, path: Path_) -> Iterator[tuple[Path_, Any]]:
        if isinstance(node, ast.BoolOp):  # operands have no effects here, so all may be evaluated
            for at, values in self._values(node.values, path):
                yield at, (z3.And if isinstance(node.op, ast.And) else z3.Or)(*map(_truth, values))
        elif isinstance(node, ast.Compare):
            for at, values in self._values([node.left, *node.comparators], path):
                pairs = zip(node.ops, values, values[1:], strict=False)
                yield at, z3.And(*(_compared(op, left, right) for op, left, right in pairs))
        elif isinstance(node, ast.BinOp):
            for at, (left, right) in self._values([node.left, node.right], path):
                yield at, _computed(node.op, left, right)
        elif isinstance(node, ast.IfExp):
            for at, (test, yes, no) in self._values([node.test, node.body, node.orelse], path):
                yield at, z3.If(_truth(test), _integer(yes), _integer(no))
        elif isinstance(node, ast.UnaryOp):
            for at, value in self._value(node.operand, path):
                if isinstance(node.op, ast.Not):
                    yield at, z3.Not(_truth(value))
                else:
                    yield at, ~_integer(value) if isinstance(node.op, ast.Invert) else -_integer(value)

    def _call(self, node: ast.Call, path: Path_) -> Iterator[tuple[Path_, Any]]:
        name = ast.unparse(node.func)
        for at, values in self._values(node.args, path):
            if name in ("np.int64", "bool", "int", "borrowed"):
                yield at, values[0]
            elif name == "min":
                left, right = map(_integer, values)
                yield at, z3.If(left < right, left, right)
            elif name == "read_header":
                yield at, tuple(z3.BitVec(f"header.{i}", BITS) for i in range(len(HEADER_FIELDS)))
            elif name in self.functions and name not in self.opaque:
                function = self.functions[name]
                names = dict(zip([a.arg for a in function.args.args], values, strict=True))
                inner = Path_([*at.condition], names, {**at.fields}, followed=(*at.followed, name))
                for end in self._block(function.body, inner):
                    yield (
                        replace(at, condition=end.condition, fields=end.fields, followed=end.followed),
                        end.value,
                    )
            else:
                yield at, z3.Bool(name) if name in self.steady else self.unknown(name)


def item(name: str, index: Term) -> Term:
    """Return an element of an array of the core, before anything is assigned to it."""
    return z3.Function(f"item.{name}", z3.BitVecSort(BITS), z3.BitVecSort(BITS))(index)


def _constant(value: Any) -> Term:
    if isinstance(value, bool):
        return z3.BoolVal(value)
    return z3.BitVecVal(value, BITS) if isinstance(value, int) else None  # a docstring


def _truth(value: Term) -> Term:
    return value if z3.is_bool(value) else value != 0


def _integer(value: Term) -> Term:
    return z3.If(value, z3.BitVecVal(1, BITS), z3.BitVecVal(0, BITS)) if z3.is_bool(value) else value


def _compared(op: ast.cmpop, left: Term, right: Term) -> Term:
    if z3.is_bool(left) != z3.is_bool(right):
        left, right = _integer(left), _integer(right)
    compare: dict[type[ast.cmpop], Any] = {
        ast.Eq: lambda: left == right, ast.NotEq: lambda: left != right, ast.Lt: lambda: left < right,
        ast.LtE: lambda: left <= right, ast.Gt: lambda: left > right, ast.GtE: lambda: left >= right,
    }  # fmt: skip
    return compare[type(op)]()


def _computed(op: ast.operator, left: Term, right: Term) -> Term:
    if z3.is_bool(left) and z3.is_bool(right):
        return z3.And(left, right) if isinstance(op, ast.BitAnd) else z3.Or(left, right)
    left, right = _integer(left), _integer(right)
    compute: dict[type[ast.operator], Any] = {
        ast.Add: lambda: left + right, ast.Sub: lambda: left - right, ast.BitAnd: lambda: left & right,
        ast.BitOr: lambda: left | right, ast.RShift: lambda: left >> right, ast.LShift: lambda: left << right,
        ast.Mult: lambda: left * right, ast.Mod: lambda: z3.URem(left, right),
    }  # fmt: skip
    return compute[type(op)]()
