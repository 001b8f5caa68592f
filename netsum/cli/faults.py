"""Foreseeable faults end a command with one sentence and status 1, Ctrl-C with 130; none with a traceback."""

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn, ParamSpec

from rich.console import Console

from topologies.children import ending_in_order

OURS = ("netsum", "host_agent", "controller", "sim", "topologies")

Parameters = ParamSpec("Parameters")


class CommandError(Exception):
    """A command cannot do what was asked; the message is one sentence that says what to do."""


def told_in_a_sentence(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Make a command that tells its foreseeable faults, and that SIGTERM and SIGHUP end in order."""

    @functools.wraps(command)
    def told(*arguments: Parameters.args, **options: Parameters.kwargs) -> None:
        try:
            with ending_in_order():
                command(*arguments, **options)
        except ModuleNotFoundError as missing:
            package = (missing.name or "").partition(".")[0]
            if package in OURS:
                raise
            fail(f"this needs the Python package {package}: pip install 'netsum[demo]'")
        except BrokenPipeError:
            # Whoever read our output has gone, as `head` does; the interpreter must not flush to it again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except Exception as fault:
            if not isinstance(fault, _foreseeable()):
                raise
            fail("\n".join([str(fault), *getattr(fault, "__notes__", [])]))
        except KeyboardInterrupt:
            Console(stderr=True).print("netsum: stopped; nothing is left running")
            sys.exit(128 + signal.SIGINT)

    return told


def _foreseeable() -> tuple[type[Exception], ...]:
    """Return what netsum raises on purpose, with a message for people; anything else is our fault: a traceback."""
    from controller.errors import ControllerError
    from host_agent.errors import NetsumError
    from topologies.children import TestbedError

    return CommandError, NetsumError, ControllerError, TestbedError


def fail(message: str) -> NoReturn:
    """Say what went wrong and end with status 1."""
    Console(stderr=True, soft_wrap=True).print(f"netsum: {message}", markup=False, highlight=False)
    sys.exit(1)
