"""State files of real SQLite whose statements fail on plan, or after which the process is killed."""

import functools
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.service.store import JobStore
from tests.controller.world.simulation import Killed


@dataclass
class Disk:
    """The connections to one state file, and the faults to inject.

    `fails`, `kills`: kind of a statement ("read", "write", "commit") and how many of that kind pass before one fails, or is
    the last of its process.
    """

    path: Path
    fails: list[tuple[str, int]] = field(default_factory=list)
    kills: list[tuple[str, int, bool]] = field(
        default_factory=list
    )  # The last element: whether the statement is carried out.
    full: bool = False  # Whether every write fails.
    quiet: bool = False  # Whether faults are suspended, because the world itself reads.
    dead: bool = False  # Whether the process has been killed: nothing reaches the file any more.
    passed: Counter[str] = field(default_factory=Counter)  # Failures by kind.
    commits: int = 0

    def before(self, kind: str) -> None:
        """Raise an error instead of a statement that is to fail."""
        if self.quiet:
            return
        if self.dead:
            raise Killed
        for planned in [each for each in self.kills if each[0] == kind]:
            self.kills.remove(planned)
            if planned[1]:
                self.kills.append((kind, planned[1] - 1, planned[2]))
            elif not planned[2]:
                self._kill(kind)
            else:
                self.kills.append((kind, -1, True))
        for failing in [each for each in self.fails if each[0] == kind]:
            self.fails.remove(failing)
            if not failing[1]:
                self.passed[kind] += 1
                raise sqlite3.OperationalError("disk I/O error")
            self.fails.append((kind, failing[1] - 1))
        if self.full and kind in ("write", "commit"):
            self.passed["full"] += 1
            raise sqlite3.OperationalError("database or disk is full")

    def after(self, kind: str) -> None:
        """Note a statement that was carried out; end the process if it is the last."""
        self.commits += kind == "commit"
        if (kind, -1, True) in self.kills:
            self.kills.remove((kind, -1, True))
            self._kill(kind)

    def _kill(self, kind: str) -> None:
        self.passed[f"killed at a {kind}"] += 1
        self.dead = True
        raise Killed

    def calm(self) -> None:
        self.fails.clear()
        self.kills.clear()
        self.full = False

    def store(self, path: Path | str) -> JobStore:
        """Open the state file."""
        disk = self

        def carried_out(statement: str, carry_out: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
            kind = _kind(statement)
            if kind:
                disk.before(kind)
            done = carry_out()
            if kind:
                disk.after(kind)
            return done

        class Connection(sqlite3.Connection):
            def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
                return carried_out(statement, lambda: super(Connection, self).execute(statement, *values))

            def executemany(self, statement: str, values: Any) -> sqlite3.Cursor:
                return carried_out(statement, lambda: super(Connection, self).executemany(statement, values))

        return JobStore(path, functools.partial(sqlite3.connect, factory=Connection))


def _kind(statement: str) -> str:
    word = statement.lstrip()[:6].upper()
    return {
        "SELECT": "read",
        "COMMIT": "commit",
        "BEGIN ": "write",
        "INSERT": "write",
        "DELETE": "write",
    }.get(word, "")
