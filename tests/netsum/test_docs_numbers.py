"""Measured numbers of the docs: each stands in a file of docs/data, and pages have it from there."""

import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from docs.tables import DATA, QUOTED, REGION, ROOT, Measurement, load, pages, shown, written

NAMES = sorted(path.stem for path in DATA.glob("*.json") if path.stem != "settings")
SETTINGS = json.loads((DATA / "settings.json").read_text(encoding="utf-8"))
HISTORY = {"CHANGELOG.md", "docs/commands.md"}  # Past versions; written from the helps of the commands.
UNITS = r"(?:ns|µs|ms|s|minutes|hours|(?:packets|elements|states|cells)(?:/s| a second)|GB/s|MB/s|MiB/s|times|\u00d7|%|percent)"
NUMBER = r"\d(?:[\d,]*\d)?(?:\.\d+)?(?:e-?\d+)?"
WITH_UNIT = re.compile(
    rf"(?<![\w.,/*-])((?:{NUMBER}(?:,| to| and|,? or| …| instead of)\s)*{NUMBER})\s?((?:million\s|thousand\s)?{UNITS})(?![\w/])"
)
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
BEGUN = re.compile(r"<!-- [\w -]+: begin -->.*?<!-- [\w -]+: end -->", re.DOTALL)
BARE = re.compile(rf"\| *(\d+\.\d+|\d{{1,3}}(?:,\d{{3}})+)(?: \({NUMBER} … {NUMBER}\))? *(?=\|)")


def by_hand(page: str) -> str:
    """Return what is written by hand on a page, without blocks of code."""
    return BLOCK.sub("", BEGUN.sub("", page))


def numbers_of(page: str) -> Iterator[tuple[str, str]]:
    """Iterate over the numbers with a unit on a page, each with its sentence's begin, and over bare ones in tables."""
    text = by_hand(page)
    for found in WITH_UNIT.finditer(text):
        place = " ".join(text[max(0, found.start() - 60) : found.end() + 20].split())
        for number in re.findall(NUMBER, found[1]):
            yield f"{number} {' '.join(found[2].split())}", place
    for found in BARE.finditer(text):
        yield found[1], text[max(0, found.start() - 60) : found.end()]


def files_of(page: str) -> list[Measurement]:
    """Return the measurements that a page has tables of, or says that it quotes."""
    names = {found[1] for found in REGION.finditer(page)}
    names |= {name for found in QUOTED.finditer(page) for name in found[1].split()}
    return [load(name) for name in sorted(names)]


def values_of(measurement: Measurement) -> Iterator[str]:
    """Iterate over all texts of a measurement that hold values."""
    yield from measurement.quotes.values()
    for table in measurement.tables.values():
        yield from table.output
        for row in table.rows:
            yield from (shown(cell, column) for cell, column in zip(row, table.columns, strict=True))


def strays(page: str, allowed: list[str]) -> list[tuple[str, str]]:
    """Return the numbers of a page that are in none of its files, as they are or rounded, and are no settings."""
    texts = [text for measurement in files_of(page) for text in values_of(measurement)]
    held = {value.replace(",", "") for text in texts for value in re.findall(NUMBER, text)}
    stray = []
    for number, place in numbers_of(page):
        value = re.match(NUMBER, number)
        assert value
        plain = value[0].replace(",", "")
        decimals = len(plain.partition(".")[2]) if "e" not in plain else 0
        digits = len(plain.replace(".", "").strip("0"))
        rounded = (
            {f"{float(each):.{decimals}f}" for each in held} if digits > 1 and "e" not in plain else set()
        )
        if number not in allowed and plain not in held | rounded:
            stray.append((number, place))
    return stray


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_measured_number_of_a_page_is_in_a_file(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    if name in HISTORY:
        return
    page = path.read_text(encoding="utf-8")
    allowed = [number for numbers in SETTINGS.get(name, {}).values() for number in numbers]
    assert not strays(page, allowed), (
        "not in docs/data; a number that nobody measured belongs in settings.json"
    )
    written_by_hand = {number for number, _ in numbers_of(page)}
    assert set(allowed) <= written_by_hand, "settings.json has numbers that the page has no more"


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_tables_of_a_page_are_those_of_the_files(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert page == written(page), "run: python -m docs.tables"


def test_every_file_says_how_to_repeat_it_and_is_on_a_page() -> None:
    used = {each.name for path in pages() for each in files_of(path.read_text(encoding="utf-8"))}
    assert used == set(NAMES)
    for measurement in map(load, NAMES):
        assert all((measurement.measures, measurement.command, measurement.machine)), measurement.name
        assert measurement.repeats > 0, measurement.name
        date.fromisoformat(measurement.date)


def test_no_two_files_are_of_the_same_run() -> None:
    runs = [(each.command, each.machine, each.date, each.measures) for each in map(load, NAMES)]
    assert len(set(runs)) == len(runs)


@pytest.mark.parametrize(
    ("page", "instead_of", "planted"),
    [
        ("docs/performance.md", "24.3 ns", "26.3 ns"),
        ("docs/allreduce.md", "96.3 %", "93.8 %"),
        ("README.md", "1.65 times", "1.56 times"),
        ("docs/results.md", "\n", "\nThe engine passes 6.25 million packets/s.\n"),
        ("docs/switch.md", "\n", "\n| lanes | packets/s |\n|---|---|\n| 64 | 6,250,000 |\n"),
    ],
)
def test_a_planted_contradiction_is_found(page: str, instead_of: str, planted: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    allowed = [number for numbers in SETTINGS.get(page, {}).values() for number in numbers]
    assert instead_of in by_hand(text)
    assert strays(text.replace(instead_of, planted, 1), allowed)


def test_a_changed_table_is_found() -> None:
    page = (ROOT / "docs" / "allreduce.md").read_text(encoding="utf-8")
    changed = page.replace("2.923 (2.912", "2.932 (2.912")
    assert changed != page
    assert written(changed) == page


def test_pages_count_the_compressors_of_the_registry() -> None:
    pytest.importorskip("torch")
    from host_agent.compression.registry import COMPRESSORS

    for page in ("README.md", "docs/compression.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert re.findall(r"(\d+) compressors", text) == [str(len(COMPRESSORS))], page
