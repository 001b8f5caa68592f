"""Output of netsum: JSON for scripts, tables and lines for people.

All text for people goes through here. Text from outside (names of jobs, reasons, paths) is printed as it is: never read as
rich's markup, never replaced by an emoji, and its control characters are shown, not sent to the terminal.
"""

import contextlib
import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table

UNLIMITED_WIDTH: Final = 10_000  # Columns of an output that is not a terminal, unless COLUMNS limits it.
NARROWEST_TEXT: Final = 24
"""Columns below which a column of sentences is not folded; the rows are stacked instead."""


def print_json(document: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(document, indent=2), flush=True)


def print_json_line(document: Any) -> None:
    """Print one JSON document on one line."""
    print(json.dumps(document), flush=True)


def print_result(as_json: bool, work: Callable[[], Any]) -> Any:
    """Return the result of `work`, which prints it for people.

    With `as_json` the result is printed as one JSON document instead, and the text for people goes to standard error.
    """
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        result = work()
    if as_json:
        print_json(result)
    return result


def visible(text: str) -> str:
    """Return text with every character that does not print, such as an escape, written as Python escapes it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def console(*, stderr: bool = False) -> "Console":
    """Return a console that reads no markup, and is as wide as the terminal or COLUMNS; without either, unlimited."""
    from rich.console import Console

    made = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = UNLIMITED_WIDTH
    return made


def wrapped(text: str, screen: "Console", indent: str = "") -> str:
    """Return a line as a terminal shows it: broken between words, the parts after the first indented; elsewhere as it is."""
    shown = visible(text)
    if not screen.is_terminal or len(shown) <= screen.width:
        return shown
    options = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
    return textwrap.fill(shown, screen.width, subsequent_indent=indent, **options)  # type: ignore[arg-type]  # all booleans


def echo(text: str, style: str = "") -> None:
    """Print a line."""
    screen = console()
    indent = " " * (len(text) - len(text.lstrip(" ")))
    screen.print(wrapped(text, screen, indent), style=style or None, soft_wrap=True)
    sys.stdout.flush()


def echo_error(message: str) -> None:
    """Print `netsum: MESSAGE` on standard error; a message may have several lines, such as notes."""
    screen = console(stderr=True)
    lines = [wrapped(line, screen) for line in f"netsum: {message}".split("\n")]
    screen.print("\n".join(lines), soft_wrap=True)


def echo_progress(text: str, *, again: bool = False) -> None:
    """Print a line of progress on standard error; with `again` to a terminal alone, in place of the last one.

    An empty one that is printed again removes the last one.
    """
    if again and not sys.stderr.isatty():
        return
    if again:  # One that is folded would not be replaced.
        text = f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K"
    print(text, end="" if again else "\n", file=sys.stderr, flush=True)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair a line; those without a value are left out."""
    shown = [(name, str(value)) for name, value in facts if value not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        echo(f"{name + ':':{width + 1}} {value}")


def count_text(number: float) -> str:
    """Write a count or a rate for people: 12,345 or 1.23 M."""
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:,.0f}"


def digits_text(number: float) -> str:
    """Write a number of at least 0 with four significant digits, or as a whole number: 0.0123, 12.34, 12,345."""
    decimals = 3 - math.floor(math.log10(number)) if number > 0 else 0
    return f"{number:,.{min(max(decimals, 0), 6)}f}"


class ProgressRows:
    """Rows under headings, in a table that never cuts a cell; a renderable of rich.

    Where the table does not fit the width, columns marked as optional are left out, the last first. If it still does not fit,
    every row becomes a few lines of `heading value`, with all of its cells.

    `headings`: of the columns, each with marks before it: ``>`` a column of numbers, ``?`` an optional one, ``~`` sentences,
    which may be folded over several lines. A line feed makes a heading of two lines. `key`: how many of the first columns
    name a row.
    """

    def __init__(self, *headings: str, key: int = 1) -> None:
        self._marks = [heading[: len(heading) - len(heading.lstrip(">?~"))] for heading in headings]
        self._headings = [heading.lstrip(">?~") for heading in headings]
        self._key = key
        self._rows: list[list[str]] = []

    def add(self, *cells: str) -> None:
        """Add a row; a cell for each heading."""
        assert len(cells) == len(self._headings), "a cell for each heading"
        self._rows.append([visible(cell) for cell in cells])

    def print(self) -> None:
        """Print the rows on standard output."""
        console().print(self)
        sys.stdout.flush()

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """Render for the width there is."""
        shown = list(range(len(self._headings)))
        while self._width(shown) > options.max_width and (
            optional := [each for each in shown if "?" in self._marks[each]]
        ):
            shown.remove(optional[-1])
        if self._width(shown) <= options.max_width:
            yield self._table(shown)
        else:
            yield from self._stacked(options.max_width)

    def _column_width(self, column: int) -> int:
        from rich.cells import cell_len

        cells = [*self._headings[column].split("\n"), *(row[column] for row in self._rows)]
        width = max(map(cell_len, cells))
        return min(width, NARROWEST_TEXT) if "~" in self._marks[column] else width

    def _width(self, shown: Sequence[int]) -> int:
        return sum(map(self._column_width, shown)) + 2 * (len(shown) - 1)

    def _table(self, shown: Sequence[int]) -> "Table":
        from rich.table import Table
        from rich.text import Text

        made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in shown:
            folds = "~" in self._marks[column]
            made.add_column(
                Text(self._headings[column]),
                justify="right" if ">" in self._marks[column] else "left",
                no_wrap=not folds,
                overflow="fold",
                min_width=self._column_width(column),
                vertical="top",
            )
        for row in self._rows:
            made.add_row(*(Text(row[column]) for column in shown))
        return made

    def _stacked(self, width: int) -> "Iterable[RenderableType]":
        from rich.text import Text

        for row in self._rows:
            yield Text("  ".join(cell for cell in row[: self._key] if cell), style="bold", overflow="fold")
            line = " "
            for heading, cell in list(zip(self._headings, row, strict=True))[self._key :]:
                if not cell:
                    continue
                pair = f" {_one_line(heading)} {cell} "
                if len(line) > 1 and len(line) + len(pair) > width:
                    yield Text(line.rstrip(), overflow="fold")
                    line = " "
                line += pair
            if line.strip():
                yield Text(line.rstrip(), overflow="fold")


def print_table(
    as_json: bool,
    entries: Iterable[Any],
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    key: int = 1,
) -> None:
    """Print a list as JSON, or its rows for people; `headings` and `key` as `ProgressRows` takes them.

    Only one of `entries` and `rows` is read.
    """
    if as_json:
        print_json(list(entries))
        return
    table = ProgressRows(*headings, key=key)
    for row in rows:
        table.add(*row)
    table.print()


def _one_line(heading: str) -> str:
    return heading.replace("-\n", "").replace("\n", " ")
