"""Compile the P4 program for Tofino, and say from the compiler's reports what it takes of the chip.

``python p4/tofino.py`` compiles for each chip and number of lanes, writes p4/build's P4Info and the table of docs/tofino.md,
and leaves all else that the compiler wrote (binaries, context, BF-Runtime description, reports) in ``--out``. ``--check``
compares the P4Info's stamp with the sources (no compiler needed).
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build import BUILD, P4, BuildError, digest, lane_counts

TOP = P4 / "tna" / "netsum.p4"
STAMP = BUILD / "tofino_stamp.json"
PAGE = P4.parent / "docs" / "tofino.md"
COMPILER = "p4c"
ARCHITECTURES = {"tofino": "tna", "tofino2": "t2na"}
COMPILE_TIMEOUT_S = 3600
SRAM_BITS = 1024 * 128

# Section of a stage in resources.json, and which of its lists has an element for each use of a unit.
SECTIONS = {
    "stateful ALUs": ("meter_alus", "meters"),
    "SRAM": ("rams", "srams"),
    "map RAM": ("map_rams", "maprams"),
    "TCAM": ("tcams", "tcams"),
    "hash bits": ("hash_bits", "bits"),
    "logical tables": ("logical_tables", "ids"),
}
CONTAINERS = {"B": 8, "H": 16, "W": 32}
PHV_LINE = re.compile(r"\b(?<!T)([BHW])(\d+)\b")


@dataclass(frozen=True)
class Variant:
    """A chip and a number of lanes."""

    target: str
    lanes: int

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"netsum_{self.target}_{self.lanes}"


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
    """What one compiled program takes."""

    stages: Usage
    sections: dict[str, Usage]
    phv_bits: Usage


def variants() -> list[Variant]:
    """List what is compiled."""
    return [Variant(target, lanes) for target in ARCHITECTURES for lanes in lane_counts(target)]


def shipped() -> list[Variant]:
    """List what P4Info is committed for: the most lanes of each chip."""
    return [Variant(target, max(lane_counts(target))) for target in ARCHITECTURES]


def p4info_path(variant: Variant, folder: Path = BUILD) -> Path:
    """Name the committed P4Info of a program."""
    return folder / f"{variant.name}.p4info.txtpb"


def source_digest() -> str:
    """Hash what the programs depend on."""
    return digest([*(P4 / "shared").glob("*.p4"), *(P4 / "tna").glob("*.p4")])


def compiler_version() -> str:
    """Ask for the compiler's version, with the back end for Tofino.

    Raises
    ------
    BuildError
        There is no p4c, or one without that back end.
    """
    if shutil.which(COMPILER) is None or shutil.which("p4c-barefoot") is None:
        raise BuildError(
            "p4c with its Tofino back end (p4c-barefoot) is not on PATH: build p4c "
            "(https://github.com/p4lang/p4c) with -DENABLE_TOFINO=ON, see docs/tofino.md"
        )
    done = subprocess.run(
        ["p4c-barefoot", "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    found = re.search(r"^Version:? (\S+)", done.stdout + done.stderr, re.MULTILINE)
    if found is None:
        raise BuildError("p4c-barefoot does not say its version")
    return found[1]


def compile_into(variant: Variant, folder: Path) -> None:
    """Compile one program into a folder.

    Raises
    ------
    BuildError
        The compiler refuses it, or is one that compiles parsers wrongly.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        COMPILER, "--target", variant.target, "--arch", ARCHITECTURES[variant.target], "--std", "p4-16", "-g",
        "-D", f"LANES={variant.lanes}", "--p4runtime-files", str(p4info_path(variant, folder)),
        "-o", str(folder), str(TOP),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
    if done.returncode:
        raise BuildError(f"p4c does not accept {TOP} for {variant.name}:\n{done.stdout}{done.stderr}".strip())
    if not parser_matches(assembly(folder)):
        raise BuildError(
            f"p4c made a parser for {variant.name} that matches nothing: it is one with the fault of p4c's commit "
            "e3af57fc19; see docs/tofino.md"
        )


def assembly(folder: Path) -> str:
    """Read the assembly that the compiler wrote.

    Raises
    ------
    BuildError
        There is none.
    """
    found = sorted(folder.rglob("*.bfa"))
    if not found:
        raise BuildError(f"p4c wrote no assembly into {folder}")
    return found[0].read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """Return one top-level section of the assembly: its title's line and all that is indented below it."""
    lines = text.splitlines()
    inside = False
    kept = []
    for line in lines:
        if line and not line[0].isspace():
            inside = line.startswith(title)
        if inside:
            kept.append(line)
    return "\n".join(kept)


