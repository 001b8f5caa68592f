"""Reading JSON and TOML files that people write: errors name the place in the file."""

import contextlib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from netsum_common.errors import NetsumError, unknown_keys
from topologies.addresses import ipv4_int, mac_int

Value = TypeVar("Value")


class FieldError(NetsumError):
    """An error at one place of a file; the caller adds the file's name.

    `place`: a field, as in ``links[2].loss``, or a line and column; empty for the whole file. `expected`: the expected value
    and the value found. `in_text`: whether the place is a line and column.
    """

    def __init__(self, place: str, expected: str, in_text: bool = False) -> None:
        super().__init__(f"{place}: {expected}" if place else expected)
        self.in_text = in_text

    def in_file(self, path: Path) -> str:
        """Return the message with the file's name before it."""
        return f"{path}{',' if self.in_text else ':'} {self}"


class Fields:
    """A JSON object or TOML table and its place in the file.

    `place`: the place in the file, as in ``links[2]``; empty for the whole file. `form`: the expected form, for messages.
    `joint`: the separator between a place and a member's key. Raises FieldError if `found` is not a mapping; the methods raise
    it if a member is not of the expected kind.
    """

    def __init__(self, place: str, found: object, *, form: str = "an object, {…}", joint: str = ".") -> None:
        self.place = place
        self.key = place.rpartition(".")[2]
        self._form, self._joint = form, joint
        if not isinstance(found, dict):
            raise FieldError(place or "the file", f"expected {form}, found {shown(found)}")
        self._found: Mapping[str, Any] = found

    def only(self, *known: str, required: Sequence[str] = ()) -> None:
        """Refuse unknown members, and missing members that are required."""
        if sentence := unknown_keys(self._found, known):
            raise FieldError(self.place, sentence)
        for key in required:
            if key not in self._found:
                raise FieldError(self._at(key), "missing")

    def get(self, key: str, read: Callable[[object], Value], default: Value) -> Value:
        """Read a member by `read`, which raises ValueError with the expected value; return `default` if it is missing."""
        if key not in self._found:
            return default
        return read_field(self._at(key), self._found[key], read)

    def need(self, key: str, read: Callable[[object], Value]) -> Value:
        """Read a required member, as `get` does."""
        if key not in self._found:
            raise FieldError(self._at(key), "missing")
        return read_field(self._at(key), self._found[key], read)

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its members."""
        return tuple(self._found)

    def child(self, key: str) -> "Fields":
        """Return a member that is an object; an empty object if it is missing."""
        return Fields(self._at(key), self._found.get(key, {}))

    def members(self, key: str) -> Iterator["Fields"]:
        """Iterate over the objects in a member that is an object of objects."""
        if key in self._found:
            for name, one in Fields(self._at(key), self._found[key])._found.items():
                yield Fields(f"{self._at(key)}.{name}", one)

    def elements(self, key: str) -> Iterator[tuple[str, object]]:
        """Iterate over (place, element) of a member that is a list."""
        found = self._found.get(key, [])
        if not isinstance(found, list):
            raise FieldError(self._at(key), f"expected a list, […], found {shown(found)}")
        for at, one in enumerate(found):
            yield f"{self._at(key)}[{at}]", one

    def items(self, key: str) -> Iterator["Fields"]:
        """Iterate over the objects in a member that is a list of objects."""
        for place, one in self.elements(key):
            yield Fields(place, one)

    def _at(self, key: str) -> str:
        return f"{self.place}{self._joint}{key}" if self.place else key


def read_text(path: Path) -> str:
    """Read a file; raises OSError, or FieldError if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise FieldError(
            "the text", f"expected UTF-8, found byte 0x{byte:02x} at offset {error.start}"
        ) from None


def read_json(path: Path) -> Fields:
    """Read a file that holds one object.

    Raises OSError if the file cannot be read. Raises FieldError if it is not UTF-8, not JSON, or not an object.
    """
    try:
        with _readable():
            return Fields("", json.loads(read_text(path), object_pairs_hook=without_duplicates))
    except json.JSONDecodeError as error:
        raise FieldError(f"line {error.lineno}, column {error.colno}", error.msg, True) from None


def parse_toml(text: str) -> dict[str, Any]:
    """Read TOML.

    Raises tomllib.TOMLDecodeError if the text is not TOML, and FieldError if it has too many levels or a number too many digits.
    """
    with _readable():
        return tomllib.loads(text)


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Raise FieldError where Python's parsers of JSON and TOML reach their limits of nesting or of digits."""
    try:
        yield
    except RecursionError:
        raise FieldError("the text", "expected objects and lists that are nested less deeply") from None
    except (json.JSONDecodeError, tomllib.TOMLDecodeError):
        raise
    except ValueError:  # From `int`, without a place.
        raise FieldError("the text", "expected numbers of at most 4,300 digits") from None


def read_field(place: str, found: object, read: Callable[[object], Value]) -> Value:
    """Read a value by `read`; its ValueError, which has the expected value, becomes a FieldError."""
    try:
        return read(found)
    except ValueError as error:
        raise FieldError(place, f"expected {error}, found {shown(found)}") from None


def text_field(found: object) -> str:
    """Return a text; ValueError for any other value."""
    if not isinstance(found, str):
        raise ValueError("a text")
    return found


def flag_field(found: object) -> bool:
    """Return a truth value; ValueError for any other value."""
    if not isinstance(found, bool):
        raise ValueError("true or false")
    return found


def integer_field(found: object, least: int, most: int, expected: str) -> int:
    """Return an integer between two bounds; ValueError with the expected range for any other value."""
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise ValueError(expected)
    return found


def integers(least: int, most: int, expected: str) -> Callable[[object], int]:
    """Return the reader of integers between two bounds; `expected`: the range, for messages."""
    return lambda found: integer_field(found, least, most, expected)


def mac_field(found: object) -> str:
    """Return a MAC address in lower case; ValueError for any other value."""
    with contextlib.suppress(ValueError):
        mac_int(text := text_field(found))
        return text.lower()
    raise ValueError('a MAC address such as "02:00:0a:00:00:01"')


def ipv4_field(found: object) -> str:
    """Return an IPv4 address; ValueError for any other value."""
    with contextlib.suppress(ValueError):
        ipv4_int(text := text_field(found))
        return text
    raise ValueError('an IPv4 address such as "10.0.0.1"')


def without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse two members of one name; by default, Python's JSON parser ignores the first."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise FieldError(twice, "expected once, found twice in one object")
    return found


def shown(found: object) -> str:
    """Return a value as JSON for a message, cut to 60 characters."""
    text = json.dumps(found, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}…"
