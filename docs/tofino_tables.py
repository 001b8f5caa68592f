"""Writes the tables of docs/tofino-reference.md from what `make p4-tofino` compiled: ``python -m docs.tofino_tables [FOLDER]``.

They have the resources of the chip that each program takes, as the compiler reports them, and the tables in each stage.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "p4"))

from build import BuildError as BuildError
from tofino import OUT, STAMP, Variant, assembly, in_trees, one_pass, variants

PAGE = Path(__file__).with_name("tofino-reference.md")

# Section of a stage in resources.json, and which of its lists has an element for each use of a unit.
SECTIONS = {
    "stateful ALUs": ("meter_alus", "meters"),
    "SRAM": ("rams", "srams"),
    "map RAM": ("map_rams", "maprams"),
    "TCAM": ("tcams", "tcams"),
    "hash bits": ("hash_bits", "bits"),
    "logical tables": ("logical_tables", "ids"),
}
# Containers that tables and actions reach; the others (tagalong, dark) only carry things along.
CONTAINERS = ("normal", "mocha")
# p4lang/p4app-switchML as compiled by p4c 1.2.5, with three pragmas for containers: 64 elements, read half in a
# pass and half in a second one.
SWITCHML = "| tofino | SwitchML | 12 of 12 (100 %) | 38 of 48 (79 %) | 46 % | 63 % | 40 % | | | 83 % |"

STAGE = re.compile(r"stage (\d+) (ingress|egress):")
TABLE = re.compile(r"  (?:exact_match|ternary_match|hash_action) \S+ \d+:")
P4_NAME = re.compile(r"    p4: \{ name: ([^,} ]+)")


@dataclass(frozen=True)
class Usage:
    """How much of something is in use."""

    used: int
    available: int

    def __str__(self) -> str:
        share = f" ({100 * self.used // self.available} %)" if self.available else ""
        return f"{self.used} of {self.available}{share}"


@dataclass(frozen=True)
class Report:
    """Resources of one compiled program."""

    stages: Usage
    sections: dict[str, Usage]
    phv_bits: Usage


def available(part: dict[str, Any]) -> int:
    """Multiply the dimensions in a section: rows and columns, ALUs, bits and functions, or a size."""
    if "size" in part:
        return int(part["size"])
    product = 1
    for key, value in part.items():
        if re.fullmatch(r"n[A-Z]\w*", key):
            product *= int(value)
    return product


def stage_usage(stage: dict[str, Any], what: str) -> Usage:
    """Read how much of something one stage uses. A unit that two tables share is listed twice; its place says which it is."""
    name, units = SECTIONS[what]
    part = stage[name]
    places = {
        tuple(sorted((key, value) for key, value in unit.items() if isinstance(value, int) and key != "way"))
        for unit in part[units]
    }
    return Usage(len(places), available(part))


def read_json(folder: Path, name: str) -> Any:
    """Read one of the compiler's reports.

    Raises
    ------
    BuildError
        There is none.
    """
    found = sorted(folder.rglob(name))
    if not found:
        raise BuildError(f"p4c wrote no {name} into {folder}: was it called with -g?")
    return json.loads(found[0].read_text(encoding="utf-8"))


def report(folder: Path) -> Report:
    """Read the resources of a compiled program. The compiler reports nothing about stages that it does not use."""
    resources = read_json(folder, "resources.json")["resources"]
    stages, there_are = resources["mau"]["mau_stages"], resources["mau"]["nStages"]
    sections = {}
    for what in SECTIONS:
        each = [stage_usage(stage, what) for stage in stages]
        sections[what] = Usage(
            sum(one.used for one in each),
            there_are * max(one.available for one in each),
        )
    busy = [stage["stage_number"] for stage in stages if stage_usage(stage, "logical tables").used]
    containers = resources["phv_containers"]
    bits = sum(part["units"] * part["width"] for kind in CONTAINERS for part in containers.get(kind, ()))
    used = {
        one["phv_number"]: one["bit_width"]
        for one in read_json(folder, "phv.json")["containers"]
        if one["container_type"] in CONTAINERS
    }
    return Report(
        Usage(max(busy, default=-1) + 1, there_are),
        sections,
        Usage(sum(used.values()), bits),
    )


def rows(reports: Iterable[tuple[str, str, Report]]) -> Iterator[str]:
    """Write the table of the page from (chip, lanes, report)."""
    yield f"| chip | lanes | stages | {' | '.join(SECTIONS)} | PHV bits |"
    yield f"|---|---|---|{'---|' * len(SECTIONS)}---|"
    for chip, lanes, one in reports:
        cells = [chip, lanes, str(one.stages), *map(str, one.sections.values())]
        yield f"| {' | '.join(cells)} | {one.phv_bits} |"
    yield SWITCHML


def tables_of(text: str) -> dict[int, dict[str, list[str]]]:
    """Read from the assembly which tables stand in which stage, of ingress and of egress, by their names in P4."""
    stages: dict[int, dict[str, list[str]]] = {}
    inside: list[str] = []
    is_table = False
    for line in text.splitlines():
        if head := STAGE.match(line):
            inside = stages.setdefault(int(head[1]), {}).setdefault(head[2], [])
        elif line and not line[0].isspace():
            inside = []
        elif re.match(r"  \S", line):
            is_table = TABLE.match(line) is not None
        elif is_table and (name := P4_NAME.match(line)):
            inside.append(name[1])
            is_table = False
    return stages


def summarize(tables: Iterable[str]) -> str:
    """Name tables shortly: lanes by their numbers, statements outside of tables by their control and how many they are."""
    lanes, named, statements = [], [], []
    for table in tables:
        if lane := re.search(r"\.lane_(\d+)\.lane_step$", table):
            lanes.append(int(lane[1]))
        elif table.startswith("tbl_"):
            statements.append(re.split(r"\d|_", table.removeprefix("tbl_"))[0])
        else:
            named.append(table.rpartition(".")[2])
    parts = [f"**lanes {min(lanes)} to {max(lanes)}**"] if lanes else []
    parts += [f"`{name}`" for name in sorted(named)]
    for name, group in groupby(sorted(statements)):
        count = len(list(group))
        parts.append(name if count == 1 else f"{count} {name}")
    return ", ".join(parts)


def stage_rows(text: str) -> Iterator[str]:
    """Write the table of stages of one program."""
    yield "| stage | ingress | egress |"
    yield "|---|---|---|"
    for number, both in sorted(tables_of(text).items()):
        yield f"| {number} | {summarize(both.get('ingress', ()))} | {summarize(both.get('egress', ()))} |"


def write_table(page: str, name: str, content: str) -> str:
    """Put a generated part between its markers in a page.

    Raises
    ------
    BuildError
        The page has no such markers.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if begin not in page or end not in page:
        raise BuildError(f"there is no place for {name} between {begin} and {end} in {PAGE}")
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n{content}\n{end}{rest.partition(end)[2]}"


def size_of(variant: Variant) -> str:
    """Return how the page calls a program."""
    if variant.tree:
        return f"{variant.lanes} in a tree"
    return str(variant.lanes) if variant.passes == 1 else f"{variant.lanes} in {variant.passes} passes"


def write_page(out: Path) -> None:
    """Write the tables of resources and of stages into the page."""
    reports = [(variant.target, size_of(variant), report(out / variant.name)) for variant in variants()]
    version = json.loads(STAMP.read_text(encoding="utf-8"))["compiler"]
    page = write_table(
        PAGE.read_text(encoding="utf-8"),
        "resources",
        "\n".join([f"bf-p4c {version}, by `make p4-tofino`:", "", *rows(reports)]),
    )
    for variant in [*one_pass(), *in_trees()]:
        stages = "\n".join(stage_rows(assembly(out / variant.name)))
        page = write_table(page, f"stages of {variant.name}", stages)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    try:
        write_page(Path(*sys.argv[1:]) if sys.argv[1:] else OUT)
    except BuildError as error:
        sys.exit(f"error: {error}")
