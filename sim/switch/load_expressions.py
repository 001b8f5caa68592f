"""Read BMv2 JSON's "type value objects" into `ir` expressions.

Unsupported features are collected by name rather than raised, so that one load reports all of them.
"""

from collections.abc import Callable
from typing import Any

from sim.switch import ir

BOOLEAN_OPS = frozenset(
    ["==", "!=", "<", "<=", ">", ">=", "and", "or", "not", "valid", "valid_union", "d2b"],
)
_ARITHMETIC = ("+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^", "~", "?", "b2d")
_CASTS = ("two_comp_mod", "usat_cast", "sat_cast")
_STACKS = ("last_stack_index", "size_stack", "dereference_stack", "dereference_header_stack")
_ACCESS = ("access_field", "access_union_header", "dereference_union_stack")
OPS = BOOLEAN_OPS.union(_ARITHMETIC, _CASTS, _STACKS, _ACCESS)

_PLAIN: dict[str, Callable[[Any], ir.Expr]] = {
    "header": ir.HeaderRef,
    "header_stack": ir.StackRef,
    "header_union": ir.UnionRef,
    "header_union_stack": ir.UnionStackRef,
    "hexstr": lambda value: ir.Const(int(value, 16)),
    "bool": lambda value: ir.Boolean(bool(value)),
    "local": lambda value: ir.Param(int(value)),
    "runtime_data": lambda value: ir.Param(int(value)),
    "lookahead": lambda value: ir.Lookahead(int(value[0]), int(value[1])),
    "stack_field": lambda value: ir.StackLast(value[0], value[1]),
    "union_stack_field": lambda value: ir.UnionStackLast(value[0], value[1], value[2]),
    "string": lambda value: ir.Text(str(value)),
}
"""Operands that hold no others, by the type that JSON has for them."""
_OBJECTS = frozenset(["calculation", "register_array", "counter_array", "meter_array", "extern"])


def source_place(node: dict[str, Any]) -> str:
    """Return where something stands in the P4 source, as p4c says it: ``file.p4(12)``; empty if it does not."""
    info = node.get("source_info") or {}
    return f"{info.get('filename', '')}({info['line']})" if "line" in info else ""


class ExpressionReader:
    """Turns JSON values into expressions. `problems`: where the names of unsupported things are added."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        self.fields: dict[str, frozenset[str]] = {}

    def unsupported(self, what: str) -> ir.Expr:
        """Note `what` as unsupported and return a stand-in, so that reading can go on."""
        if what not in self.problems:
            self.problems.append(what)
        return ir.Const(0)

    def read(self, node: Any) -> ir.Expr:
        """Read one type value object."""
        if not isinstance(node, dict):
            return self.unsupported(f"expression {node!r}")
        if "op" in node:
            return self._operation(node)
        kind: str = node.get("type", "")
        value: Any = node.get("value")
        if kind == "expression":
            return self.read(value)
        if kind == "field":
            return self.field(value)
        if kind in _PLAIN:
            return _PLAIN[kind](value)
        if kind == "register":
            return ir.RegisterCell(value[0], self.read(value[1]))
        if kind in _OBJECTS:
            return ir.Named(kind, value)
        if kind in ("parameters_vector", "parameters"):
            return ir.Vector(tuple(self.read(item) for item in value))
        return self.unsupported(f"operand of type {kind!r}")

    def field(self, value: Any) -> ir.Expr:
        """Read a ``[header, field]`` pair; p4c writes an expression for the header of a stack's element."""
        if isinstance(value[0], dict):
            if value[1] == "$valid$":
                return ir.Op("b2d", (ir.Op("valid", (self.read(value[0]),)),))
            return self.unsupported(f"field {value[1]} of a header given by an expression")
        header, name = str(value[0]), str(value[1])
        if self.fields and name != "$valid$" and name not in self.fields.get(header, ()):
            return self.unsupported(f"unknown field {header}.{name}")
        return ir.FieldRef(header, name)

    def _operation(self, node: dict[str, Any]) -> ir.Expr:
        op = node["op"]
        if op not in OPS:
            return self.unsupported(f"operator {op!r}")
        if op in ("access_field", "access_union_header"):
            return ir.Op(op, (self.read(node["left"]), ir.Const(int(node["right"]))))
        if op == "dereference_stack":
            op = "dereference_header_stack"
        operands = [node.get("cond"), node.get("left"), node.get("right")]
        args = tuple(self.read(operand) for operand in operands if operand is not None)
        if op in _CASTS and not isinstance(args[-1], ir.Const):
            return self.unsupported("a cast to a width that is not a constant")
        return ir.Op(op, args)
