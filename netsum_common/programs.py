"""Programs that a package starts as processes without importing them: entry points of the group "netsum.processes"."""

import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Final, Literal

from netsum_common.errors import NetsumError

PROGRAMS: Final = "netsum.processes"

Program = Literal["switch", "service", "leaf"]


class MissingProgramError(NetsumError):
    """A program is not registered."""


def _registered(name: Program) -> EntryPoint | None:
    return next(iter(entry_points(group=PROGRAMS, name=name)), None)


def is_registered(name: Program) -> bool:
    """Return whether the installed packages provide a program."""
    return _registered(name) is not None


def command_of(name: Program) -> list[str]:
    """Return the beginning of a program's command line.

    Raises
    ------
    MissingProgramError
        No installed package provides the program.
    """
    found = _registered(name)
    if found is None:
        raise MissingProgramError(
            f"netsum's program {name!r} is not installed: install netsum again, with pip install"
        )
    # -P: files in the working directory must not hide the program's modules.
    return [sys.executable, "-P", "-m", found.module]