def parser_matches(text: str) -> int:
    """Count the states of the ingress parser that match anything."""
    return len(re.findall(r"^\s+match:", section(text, "parser ingress"), re.MULTILINE))


def phv_bits(text: str) -> int:
    """Count the bits of the containers that match and action units can use and the program does use."""
    places = section(text, "phv ingress") + section(text, "phv egress")
    return sum(CONTAINERS[kind] for kind, _ in set(PHV_LINE.findall(places)))


def available(part: dict[str, Any]) -> int:
    """Multiply what a section says there is: rows and columns, ALUs, bits and functions, or a size."""
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


def stages_of(folder: Path) -> list[dict[str, Any]]:
    """Read the stages from the compiler's resources.json.

    Raises
    ------
    BuildError
        There is none.
    """
    found = sorted(folder.rglob("resources.json"))
    if not found:
        raise BuildError(f"p4c wrote no resources.json into {folder}: was it called with -g?")
    stages: list[dict[str, Any]] = json.loads(found[0].read_text())["resources"]["mau"]["mau_stages"]
    return stages


def report(folder: Path) -> Report:
    """Read what a compiled program takes."""
    stages = stages_of(folder)
    sections = {}
    for what in SECTIONS:
        each = [stage_usage(stage, what) for stage in stages]
        sections[what] = Usage(sum(one.used for one in each), sum(one.available for one in each))
    busy = [stage["stage_number"] for stage in stages if stage_usage(stage, "logical tables").used]
    bits = 64 * 8 + 96 * 16 + 64 * 32
    return Report(
        Usage(max(busy, default=-1) + 1, len(stages)), sections, Usage(phv_bits(assembly(folder)), bits)
    )


def rows(reports: Iterable[tuple[Variant, Report]]) -> Iterator[str]:
    """Write the table of the page."""
    yield f"| chip | lanes | stages | {' | '.join(SECTIONS)} | PHV bits |"
    yield f"|---|---|---|{'---|' * len(SECTIONS)}---|"
    for variant, one in reports:
        cells = [variant.target, str(variant.lanes), str(one.stages), *map(str, one.sections.values())]
        yield f"| {' | '.join(cells)} | {one.phv_bits} |"


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


def build(out: Path) -> None:
    """Compile all programs, write their P4Info, its stamp, and the table."""
    version = compiler_version()
    reports = []
    for variant in variants():
        compile_into(variant, out / variant.name)
        reports.append((variant, report(out / variant.name)))
        print(f"{variant.name}: {reports[-1][1].stages} stages")
    for variant in shipped():
        shutil.copy(p4info_path(variant, out / variant.name), p4info_path(variant))
    stamp = {"compiler": version, "sources": source_digest(), "outputs": output_digest()}
    STAMP.write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
    made = f"p4c {version}, {time.strftime('%Y-%m-%d', time.gmtime())}, by `make p4-tofino`:"
    table = "\n".join([made, "", *rows(reports)])
    PAGE.write_text(write_table(PAGE.read_text(encoding="utf-8"), "resources", table), encoding="utf-8")


def output_digest() -> str:
    """Hash the committed P4Info."""
    return digest([p4info_path(variant) for variant in shipped()])


def check_stamp() -> None:
    """Compare the P4Info with the sources, without a compiler.

    Raises
    ------
    BuildError
        It is missing, was made from other sources, or was changed by hand.
    """
    if not STAMP.exists():
        raise BuildError(f"there is no {STAMP}: run `make p4-tofino`")
    stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    if stamp["sources"] != source_digest():
        raise BuildError(
            "Tofino's P4Info was made from other sources than those in p4/: run `make p4-tofino`"
        )
    if stamp["outputs"] != output_digest():
        raise BuildError("Tofino's P4Info is not what the compiler wrote: run `make p4-tofino`")


def main() -> int:
    """Compile, or check what was compiled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare the P4Info's stamp with the sources")
    parser.add_argument(
        "--out", type=Path, default=P4 / "build" / "tofino", help="folder for what p4c writes"
    )
    arguments = parser.parse_args()
    try:
        if arguments.check:
            check_stamp()
        else:
            build(arguments.out)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
