"""Expressions and a primitive's other arguments, as `loader` makes them of BMv2 JSON; part of `sim.switch.ir`.

Expressions have BMv2's meaning: integers of unlimited precision, cut to a field's width when they are stored. They are
compared by identity.
"""

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Const:
    """An integer constant."""

    value: int


@dataclass(frozen=True, eq=False)
class Boolean:
    """A boolean constant."""

    value: bool


@dataclass(frozen=True, eq=False)
class FieldRef:
    """A field of a header or metadata instance; field ``$valid$`` is the header's validity."""

    header: str
    field: str


@dataclass(frozen=True, eq=False)
class StackLast:
    """A field of the last header extracted to a stack."""

    stack: str
    field: str


@dataclass(frozen=True, eq=False)
class UnionStackLast:
    """A field of a member of the last union extracted to a union stack (parser keys only)."""

    stack: str
    member: str
    field: str


@dataclass(frozen=True, eq=False)
class Param:
    """The action's own parameter number `index`."""

    index: int


@dataclass(frozen=True, eq=False)
class RegisterCell:
    """A cell of a register array, read inside an expression."""

    register: str
    index: "Expr"


@dataclass(frozen=True, eq=False)
class Lookahead:
    """`width` bits of the packet, `offset` bits past the parser's cursor."""

    offset: int
    width: int


@dataclass(frozen=True, eq=False)
class HeaderRef:
    """A header instance as a whole."""

    name: str


@dataclass(frozen=True, eq=False)
class StackRef:
    """A header stack as a whole."""

    name: str


@dataclass(frozen=True, eq=False)
class UnionRef:
    """A header union as a whole."""

    name: str


@dataclass(frozen=True, eq=False)
class UnionStackRef:
    """A stack of header unions as a whole."""

    name: str


@dataclass(frozen=True, eq=False)
class Op:
    """An operation; `op` is BMv2's name for it, ``?`` has the condition first."""

    op: str
    args: "tuple[Expr, ...]"


@dataclass(frozen=True, eq=False)
class Named:
    """A primitive's argument that is an object of the program: ``register_array``, ``calculation``, …."""

    kind: str
    name: str


@dataclass(frozen=True, eq=False)
class Text:
    """A primitive's argument that is a character string."""

    text: str


@dataclass(frozen=True, eq=False)
class Vector:
    """A primitive's argument that is a list of expressions."""

    items: "tuple[Expr, ...]"


Expr = (
    Const
    | Boolean
    | FieldRef
    | StackLast
    | UnionStackLast
    | Param
    | RegisterCell
    | Lookahead
    | HeaderRef
    | StackRef
    | UnionRef
    | UnionStackRef
    | Op
    | Named
    | Text
    | Vector
)
