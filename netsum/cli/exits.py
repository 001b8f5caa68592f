"""How commands end: with a status of `EXIT_STATUSES` and, unless that is 0, one sentence on standard error.

This is the one place where exceptions become sentences and statuses: what netsum raises on purpose, wrong arguments that Typer
found, interruptions, and a reader of standard output that has gone.
"""

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from netsum.cli.parameters import DescribedGroup, expected_of, one_of, options_of_command
from netsum.cli.texts import FAULT, INTERRUPTED, USAGE
from netsum.command_errors import UsageError
from netsum.extras import DISTRIBUTIONS, install_command
from netsum.terminal import echo_error
from netsum_common.errors import NetsumError
from netsum_common.logs import recorded

PANELS = ("Try it", "Operate it", "Look closer", "Laboratory")
"""Parts of the list of commands, in the order in which the help has them."""

_OURS = ("netsum", "netsum_common", "host_agent", "controller", "sim", "topologies")


class CommandGroup(DescribedGroup):
    """The group of all commands, whose errors are reported here, and not by Typer."""

    def main(self, args: Any = None, *, standalone_mode: bool = True, **options: Any) -> Any:  # type: ignore[override]  # Typer names all
        """Run a command line, and exit with its status; `help COMMAND` is `COMMAND --help`."""
        args = sys.argv[1:] if args is None else list(args)
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        with reported_errors():
            status = super().main(args, standalone_mode=False, **options)
        if status == INTERRUPTED:  # While Typer read the arguments: it takes the interruption for itself.
            fail("interrupted", INTERRUPTED)
        if not standalone_mode:
            return status
        sys.exit(status if isinstance(status, int) else 0)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, by their panels."""
        return sorted(
            super().list_commands(ctx),
            key=lambda name: PANELS.index(getattr(self.commands[name], "rich_help_panel", PANELS[0])),
        )

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name; SIGTERM and SIGHUP unwind it, so that it cleans up."""
        from topologies.children import ending_in_order

        with reported_errors(), ending_in_order():
            return super().invoke(ctx)


@contextmanager
def reported_errors() -> Iterator[None]:
    """Exit with one sentence and a status if the block raises a foreseen error; any other error is a defect: a traceback."""
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if not package or package in _OURS:
            raise
        fail(
            f"this needs the Python package {DISTRIBUTIONS.get(package, package)}: {install_command(package)}"
        )
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does; the interpreter must not flush to it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAULT)
    except KeyboardInterrupt as interruption:  # The interruption's arguments say what was kept.
        fail(": ".join(["interrupted", *map(str, interruption.args)]), INTERRUPTED)
    except Exception as fault:
        # Typer's error; Typer brings its own Click.
        if hasattr(fault, "format_message") and hasattr(fault, "exit_code"):
            _report_usage(fault)
        if isinstance(fault, _wrong_arguments()):
            fail(str(fault), USAGE)
        if not isinstance(fault, NetsumError):
            raise
        fail("\n".join([str(fault), *getattr(fault, "__notes__", [])]))


def fail(message: str, status: int = FAULT) -> NoReturn:
    """Print what went wrong and exit."""
    if not recorded(message, logging.ERROR):
        echo_error(message)
    sys.exit(status)


def _wrong_arguments() -> tuple[type[Exception], ...]:
    """Return the error of a wrong argument, raised before any work."""
    from controller.errors import ConfigError
    from host_agent.errors import ArgumentError
    from netsum_common.channel import ChannelError
    from netsum_common.options import OptionError
    from sim.errors import SettingError
    from topologies.topology import TopologyError

    return UsageError, OptionError, ArgumentError, ChannelError, ConfigError, TopologyError, SettingError


def _report_usage(fault: Any) -> NoReturn:
    """Exit with a sentence for what Typer found wrong with the arguments."""
    context = getattr(fault, "ctx", None)
    path = context.command_path if context is not None else "netsum"
    if type(fault).__name__ == "NoArgsIsHelpError":
        print(fault.format_message(), file=sys.stderr)
        sys.exit(USAGE)
    fail(f"{_usage_sentence(fault, context)} (`{path} --help`)", USAGE)


def _usage_sentence(fault: Any, context: Any) -> str:
    """Return a sentence with the expected and the found value."""
    message = str(fault.message or "").rstrip(".")
    kind = type(fault).__name__
    if kind in ("NoSuchOption", "NoSuchOptionError"):
        nearest = f"; did you mean {one_of(fault.possibilities)}?" if fault.possibilities else ""
        return f"there is no option {fault.option_name}{nearest}"
    if kind in ("MissingParameter", "BadParameter") and getattr(fault, "param", None) is not None:
        one = options_of_command(context.command.callback)[fault.param.name]
        if kind == "MissingParameter":
            said = one.declared.help.rstrip(".")
            return f"{one.label} is missing: {said[:1].lower() + said[1:]}"
        return f"{one.label}: expected {expected_of(one)}, not {_refused_value(fault, message)!r}"
    if kind == "BadOptionUsage":
        return f"{fault.option_name} {'needs a' if 'requires' in message else 'takes no'} value"
    if found := re.match(r"No such command '(.*?)'", message):
        return f"there is no command {found[1]!r}: expected {one_of(context.command.commands)}"
    if message.startswith("Missing command"):
        return f"expected a command: {one_of(context.command.commands)}"
    if found := re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", message):
        return f"unexpected argument {found[1]!r}"
    return message[:1].lower() + message[1:]


def _refused_value(fault: Any, message: str) -> str:
    """Return the value that was refused: from pydantic where Typer uses it, else from Typer's message."""
    errors = getattr(fault.__cause__, "errors", None)
    if errors is not None:
        return str(errors()[0]["input"])
    found = re.match(r"'(.*)' is not", message) or re.match(r"(\S+) is not", message)
    return found[1] if found else message
