"""Mutants: what is drawn is one change that a seed repeats, and a net that runs in a copy finds it."""

import ast
import random
from pathlib import Path

import pytest

from tests.mutants.drawing import draw_mutants, files_of
from tests.mutants.nets import PARTS, Net, run
from tests.mutants.python_changes import count_of_sites, draw_change

ROOT = Path(__file__).parents[2]
SOURCE = '''
"""A module."""
def f(a: int, b: "Literal[7]") -> int:
    """Return 5."""
    if a < b and not a:
        b.count += 1
        b.clear()
    if a is None:
        raise ValueError(f"{a + 1} is 2")
    return a + 3
class C:
    def g(self):
        self.x = True
'''


def test_each_kind_of_change_is_drawn_and_nothing_else_changes() -> None:
    drawn = {
        (change.before, change.after)
        for seed in range(300)
        if (change := draw_change(SOURCE, random.Random(seed)))
    }
    both, either = (ast.unparse(ast.parse(f"a < b {word} not a")) for word in ("and", "or"))
    assert drawn >= {
        ("a < b", "a <= b"),
        (both, either),
        (both, f"not ({both})"),
        ("a is None", "a is not None"),
        ("a + 3", "a - 3"),
        ("3", "0"),
        ("True", "False"),
        ("b.clear()", "pass"),
        ("b.count += 1", "after b.clear()"),
    }
    untouched = ("7", "5", "a + 1")  # An annotation, a text, and what is raised.
    assert not [before for before, _ in drawn if before in untouched]
    assert count_of_sites('"""A module."""\nX = 1\n') == 0


def test_a_change_is_one_change_of_a_module_that_still_parses() -> None:
    before = ast.unparse(ast.parse(SOURCE)).splitlines()
    for seed in range(50):
        change = draw_change(SOURCE, random.Random(seed))
        assert change is not None
        after = change.text.splitlines()
        assert sum(a != b for a, b in zip(before, after, strict=True)) in (1, 2)


def test_a_seed_draws_the_same_mutants_and_no_two_are_alike() -> None:
    mutants = draw_mutants(1, 12, ROOT)
    assert mutants == draw_mutants(1, 12, ROOT)
    assert len({each.words for each in mutants}) == 12
    assert [each.words for each in draw_mutants(2, 12, ROOT)] != [each.words for each in mutants]


def test_every_part_has_sources() -> None:
    assert all(files_of(part, ROOT) and part.nets for part in PARTS.values())
    assert sum(part.mutants for part in PARTS.values()) == 200


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("pass", ""),
        ("raise SystemExit('FAILED tests/test_it.py::test_it')", "tests/test_it.py::test_it"),
        ("import os; os.kill(os.getpid(), 9)", "exit status -9: "),
        ("import time; time.sleep(100)", "does not end within 1 s"),
    ],
)
def test_a_net_finds_by_its_exit_status(code: str, found: str, tmp_path: Path) -> None:
    assert run(Net("code", ("-c", code)), tmp_path, 1.0).found == found


def test_no_test_that_runs_the_mutant_is_no_finding_and_no_sign_of_tests_is_one(tmp_path: Path) -> None:
    of_changes = Net("code", ("-c", "import sys; sys.exit(5 if len(sys.argv) > 1 else 0)"), later=("later",))
    assert run(of_changes, tmp_path, 60.0, first=True).found == ""
    assert run(of_changes, tmp_path, 60.0).found == ""
    assert run(Net("code", ("-c", "import sys; sys.exit(5)")), tmp_path, 60.0).found == "exit status 5: "
