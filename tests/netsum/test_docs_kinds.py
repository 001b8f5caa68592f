"""Kinds of pages: guides, concepts and reference, generated ones; each names its kind and is no longer than that allows."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.name != "index.md")
KIND = re.compile(r"^# [^\n]+\n\n\*(Guide|Concept|Reference|Generated)\.\*\s")
GENERATED = re.compile(r"<!-- ([\w -]+): begin -->.*?<!-- \1: end -->", re.DOTALL)
WORDS = {"Guide": 900, "Concept": 4_000, "Reference": 4_000}
LONGER = {"protocol.md": 7_000}
WITHOUT_LINE = {"README.md": 900, "ARCHITECTURE.md": 4_000, "CONTRIBUTING.md": 900, "docs/index.md": 900}


def words_by_hand(text: str) -> int:
    """Count the words of a page outside the regions that a program writes."""
    return len(GENERATED.sub("", text).split())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_a_page_names_its_kind_and_is_no_longer_than_that(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    kind = KIND.match(text)
    assert kind, "a page begins with its title and *Guide.*, *Concept.*, *Reference.* or *Generated.*"
    assert (path.parent.name == "guides") <= (kind[1] == "Guide")
    if kind[1] != "Generated":
        assert words_by_hand(text) <= LONGER.get(path.name, WORDS[kind[1]]), "split or shorten it"


@pytest.mark.parametrize("name", WITHOUT_LINE)
def test_a_page_that_hosts_show_by_itself_is_short(name: str) -> None:
    assert words_by_hand((ROOT / name).read_text(encoding="utf-8")) <= WITHOUT_LINE[name]


def test_all_pages_together_can_be_read_in_a_few_hours() -> None:
    pages = [*PAGES, *(ROOT / name for name in WITHOUT_LINE)]
    texts = [path.read_text(encoding="utf-8") for path in pages]
    assert sum(words_by_hand(text) for text in texts if not text.count("*Generated.*")) <= 70_000


def test_every_page_is_in_one_table_of_contents_of_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = [
        line
        for block in re.findall(r"```{toctree}\n(.*?)```", index, re.DOTALL)
        for line in block.splitlines()
        if line and not line.startswith((":", "../"))
    ]
    assert sorted(listed) == sorted(str(path.relative_to(DOCS).with_suffix("")) for path in PAGES)
