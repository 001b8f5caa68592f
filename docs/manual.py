"""Writes docs/commands.md from the commands' helps: ``python -m docs.manual > docs/commands.md``.

It reads what was given to Typer, not the commands that Typer makes of it: those differ from version to version.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import EnumType
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from netsum.cli.app import app

TITLE = """# Commands

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
    assert command.function is not None
    signature = inspect.signature(command.function, eval_str=True)
    if signature.parameters:
        yield "| | default | |\n|---|---|---|"
        yield from (_row(each) for each in signature.parameters.values())
        yield ""
    block = _EXAMPLES.sub(lambda found: f"```sh\n{inspect.cleandoc(found[1])}\n```\n", command.epilog)
    yield f"{block}\n"


def _row(parameter: inspect.Parameter) -> str:
    assert get_origin(parameter.annotation) is Annotated, f"{parameter.name} has no help"
    kind, declared = get_args(parameter.annotation)[:2]
    if get_origin(kind) in (UnionType, Union, list):
        kind = next(each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
    default = parameter.default
    if isinstance(declared, typer.models.ArgumentInfo):
        names = f"`{(declared.metavar or parameter.name.upper()).strip('[]')}`"
    else:
        option = parameter.name.replace("_", "-")
        # Typer takes the first name that is given in an annotation for a default, and sorts that out later.
        written = [
            name for name in (declared.default, *(declared.param_decls or ())) if isinstance(name, str)
        ]
        written = written or ([f"--{option}", f"--no-{option}"] if kind is bool else [f"--{option}"])
        names = ", ".join(f"`{name}`" for name in written)
        names += "" if kind is bool else f" {_value(kind, declared)}"
    if default is inspect.Parameter.empty:
        shown = "required"
    elif kind is bool:
        shown = "on" if default else ""
    else:
        shown = "" if default in (None, "", ()) else f"`{getattr(default, 'value', default)}`"
    said = declared.help or ""
    if declared.envvar:
        said += f" Environment: `{declared.envvar}`."
    return f"| {_cell(names)} | {shown} | {_cell(said)} |"


def _value(kind: Any, declared: Any) -> str:
    if isinstance(kind, EnumType):
        return "|".join(str(choice.value) for choice in kind)  # type: ignore[var-annotated]
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    name = declared.metavar or {"int": "N", "float": "X", "Path": "PATH", "str": "TEXT"}[kind.__name__]
    if declared.min is not None and declared.max is not None:
        return f"{name}, {declared.min:g} to {declared.max:g}"
    return name if declared.min is None else f"{name}, at least {declared.min:g}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    print(manual(), end="")
