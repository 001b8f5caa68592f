"""Commands and their parameters as netsum declares them: the help, and the check of numbers, whichever version of Typer there is.

Typer's own classes of parameters differ between its versions, so all is read from the signature of the command's function.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import EnumType
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo

from netsum.command_errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])

_LARGEST = {int: (1 << 63) - 1, float: 10**15}  # The limit of options that declare none.


@dataclass(frozen=True)
class Parameter:
    """An option or an argument, as the signature of its command's function declares it."""

    names: tuple[str, ...]  # `--workers`, `-w`, or the name of an argument.
    help: str
    kind: Any  # The type of one value: int, float, bool, str, Path, an enumeration or a Literal.
    least: float | None
    most: float | None
    metavar: str  # The values in helps, such as N or HOST:PORT; empty for a flag.

    @classmethod
    def of(cls, declaration: inspect.Parameter) -> "Parameter":
        """Read a declaration, `name: Annotated[kind, typer.Option(…)]`."""
        kind, declared = get_args(declaration.annotation)[:2]
        # The type of a value stands inside `list[…]`, `… | None`, or both.
        while get_origin(kind) is not Literal and (
            kinds := [each for each in get_args(kind) if each is not NoneType]
        ):
            kind = kinds[0]
        text = " ".join((declared.help or "").split())
        if isinstance(declared, ArgumentInfo):
            metavar = (declared.metavar or declaration.name.upper()).translate(
                {ord("["): None, ord("]"): None}
            )
            return cls((metavar.rstrip("."),), text, kind, declared.min, declared.max, metavar)
        # Typer takes the first name that is given in an annotation for a default, and sorts that out later.
        names = [each for each in (declared.default, *(declared.param_decls or ())) if isinstance(each, str)]
        option = declaration.name.replace("_", "-")
        names = names or ([f"--{option}", f"--no-{option}"] if kind is bool else [f"--{option}"])
        metavar = declared.metavar or _value_name(kind)
        return cls(tuple(names), text, kind, declared.min, declared.max, metavar)

    @property
    def written(self) -> str:
        """The name of the parameter in messages."""
        return max(self.names, key=len)

    @property
    def expected(self) -> str:
        """The values that the parameter takes, as words."""
        if get_origin(self.kind) is Literal:
            return one_of(get_args(self.kind))
        if isinstance(self.kind, EnumType):
            return one_of([each.value for each in self.kind])  # type: ignore[var-annotated]
        said = {int: "a whole number", float: "a number", bool: "yes or no"}.get(self.kind, "a text")
        if self.least is not None and self.most is not None:
            return f"{said} between {self.least:,} and {self.most:,}"
        return said if self.least is None else f"{said} of at least {self.least:,}"

    def check(self, value: object) -> None:
        """Refuse a number that is not finite or too large, which some versions of Typer take; UsageError with a sentence."""
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, float) and not math.isfinite(each):
                raise UsageError(f"{self.written}: expected {self.expected}, not {str(each)!r}")
            if self.kind in _LARGEST and self.most is None and isinstance(each, int | float):
                limit = _LARGEST[self.kind]
                if abs(each) > limit:
                    raise UsageError(f"{self.written}: expected a number of at most {limit:,}, not {each}")


def parameters_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a command by the names of its function's arguments."""
    function = inspect.unwrap(function, stop=lambda each: hasattr(each, "__signature__"))
    declared = inspect.signature(function, eval_str=True).parameters
    return {name: Parameter.of(each) for name, each in declared.items()}


def one_of(words: Iterable[object]) -> str:
    """Write alternatives: "a, b or c"."""
    *others, last = map(str, words)
    return f"{', '.join(others)} or {last}" if others else last


def _value_name(kind: Any) -> str:
    """Return what helps call a value of a type."""
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if isinstance(kind, EnumType):
        return "|".join(str(each.value) for each in kind)  # type: ignore[var-annotated]
    return {"bool": "", "int": "N", "float": "X", "Path": "PATH", "str": "TEXT"}[kind.__name__]


class _Described:
    """A command whose help names values as netsum does."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the command, and those that Typer adds, as its helps show them."""
        declared = parameters_of(self.callback) if self.callback is not None else {}  # type: ignore[attr-defined]
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in found:
            own = declared.get(each.name)
            each.metavar = "" if own is None else own.metavar
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
        assert self.callback is not None
        for name, parameter in parameters_of(self.callback).items():
            parameter.check(ctx.params.get(name))
        return super().invoke(ctx)


class DescribedGroup(_Described, TyperGroup):
    """A group of commands."""


class Commands(typer.Typer):
    """A group of commands, to which they are added by decorators."""

    def __init__(self, *, cls: type[TyperGroup] = DescribedGroup, **options: Any) -> None:
        super().__init__(cls=cls, no_args_is_help=True, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        """Add a command."""
        return super().command(name, cls=Command, **options)
