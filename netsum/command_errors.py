"""What commands raise; `netsum.cli.errors` makes sentences and exit statuses of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netsum_common.errors import NetsumError


class CommandError(NetsumError):
    """A command cannot do what was requested; the message is one sentence that says what to do."""


class UsageError(CommandError):
    """The command line is wrong whatever the machine is like; the message says what is expected."""


@contextmanager
def kept_when_interrupted(what: str, folder: Path) -> Iterator[None]:
    """Let Ctrl-C say where `what` is kept, as in "results are", for a command that goes on from there when it is run again."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{what} kept in {folder}, and the same command goes on from there") from None
