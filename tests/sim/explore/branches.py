"""Counts the branches of the worker core in random runs: each way out of every `if`, `while` and `for` of its three modules.

    python -m tests.sim.explore.branches --minutes 10

It ends with 0 if nothing was violated.
"""

from __future__ import annotations

import argparse
import ast
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numba
import numpy as np
import numpy.typing as npt
from numba import carray

from netsum.explore.at_random import run_at_random
from netsum_common.memory import pointer
from sim.core_calls import CoreCode
from tests.sim.explore.worker_texts import text_of, worker_with

__all__ = ["Branches", "counting_worker", "main"]

_MODULES: Final = ("arrivals", "departures", "recovery")
_MAX_BRANCHES: Final = 512
_TOOK: Final = "_took"


@dataclass(frozen=True)
class Branches:
    """A worker core that counts.

    Attributes
    ----------
    worker
        Its code.
    names
        Of each branch: module, line, which way.
    counts : int64[n]
        How often each was taken.
    """

    worker: CoreCode
    names: tuple[str, ...]
    counts: npt.NDArray[np.int64]

    def counted(self) -> dict[str, int]:
        """Return how often each branch was taken, by its name."""
        return dict(zip(self.names, self.counts.tolist(), strict=True))


class _Marks(ast.NodeTransformer):
    """Puts a call that counts at the beginning of each branch."""

    def __init__(self, module: str, names: list[str]) -> None:
        self._module, self._names = module, names

    def _mark(self, node: ast.stmt, way: str) -> ast.stmt:
        self._names.append(f"{self._module}.py:{node.lineno} {way}")
        call = ast.parse(f"{_TOOK}({len(self._names) - 1})").body[0]
        return ast.copy_location(call, node)

    def visit_If(self, node: ast.If) -> Any:
        """Mark both ways; an `elif` is the other way of its own."""
        node.body.insert(0, self._mark(node, "if"))
        if not (len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)):
            node.orelse.insert(0, self._mark(node, "else"))
        return self.generic_visit(node)

    def visit_While(self, node: ast.While) -> Any:
        """Mark the body."""
        node.body.insert(0, self._mark(node, "again"))
        return self.generic_visit(node)

    def visit_For(self, node: ast.For) -> Any:
        """Mark the body."""
        node.body.insert(0, self._mark(node, "each"))
        return self.generic_visit(node)


def _counter(address: int) -> Any:
    def took(branch: int) -> None:
        carray(pointer(address), (_MAX_BRANCHES,), np.int64)[branch] += 1

    return numba.njit(nogil=True, error_model="numpy")(took)


def counting_worker() -> Branches:
    """Compile the shipped worker core with a counter in each branch."""
    names: list[str] = []
    texts = {}
    for module in _MODULES:
        tree = _Marks(module, names).visit(ast.parse(text_of(module)))
        texts[module] = ast.unparse(ast.fix_missing_locations(tree))
    counts = np.zeros(_MAX_BRANCHES, np.int64)
    assert len(names) <= _MAX_BRANCHES
    worker = worker_with(texts, {_TOOK: _counter(counts.ctypes.data)})
    return Branches(worker, tuple(names), counts[: len(names)])


def main() -> int:
    """Run at random as `netsum explore --random` does, and name the branches that no run took."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.explore.branches", description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long; default: 1")
    parser.add_argument("--seed", type=int, help="default: a new one, printed")
    parser.add_argument(
        "--out", type=Path, default=Path("explored"), help="folder for the files of a violation"
    )
    chosen = parser.parse_args()
    found = run_at_random(chosen.minutes, chosen.seed, chosen.out, counting_worker)
    taken = found.taken
    missed = [name for name, count in taken.items() if not count]
    print(f"branches of the worker core: {len(taken) - len(missed)} of {len(taken)} taken")
    for name in missed:
        print(f"  never: {name}")
    return 0 if found.clean else 1


if __name__ == "__main__":
    sys.exit(main())
