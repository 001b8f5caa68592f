"""Benchmarks that are `netsum` commands: ``python -m bench.NAME`` hands its arguments to the command.

The command declares the options.
"""

from __future__ import annotations

import shlex
import sys

__all__ = ["command_line", "hand_over"]


def hand_over(*command: str) -> None:
    """Run a `netsum` command, such as ``bench engine``, with this process's arguments."""
    from netsum.cli import main

    sys.argv[1:1] = command
    main()


def command_line() -> str:
    """Return the command that runs, as it was typed, for a report."""
    return shlex.join(["netsum", *sys.argv[1:]])
