"""Errors of commands; `netsum.cli.exits` turns them into sentences and exit statuses."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netsum_common.errors import NetsumError


class CommandError(NetsumError):
    """A command cannot carry out the request; the message is one sentence with the remedy."""


class UsageError(CommandError):
    """The command line is wrong on every machine; the message names the expected value."""


@contextmanager
def kept_when_interrupted(what: str, folder: Path) -> Iterator[None]:
    """Let Ctrl-C say where `what` is kept, as in "results are", for a command that goes on from there when it is run again."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{what} kept in {folder}: repeat the command to continue") from None
