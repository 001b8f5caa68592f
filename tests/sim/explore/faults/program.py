"""Changed copies of the compiled P4 program: BMv2 JSON with branches redirected and primitives taken out or put in.

A branch is found by a field that its condition reads, an action by a field or register that it writes, so that the names
which the compiler makes up do not matter.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["Change", "Document", "changed_program"]

_OWN_ACTIONS = ("slot", "tree", "netsum")
"""Prefixes of the actions that the compiler makes of statements in these files of `p4/v1model`."""

Document = dict[str, Any]
Change = Callable[["Program"], None]


class Program:
    """A compiled program that is changed in place; the methods speak of its slot's variables by the ends of their names."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.ingress = next(p for p in document["pipelines"] if p["name"] == "ingress")

    def conditions(self) -> Iterator[Document]:
        """Iterate over the branches of ingress."""
        yield from self.ingress["conditionals"]

    def branches(self, *pieces: str) -> list[Document]:
        """Return the branches whose condition, written as text, contains all of the pieces, in order."""
        return [c for c in self.conditions() if all(p in f"^{written(c['expression'])}$" for p in pieces)]

    def branch(self, *pieces: str) -> Document:
        """Return the one branch whose condition contains all of the pieces; "^" and "$" stand for its ends."""
        found = self.branches(*pieces)
        assert len(found) == 1, (
            f"{len(found)} branches on {pieces}: {[written(c['expression']) for c in found]}"
        )
        return found[0]

    def action(self, *pieces: str) -> Document:
        """Return the one action whose primitives, written as text, contain all of the pieces."""
        found: list[Document] = [
            a
            for a in self.document["actions"]
            if a["name"].startswith(_OWN_ACTIONS) and all(any(p in line for line in lines(a)) for p in pieces)
        ]
        assert len(found) == 1, f"{len(found)} actions with {pieces}: {[a['name'] for a in found]}"
        return found[0]

    def table_of(self, action: Document) -> str:
        """Return the table that does nothing but run an action."""
        name: str = next(t["name"] for t in self.ingress["tables"] if t["actions"] == [action["name"]])
        return name

    def always(self, branch: Document, taken: bool) -> None:
        """Make a branch always, or never, taken."""
        where = branch["true_next" if taken else "false_next"]
        branch["true_next"] = branch["false_next"] = where

    def drop(self, action: Document, piece: str) -> None:
        """Take the one primitive that contains a piece out of an action."""
        kept = [p for p in action["primitives"] if piece not in line(p)]
        assert len(kept) == len(action["primitives"]) - 1, f"{piece!r} in {lines(action)}"
        action["primitives"] = kept

    def primitive(self, action: Document, piece: str) -> Document:
        """Return the one primitive of an action that contains a piece."""
        found: list[Document] = [p for p in action["primitives"] if piece in line(p)]
        assert len(found) == 1, f"{piece!r} in {lines(action)}"
        return found[0]


def written(expression: Any) -> str:
    """Write an expression as text."""
    if expression is None:
        return ""
    kind, value = expression["type"], expression["value"]
    if kind == "field":
        return ".".join(value)
    if kind == "expression":
        if "op" not in value:
            return written(value)
        return f"({written(value.get('left'))} {value['op']} {written(value['right'])})"
    return str(value)


def line(primitive: Document) -> str:
    """Write a primitive as text: operation, then parameters."""
    return " ".join([primitive["op"], *map(written, primitive["parameters"])])


def lines(action: Document) -> list[str]:
    """Write an action's primitives as text."""
    return [line(p) for p in action["primitives"]]


def binary(op: str, left: Any, right: Any) -> Document:
    """Make an expression of two."""
    return {"type": "expression", "value": {"op": op, "left": left, "right": right}}


def constant(value: int) -> Document:
    """Make a constant."""
    return {"type": "hexstr", "value": hex(value)}


def changed_program(path: Path, change: Change, target: Path) -> Path:
    """Write a changed copy of a compiled program."""
    program = Program(copy.deepcopy(json.loads(path.read_text())))
    change(program)
    target.write_text(json.dumps(program.document))
    return target
