"""Writes the measured tables of the pages from ``docs/data``: ``python -m docs.tables``.

A file there is one measurement: what it measures, its command, machine, date and repeats, and the values. A page has
a table where it has the lines ``<!-- data FILE TABLE: begin -->`` and ``<!-- data FILE TABLE: end -->``; what stands
between them is written by this program. ``tests/netsum/test_docs_numbers.py`` compares pages and files.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
DATA = DOCS / "data"
ROOT = DOCS.parent
REGION = re.compile(
    r"^<!-- data (\S+) (\S+): begin -->\n(.*?)^<!-- data \1 \2: end -->$", re.MULTILINE | re.DOTALL
)
QUOTED = re.compile(r"^<!-- data quoted: ([^>]*?) -->$", re.MULTILINE)

Cell = float | str | list[float] | None


@dataclass(frozen=True)
class Table:
    """A table of a measurement, or the lines that its command printed.

    Attributes
    ----------
    columns
        For each column its title, the decimals of its numbers, and what follows each of them ("%").
    rows
        Cells: a number, a median with the least and the largest value, or text.
    output
        Printed lines, in place of columns and rows.
    """

    columns: list[dict[str, Any]] = field(default_factory=list)
    rows: list[list[Cell]] = field(default_factory=list)
    output: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """Return the table or the lines as a page has them."""
        if self.output:
            language = "console" if self.output[0].startswith("$ ") else ""
            return "\n".join([f"```{language}", *self.output, "```"])
        lines = [[column["title"] for column in self.columns]]
        lines += [
            [shown(cell, column) for cell, column in zip(row, self.columns, strict=True)] for row in self.rows
        ]
        head, *body = ["| " + " | ".join(line) + " |" for line in lines]
        return "\n".join([head, "|---" * len(self.columns) + "|", *body])


@dataclass(frozen=True)
class Measurement:
    """A file of ``docs/data``.

    Attributes
    ----------
    measures
        The quantity and its conditions, in one sentence.
    command, machine, date
        How to repeat it, where and when it ran; the machine is "virtual time" where times do not depend on one.
    repeats
        Runs of each value; of several, values are medians unless ``measures`` says otherwise.
    quotes
        Values that pages quote and no table has, by name.
    sources
        Digests of the programs that printed the lines, by table.
    """

    name: str
    measures: str
    command: str
    machine: str
    date: str
    repeats: int
    tables: dict[str, Table]
    quotes: dict[str, str]
    sources: dict[str, str] = field(default_factory=dict)

    def caption(self) -> str:
        """Return command, machine, date and repeats, as they stand below a table."""
        runs = f"; {self.repeats} runs" if self.repeats > 1 else ""
        return f"(`{self.command}`; {self.machine}, {self.date}{runs})"


def shown(cell: Cell, column: dict[str, Any]) -> str:
    """Return a cell as text: thousands are separated, and three numbers are ``median (least … most)``."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, list):
        median, *spread = (shown(each, {**column, "suffix": ""}) for each in cell)
        return f"{median} ({' … '.join(spread)}){column.get('suffix', '')}"
    return f"{cell:,.{column.get('decimals', 0)}f}{column.get('suffix', '')}"


def load(name: str) -> Measurement:
    """Read a measurement.

    Raises
    ------
    TypeError
        If the file lacks a key, or has an unknown one.
    """
    given = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    tables = {key: Table(**table) for key, table in given.pop("tables", {}).items()}
    return Measurement(name=name, tables=tables, quotes=given.pop("quotes", {}), **given)


def written(page: str) -> str:
    """Return a page with its tables as the files have them; the first of a file's tables has its caption."""
    captioned: set[str] = set()

    def region(found: re.Match[str]) -> str:
        measurement = load(found[1])
        text = measurement.tables[found[2]].markdown()
        if found[1] not in captioned:
            captioned.add(found[1])
            text += f"\n\n{measurement.caption()}"
        return f"<!-- data {found[1]} {found[2]}: begin -->\n{text}\n<!-- data {found[1]} {found[2]}: end -->"

    return REGION.sub(region, page)


def pages() -> list[Path]:
    """Return the pages of the repository and of the site."""
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


if __name__ == "__main__":
    for each in pages():
        before = each.read_text(encoding="utf-8")
        if (after := written(before)) != before:
            each.write_text(after, encoding="utf-8")
            print(each.relative_to(ROOT))
