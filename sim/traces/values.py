"""Lines and numbers of traces: each within a limit, or one sentence."""

from collections.abc import Iterator
from reprlib import repr as shown
from typing import Final, TextIO

from sim.traces.graph import TraceError

MOST_NS: Final = 10**15  # Longer than any run (`sim.experiments.settings.MAX_RUN_S`).
MOST_BYTES: Final = 1 << 48
_MOST: Final = (1 << 63) - 1
_LONGEST_LINE: Final = 1 << 16  # Characters; those of a real trace have some 100.
_DIGITS: Final = 20  # No number up to `_MOST` has more digits.


def whole_number(found: object, what: str, least: int = 0, most: int = _MOST) -> int:
    """Return a whole number that a text, a float or an int states.

    Raises TraceError: it is none, or not within the limits; `what` names it.
    """
    number = found
    if isinstance(found, str):
        number = int(found) if found.removeprefix("-").isdecimal() and len(found) <= _DIGITS else None
    elif isinstance(found, float):
        number = int(found) if found.is_integer() else None
    if not isinstance(number, int) or not least <= number <= most:
        raise TraceError(f"{what}: expected a whole number from {least:,} to {most:,}, found {shown(found)}")
    return number


def lines_of(file: TextIO) -> Iterator[str]:
    """Iterate over the lines of a text, none of which is read further than a line may be long; raises TraceError."""
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise TraceError(f"expected lines of fewer than {_LONGEST_LINE:,} characters, found a longer one")
        yield line
