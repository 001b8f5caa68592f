"""What commands print: one JSON document for scripts, tables for people."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_json(document: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(document, indent=2), flush=True)


def console() -> "Console":
    """Return where tables go; lines are not cut when the output is no terminal."""
    from rich.console import Console

    return Console(soft_wrap=True, highlight=False)


def table(*headings: str) -> "Table":
    """Return an empty table; a heading that begins with ">" is a column of numbers."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        number = heading.startswith(">")
        made.add_column(heading.lstrip(">"), justify="right" if number else "left", no_wrap=True)
    return made


def print_table(made: "Table") -> None:
    """Print a table."""
    # Not as wide as the terminal says if nobody looks: a script that reads it would miss what does not fit.
    screen = console()
    if not screen.is_terminal:
        screen.width = 1000
    screen.print(made)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair a line; those without a value are left out."""
    shown = [(name, str(value)) for name, value in facts if value not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    screen = console()
    for name, value in shown:
        screen.print(f"{name + ':':{width + 1}} {value}", markup=False)


def count_text(number: float) -> str:
    """Write a count or a rate as people read it: 12,345 or 1.23 M."""
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:,.0f}"
