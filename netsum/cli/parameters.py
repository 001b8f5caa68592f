"""Commands and their parameters as netsum declares them: the help, and the check of numbers, whichever version of Typer there is.

A parameter of a command's function is an option (`netsum_common.options`) or a dataclass, each of whose fields is one. Typer gets
a function with a parameter for each option. Typer's own classes of parameters differ between its versions, so helps and errors
are made from the declarations.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from netsum.command_errors import UsageError
from netsum_common.options import REQUIRED, Option, options_of

Function = TypeVar("Function", bound=Callable[..., Any])

_LARGEST = {int: (1 << 63) - 1, float: 10**15}  # The limit of options that declare none.


def expected_of(one: Option) -> str:
    """Return the values that an option takes, as words."""
    if get_origin(one.kind) is Literal:
        return one_of(get_args(one.kind))
    least, most = one.declared.within
    said = {int: "a whole number", float: "a number", bool: "yes or no"}.get(one.kind, "a text")
    if least is not None and most is not None:
        return f"{said} between {least:,} and {most:,}"
    return said if least is None else f"{said} of at least {least:,}"


def _check(one: Option, value: object) -> None:
    """Refuse a number that is not finite or too large, which some versions of Typer take; UsageError with a sentence."""
    for each in value if isinstance(value, list | tuple) else (value,):
        if isinstance(each, float) and not math.isfinite(each):
            raise UsageError(f"{one.label}: expected {expected_of(one)}, not {str(each)!r}")
        limit = _LARGEST.get(one.kind)
        if limit and one.declared.within[1] is None and isinstance(each, int | float) and abs(each) > limit:
            raise UsageError(f"{one.label}: expected a number of at most {limit:,}, not {each}")


def options_of_command(callback: Callable[..., Any] | None) -> dict[str, Option]:
    """Return the options of a command by their names; `callback`: the function that Typer calls."""
    return {each.name: each for each in getattr(callback, "options", ())}


def metavar_of(one: Option) -> str:
    """Return what helps call a value of an option; empty for a flag."""
    if one.declared.metavar or one.declared.positional:
        return one.declared.metavar or one.name.upper()
    if get_origin(one.kind) is Literal:
        return "|".join(map(str, get_args(one.kind)))
    return {bool: "", int: "N", float: "X", Path: "PATH"}.get(one.kind, "TEXT")


def _for_typer(one: Option) -> inspect.Parameter:
    """Return an option as a parameter of a function that Typer reads."""
    declared, kind = one.declared, one.kind
    if get_origin(kind) is Literal:  # Typer takes texts alone, and in lists members of enumerations.
        words: Any = tuple(map(str, get_args(kind)))
        kind = StrEnum(one.name, [(each, each) for each in words]) if one.repeated else Literal[words]
    elif kind not in (int, float, bool, Path):
        kind = str  # `Option.value_of` reads it.
    default = one.default
    if one.repeated:
        kind, default = list[kind] | None, default or None  # type: ignore[valid-type]
    elif default is None:
        kind = kind | None
    elif get_origin(kind) is Literal and default is not REQUIRED:
        default = str(default)
    how: dict[str, Any] = {
        "help": declared.help,
        "metavar": declared.metavar or None,
        "autocompletion": declared.complete,
    }
    if one.kind in (int, float):
        how |= {"min": declared.within[0], "max": declared.within[1]}
    if declared.env:
        how["envvar"] = declared.env
    if declared.panel:
        how["rich_help_panel"] = declared.panel
    if declared.shown or (declared.positional and not default):
        how["show_default"] = declared.shown or False
    made = typer.Argument(**how) if declared.positional else typer.Option(*declared.names, **how)
    return inspect.Parameter(
        one.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is REQUIRED else default,
        annotation=Annotated[kind, made],
    )


def callback_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for Typer that reads its parameters' values and calls a command's function."""
    groups: list[
        tuple[str, Any, list[Option]]
    ] = []  # A parameter's name, its dataclass if it is one, and its options.
    for each in inspect.signature(function, eval_str=True).parameters.values():
        kind: Any = each.annotation if is_dataclass(each.annotation) else None
        own = [Option.of(each.name, each.annotation, each.default)] if kind is None else options_of(kind)
        groups.append((each.name, kind, own))

    @functools.wraps(function)
    def command(**given: Any) -> None:
        arguments: dict[str, Any] = {}
        for name, kind, options in groups:
            read = {one.name: one.value_of(given[one.name]) for one in options}
            arguments[name] = read[name] if kind is None else kind(**read)
        function(**arguments)

    command.options = [one for _, _, own in groups for one in own]  # type: ignore[attr-defined]
    parameters = list(map(_for_typer, command.options))  # type: ignore[attr-defined]
    # Typer reads these two.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def one_of(words: Iterable[object]) -> str:
    """Write alternatives: "a, b or c"."""
    *others, last = map(str, words)
    return f"{', '.join(others)} or {last}" if others else last


class _Described:
    """A command whose help names values as netsum does."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the command, and those that Typer adds, as its helps show them."""
        declared = options_of_command(self.callback)  # type: ignore[attr-defined]
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in found:
            own = declared.get(each.name)
            each.metavar = "" if own is None else metavar_of(own)
            if each.param_type_name == "argument":
                each.display_type_rich = lambda ctx: None  # From 0.29 on: it would be `<str>`.
        return found


class Command(_Described, TyperCommand):
    """A command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; a fault there has the command's context, by which its error names the help."""
        try:
            return super().parse_args(ctx, args)
        except Exception as fault:
            if getattr(fault, "ctx", ctx) is None:
                fault.ctx = ctx  # type: ignore[attr-defined]
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the command's arguments for the line of usage: `NAME`, `[NAME]`, `COMMAND...`."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        return ["[OPTIONS]", *(each.metavar if each.required else f"[{each.metavar}]" for each in arguments)]

    def invoke(self, ctx: Any) -> Any:
        """Check the numbers among the arguments, then run the command."""
        for name, one in options_of_command(self.callback).items():
            _check(one, ctx.params.get(name))
        return super().invoke(ctx)


class DescribedGroup(_Described, TyperGroup):
    """A group of commands."""


class Commands(typer.Typer):
    """A group of commands, to which they are added by decorators."""

    def __init__(self, *, cls: type[TyperGroup] = DescribedGroup, **options: Any) -> None:
        super().__init__(cls=cls, no_args_is_help=True, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        """Add a command."""

        def add(function: Function) -> Function:
            super(Commands, self).command(name, cls=Command, **options)(callback_of(function))
            return function

        return add
