"""Changes of one operator, constant, condition, statement or order of statements in a Python module, drawn by a seed."""

import ast
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.sim.explore.blind_faults import BINARIES, COMPARES

_COMPARES: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    **COMPARES,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_BINARIES: Final[dict[type[ast.operator], type[ast.operator]]] = {**BINARIES, ast.FloorDiv: ast.Mult}


@dataclass(frozen=True)
class Change:
    """A changed module: its whole new text, and the line, what stood there and what stands there now."""

    line: int
    before: str
    after: str
    text: str


@dataclass(frozen=True)
class _Site:
    kind: str
    node: ast.AST
    apply: Callable[[random.Random], str]
    """Changes the tree in place; returns what stands there now."""


def draw_change(text: str, draw: random.Random) -> Change | None:
    """Draw a change; None where nothing can be changed. Each kind of change is equally likely."""
    tree = ast.parse(text)
    sites = list(_sites(tree))
    if not sites:
        return None
    kind = draw.choice(sorted({site.kind for site in sites}))
    site = draw.choice([site for site in sites if site.kind == kind])
    before = _shown(site.node)
    after = site.apply(draw)
    line: int = site.node.lineno  # type: ignore[attr-defined]
    return Change(line, before, after, ast.unparse(ast.fix_missing_locations(tree)) + "\n")


def count_of_sites(text: str) -> int:
    """Return at how many places a module can be changed."""
    return sum(1 for _ in _sites(ast.parse(text)))


def _shown(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:100]


def _sites(tree: ast.Module) -> Iterator[_Site]:
    """Iterate over the places in functions; texts, annotations and what is raised are left as they are."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                for node in _nodes(statement):
                    yield from _sites_of(node)
            yield from _sites_of_bodies(function)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(
        node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Raise | ast.Assert | ast.JoinedStr
    ):
        return  # Nested functions have their own turn.
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "format_spec"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _nodes(child)


def _sites_of(node: ast.AST) -> Iterator[_Site]:
    match node:
        case ast.Compare(ops=[compare, *_]) if type(compare) in _COMPARES:
            yield _Site(
                "comparison", node, lambda _: _with(node, ops=[_COMPARES[type(compare)](), *node.ops[1:]])
            )
        case ast.BoolOp(op=operator):
            other = ast.And() if isinstance(operator, ast.Or) else ast.Or()
            yield _Site("and or or", node, lambda _: _with(node, op=other))
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _BINARIES:
            yield _Site("operator", node, lambda _: _with(node, op=_BINARIES[type(operator)]()))
        case ast.Constant(value=bool(value)):
            yield _Site("constant", node, lambda _: _with(node, value=not value))
        case ast.Constant(value=int(value)):
            yield _Site("constant", node, lambda draw: _with(node, value=_other_number(value, draw)))
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield _Site(
                "condition", test, lambda _: _with(node, shown="test", test=ast.UnaryOp(ast.Not(), test))
            )


def _other_number(value: int, draw: random.Random) -> int:
    return draw.choice([each for each in (0, value - 1, value + 1) if each >= 0 and each != value])


def _sites_of_bodies(function: ast.AST) -> Iterator[_Site]:
    """Iterate over statements that can be left out, and pairs of them that can change places."""
    for node in _nodes_below(function):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if not isinstance(statements, list):
                continue
            for at, statement in enumerate(statements):
                if _acts(statement):
                    yield _Site("statement", statement, _LeftOut(statements, at))
                    if at + 1 < len(statements) and _acts(statements[at + 1]):
                        yield _Site("order", statement, _Swapped(statements, at))


def _nodes_below(function: ast.AST) -> Iterator[ast.AST]:
    yield function
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _nodes_below(child)


def _acts(statement: ast.AST) -> bool:
    """Whether a statement only acts: without it names stay bound."""
    match statement:
        case ast.Expr(value=ast.Call() | ast.Await()):
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
        case ast.AugAssign(target=ast.Attribute() | ast.Subscript()):
            return True
    return False


def _with(node: Any, shown: str = "", **changed: Any) -> str:
    for name, value in changed.items():
        setattr(node, name, value)
    return _shown(changed[shown] if shown else node)


@dataclass(frozen=True)
class _LeftOut:
    statements: list[ast.stmt]
    at: int

    def __call__(self, draw: random.Random) -> str:
        self.statements[self.at] = ast.Pass()
        return "pass"


@dataclass(frozen=True)
class _Swapped:
    statements: list[ast.stmt]
    at: int

    def __call__(self, draw: random.Random) -> str:
        here, at = self.statements, self.at
        here[at], here[at + 1] = here[at + 1], here[at]
        return f"after {_shown(here[at])}"
