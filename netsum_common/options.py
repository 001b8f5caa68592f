"""Options of commands and processes, each declared once: as a field of a frozen dataclass, with its help, names and range.

`netsum.cli.parameters` makes commands of the declarations, `parse` the command line of a process. The module imports nothing
that makes ``netsum --help`` slow.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from types import NoneType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from netsum_common.errors import NetsumError

REQUIRED: Final = MISSING
"""Default of an option or argument that must be given."""
Options = TypeVar("Options")


class OptionError(NetsumError):
    """The text of an option cannot be read; the message names the option and the expected value."""


@dataclass(frozen=True)
class Declared:
    """Declaration of an option or an argument."""

    help: str
    names: tuple[
        str, ...
    ] = ()  # Empty: the field's name with dashes, of a flag that is on also with ``no-`` before it.
    within: tuple[float | None, float | None] = (None, None)  # Least and largest value.
    metavar: str = ""  # The values in helps, such as HOST:PORT; empty: by type.
    env: str = ""  # Environment variable that is read where the command line has no value.
    panel: str = ""  # Group of options in helps.
    shown: str = ""  # The default in helps; empty: the value.
    # Reads a value, or refuses it: a ValueError says what was expected, a NetsumError is a whole sentence.
    read: Callable[[Any], Any] | None = None
    complete: Callable[[str], list[str]] | None = (
        None  # Given the beginning of a value, completes it in a shell.
    )
    positional: bool = False


def option(
    help: str,
    default: Any = None,
    *names: str,
    within: tuple[float | None, float | None] = (None, None),
    **more: Any,
) -> Any:
    """Declare an option, as a field of a dataclass or as the default of a function's parameter.

    `more`: other fields of `Declared`.
    """
    return field(default=default, metadata={"declared": Declared(help, names, within, **more)})


def argument(help: str, default: Any = REQUIRED, **more: Any) -> Any:
    """Declare an argument that has its place on the command line instead of a name."""
    return field(default=default, metadata={"declared": Declared(help, positional=True, **more)})


@dataclass(frozen=True)
class Option:
    """An option or an argument of a command or a process."""

    name: str  # Name of the field or parameter.
    kind: Any  # Type of one value.
    default: Any  # `REQUIRED` if it must be given.
    declared: Declared
    repeated: bool  # Whether it can be given several times; its value is a tuple then.

    @classmethod
    def of(cls, name: str, annotation: Any, declaration: Any) -> "Option":
        """Read a declaration; its type is `kind`, `kind | None` or `tuple[kind, ...]`."""
        repeated = get_origin(annotation) is tuple
        if get_origin(annotation) is not Literal:
            kinds = [each for each in get_args(annotation) if each not in (NoneType, ...)]
            annotation = kinds[0] if kinds else annotation
        return cls(name, annotation, declaration.default, declaration.metadata["declared"], repeated)

    @property
    def flag(self) -> str:
        """The longest name on the command line."""
        return max(self.declared.names, key=len, default=f"--{self.name.replace('_', '-')}")

    @property
    def label(self) -> str:
        """The name in messages."""
        return (
            self.flag
            if not self.declared.positional
            else self.declared.metavar.rstrip(".") or self.name.upper()
        )

    def value_of(self, given: Any) -> Any:
        """Return the value of a text, or of a value that was read already; `OptionError` if it cannot be read."""
        if self.repeated:
            return tuple(map(self._read, given or ()))
        return given if given is None else self._read(given)

    def check_range(self, value: Any) -> None:
        """Raise OptionError if a number is outside the declared range, or none at all (NaN)."""
        least, most = self.declared.within
        if isinstance(value, int | float) and not (
            (least is None or least <= value) and (most is None or value <= most)
        ):
            if least is not None and most is not None:
                expected = f"between {least:,} and {most:,}"
            else:
                expected = f"of at least {least:,}" if most is None else f"of at most {most:,}"
            raise OptionError(f"{self.label}: expected a number {expected}, not {value}")

    def _read(self, given: Any) -> Any:
        if get_origin(self.kind) is Literal:
            given = next((each for each in get_args(self.kind) if str(each) == str(given)), given)
        if self.declared.read is None:
            return given
        try:
            return self.declared.read(given)
        except ValueError as expected:
            raise OptionError(f"{self.label}: {expected}") from None


def options_of(kind: type) -> list[Option]:
    """Return the options that a dataclass declares: its own, then those of its bases."""
    types = get_type_hints(kind)
    inherited = {
        each.name for base in kind.__bases__ for each in getattr(base, "__dataclass_fields__", {}).values()
    }
    ordered = sorted(fields(kind), key=lambda each: each.name in inherited)
    return [Option.of(each.name, types[each.name], each) for each in ordered if "declared" in each.metadata]


def parse(kind: type[Options], arguments: Sequence[str] | None, prog: str, description: str) -> Options:
    """Read the command line of a process; None reads that of this one.

    A wrong type ends the process with status 2, as argparse does. Raises OptionError if a value cannot be read, or is out of
    its range.
    """
    parser = argparse.ArgumentParser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    declared = options_of(kind)
    for each in declared:
        how: dict[str, Any] = {"default": each.default, "help": each.declared.help.replace("%", "%%")}
        if each.kind is bool:
            how["action"] = "store_true"
        else:
            how["metavar"] = each.declared.metavar or None
            if get_origin(each.kind) is Literal:
                how["choices"] = list(map(str, get_args(each.kind)))
            elif each.declared.read is None:
                how["type"] = each.kind
            if each.repeated:
                how["action"] = "append"
        if each.default is REQUIRED:
            how |= {"required": True, "default": None}
        elif each.repeated:
            how["default"] = None
        parser.add_argument(*(each.declared.names or (each.flag,)), dest=each.name, **how)
    chosen = vars(parser.parse_args(arguments))
    return kind(**{each.name: _taken(each, chosen[each.name]) for each in declared})


def _taken(one: Option, given: Any) -> Any:
    if given is one.default:
        return given
    value = one.value_of(given)
    for each in value if one.repeated else (value,):
        one.check_range(each)
    return value
