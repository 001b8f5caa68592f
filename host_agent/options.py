"""Options of compressors, memories and strategies: their types and ranges are the annotations of ``__init__``.

``Annotated[float, "(0, 1]"]`` is a number above 0 and at most 1. A class that derives from `Configured` checks its options before
``__init__`` runs, so that no step begins with a value that has no meaning.
"""

import inspect
import math
from collections.abc import Iterable, Mapping
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

from host_agent.errors import MisuseError

Count = Annotated[int, "[1, ∞)"]
Natural = Annotated[int, "[0, ∞)"]
Fraction = Annotated[float, "(0, 1]"]
_NOUNS = {
    int: "an integer",
    float: "a number",
    bool: "True or False",
    str: "a name",
    NoneType: "None",
    Any: "an object",
}


class Configured:
    """Something made with options."""

    options: dict[str, Any]  # All options, defaults included.
    KIND: ClassVar[str]  # Kind of object in error messages, before its name.
    name: ClassVar[str]

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Check the options, and keep them."""
        made = super().__new__(cls)
        parameters = parameters_of(cls)
        bound = inspect.signature(cls.__init__).bind_partial(made, *arguments, **options)
        given = {**bound.arguments, **bound.arguments.get(_passed_on(cls.__init__), {})}
        made.options = {
            name: given.get(name, each.default)
            for name, each in parameters.items()
            if name in given or each.default is not inspect.Parameter.empty
        }
        for name, value in made.options.items():
            expected = parameters[name].annotation
            require(
                _fits(value, expected),
                f"{cls._label()}: {name} must be {described(expected)}, got {value!r}",
            )
        return made

    @classmethod
    def _label(cls) -> str:
        """Name it in errors."""
        return f"{cls.KIND} {cls.name}" if hasattr(cls, "name") else cls.KIND


def parameters_of(kind: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of ``__init__`` by name; where it takes ``**common``, those of its bases follow."""
    return _parameters_of(kind)


@cache
def _parameters_of(kind: Any) -> Mapping[str, inspect.Parameter]:
    found: dict[str, inspect.Parameter] = {}
    for base in kind.__mro__:
        function = base.__dict__.get("__init__")
        if function is None or base is object:
            continue
        try:
            own = inspect.signature(function, eval_str=True).parameters
        except NameError:  # Annotations for type checkers alone.
            own = inspect.signature(function).parameters
        for name, each in own.items():
            if name != "self" and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
                found.setdefault(name, each)
        if not _passed_on(function):
            break
    return found


def _passed_on(function: Any) -> str:
    """Return the name of a function's parameter with two asterisks; empty if it has none."""
    parameters = inspect.signature(function).parameters.values()
    return next((each.name for each in parameters if each.kind is each.VAR_KEYWORD), "")


def require(condition: bool, message: str) -> None:
    """Raise `MisuseError` with a message unless a condition holds."""
    if not condition:
        raise MisuseError(message)


def require_known(label: str, known: Iterable[object], given: Iterable[str]) -> None:
    """Raise `MisuseError` for an option that does not exist; the message lists those that do."""
    listed = ", ".join(map(str, known))
    names = [each.partition("=")[0] for each in listed.split(", ")]
    for option in given:
        require(option in names, f"{label} has no option {option!r}: expected {listed or 'none'}")


def _fits(value: object, expected: Any) -> bool:
    origin = get_origin(expected)
    if origin is Annotated:
        kind, interval = get_args(expected)
        return _fits(value, kind) and _is_within(value, interval)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(expected))
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in get_args(expected))
    if expected in (int, float):
        number = Integral if expected is int else Real
        return isinstance(value, number) and not isinstance(value, bool) and not math.isnan(value)
    return expected is Any or not isinstance(expected, type) or isinstance(value, expected)


def _is_within(value: Any, interval: str) -> bool:
    least, most = (math.inf if each == "∞" else float(each) for each in interval[1:-1].split(", "))
    above = value > least if interval[0] == "(" else value >= least
    return bool(above and (value < most if interval[-1] == ")" else value <= most))


def described(expected: Any) -> str:
    """Return what values an annotation stands for, in words."""
    origin = get_origin(expected)
    if origin is Annotated:
        kind, interval = get_args(expected)
        least, most = interval[1:-1].split(", ")
        if most == "∞":
            return f"{_NOUNS[kind]} {'of at least' if interval[0] == '[' else 'above'} {least}"
        return f"{_NOUNS[kind]} in {interval}"
    if origin in (Union, UnionType):
        return " or ".join(described(each) for each in get_args(expected))
    if origin is Literal:
        return " or ".join(map(repr, get_args(expected)))
    return _NOUNS.get(expected) or f"a {expected.__name__}"
