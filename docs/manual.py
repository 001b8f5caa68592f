"""Writes docs/commands.md from the commands' helps, and the manual pages: ``python -m docs.manual > docs/commands.md``.

It reads what was given to Typer, not the commands that Typer makes of it: those differ from version to version.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import typer

from netsum.cli.app import app
from netsum.cli.parameters import metavar_of, options_of_command
from netsum_common.options import REQUIRED, Option

TITLE = """# Commands

*Generated.*
Every command of `netsum` with its options, as `--help` shows them; [cli.md](cli.md) is the introduction. This page is written
by `python -m docs.manual > docs/commands.md`: change the helps, not the page.
"""

_EXAMPLES = re.compile(r"((?:^    .*\n)+)", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """A command or a group of commands.

    Attributes
    ----------
    path
        Its full name, such as "netsum job list".
    function
        What runs; None for a group.
    text
        Its help.
    epilog
        The end of its help.
    below
        The commands of a group.
    """

    path: str
    function: Callable[..., Any] | None
    text: str
    epilog: str
    below: "tuple[Command, ...]" = ()

    @property
    def help(self) -> str:
        """The command's help, a paragraph a line."""
        paragraphs = (" ".join(each.split()) for each in self.text.split("\n\n"))
        return "\n\n".join(each for each in paragraphs if each)

    @property
    def summary(self) -> str:
        """The first paragraph of its help."""
        return self.help.partition("\n\n")[0]

    def all(self) -> "Iterator[Command]":
        """Iterate over it and all below it."""
        yield self
        for command in self.below:
            yield from command.all()


def command_tree(group: typer.Typer = app, path: str = "netsum") -> Command:
    """Return a group with all below it."""
    below = [
        Command(f"{path} {each.name}", each.callback, inspect.getdoc(each.callback) or "", each.epilog or "")
        for each in group.registered_commands
        if each.callback is not None
    ]
    below += [
        command_tree(each.typer_instance, f"{path} {each.name}")
        for each in group.registered_groups
        if each.typer_instance is not None
    ]
    own = group.registered_callback
    text = inspect.getdoc(own.callback) if own is not None and own.callback is not None else group.info.help
    return Command(path, None, str(text), "", tuple(below))


def manual() -> str:
    """Return the whole page."""
    return "\n".join([TITLE, *("\n".join(_section(command)) for command in command_tree().all())])


def _section(command: Command) -> Iterator[str]:
    yield f"## {command.path}\n"
    yield f"{command.help}\n"
    if command.below:
        yield "| command | |\n|---|---|"
        for below in command.below:
            yield f"| [`{below.path}`](#{below.path.replace(' ', '-')}) | {_cell(below.summary)} |"
        yield ""
        return
    if options := options_of_command(command.function):
        yield "| | default | |\n|---|---|---|"
        yield from map(_row, options.values())
        yield ""
    block = _EXAMPLES.sub(lambda found: f"```sh\n{inspect.cleandoc(found[1])}\n```\n", command.epilog)
    yield f"{block}\n"


def _row(one: Option) -> str:
    metavar, declared = metavar_of(one), one.declared
    if declared.positional:
        names = f"`{metavar}`"
    else:
        names = ", ".join(f"`{name}`" for name in names_of(one))
        names += f" {metavar}{_range(one)}" if metavar else ""
    if one.default is REQUIRED:
        shown = "required"
    elif one.kind is bool:
        shown = "on" if one.default else ""
    else:
        shown = "" if one.default in (None, "", ()) else f"`{one.default}`"
    said = " ".join(declared.help.split())
    if declared.env:
        said += f" Environment: `{declared.env}`."
    return f"| {_cell(names)} | {shown} | {_cell(said)} |"


def names_of(one: Option) -> tuple[str, ...]:
    """Return an option's names on the command line."""
    both = one.kind is bool and not one.declared.names
    return one.declared.names or ((one.flag, f"--no-{one.flag[2:]}") if both else (one.flag,))


def _range(one: Option) -> str:
    least, most = one.declared.within
    if least is not None and most is not None:
        return f", {least:g} to {most:g}"
    return "" if least is None else f", at least {least:g}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    from docs import man_pages

    print(manual(), end="")
    man_pages.write()
