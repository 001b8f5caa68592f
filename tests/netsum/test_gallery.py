"""The gallery of examples: every example with its text and what it printed, as its present code prints it."""

import json

import pytest

from docs.gallery import NAMES, PAGE, RECORD, command_of, page, source_of

RECORDED = json.loads(RECORD.read_text("utf-8"))


def test_the_page_is_the_one_that_the_docstrings_and_the_record_give() -> None:
    assert list(RECORDED["tables"]) == sorted(RECORDED["sources"]) == NAMES
    assert PAGE.read_text("utf-8") == page(), "run: python -m docs.gallery"


@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_lines_are_of_the_example_as_it_is(name: str) -> None:
    lines = RECORDED["tables"][name]["output"]
    assert RECORDED["sources"][name] == source_of(name)[1], f"run: python -m docs.gallery --run {name}"
    assert lines[0] == f"$ {command_of(name)}"
    assert len(lines) > 1
