"""The protocol on one switch: every lemma, every fault with its run, and names of what the actions stand for."""

import re
from pathlib import Path

import pytest

pytest.importorskip("z3", reason="needs an SMT solver: pip install z3-solver")

from tests.proof import quorum_chunks, tree_lemmas, trees
from tests.proof.faults import (
    FAULTS,
    Fault,
    first_that_fails,
    lemmas_that_fail,
    runs_and_reached,
    shortest_run,
)
from tests.proof.induction import possible, prove
from tests.proof.invariant import GUARANTEES
from tests.proof.one_switch import Action
from tests.proof.one_switch_actions import ACTIONS

ROOT = Path(__file__).parents[2]
SLOW = ("waits_behind", "parts_quorum_chunks")
"""Their runs take seconds: `python -m tests.proof other-faults`."""


@pytest.mark.parametrize("name", GUARANTEES)
def test_every_action_keeps_the_guarantee_for_any_number_of_workers(name: str) -> None:
    assert [v for v in prove(GUARANTEES[name]) if not v.holds] == []


@pytest.mark.parametrize("action", ACTIONS, ids=lambda a: a.name)
def test_the_action_is_possible(action: Action) -> None:
    assert possible(action).answer == "sat"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_fault_breaks_its_lemma_and_a_run_shows_it(fault: Fault) -> None:
    assert lemmas_that_fail(fault).holds
    assert shortest_run(fault).steps
    for name in fault.still:
        assert [v for v in prove(GUARANTEES[name], fault.rules) if not v.holds] == []


def test_small_runs_without_faults_have_all_invariants_and_take_every_action() -> None:
    taken, states = runs_and_reached()
    assert taken == {a.name for a in ACTIONS}
    assert states > 100


def test_a_result_stays_in_its_slot_behind_quorum_chunks_of_any_quorum() -> None:
    assert [v for v in quorum_chunks.lemmas() if not v.holds] == []


@pytest.mark.parametrize("rule", quorum_chunks.FAULTS)
def test_without_a_rule_of_quorum_chunks_a_lemma_fails_and_a_run_shows_it(rule: str) -> None:
    assert first_that_fails(rule, quorum_chunks.lemmas(few=quorum_chunks.FEW, **{rule: False})).holds
    assert rule in SLOW or quorum_chunks.run_without(rule).steps


def test_a_result_in_any_tree_has_one_contribution_of_every_worker() -> None:
    assert [v for v in tree_lemmas.lemmas() if not v.holds] == []


@pytest.mark.parametrize("rule", tree_lemmas.FAULTS)
def test_without_a_rule_of_trees_a_lemma_fails_and_a_run_shows_it(rule: str) -> None:
    assert first_that_fails(rule, tree_lemmas.lemmas(few=tree_lemmas.FEW, **{rule: False})).holds
    assert tree_lemmas.run_without(rule).steps


def test_small_trees_take_every_step() -> None:
    assert tree_lemmas.actions_taken() == {a.name for a in trees.ACTIONS}


@pytest.mark.parametrize("action", [*ACTIONS, *quorum_chunks.ACTIONS, *trees.ACTIONS], ids=lambda a: a.name)
def test_what_an_action_stands_for_exists(action: Action) -> None:
    headings = re.findall(r"^#+ (.*)$", (ROOT / "docs/protocol.md").read_text(), re.M)
    assert action.section in headings
    assert action.stands_for
    for place in action.stands_for:
        path, name = place.split(":")
        assert re.search(rf"\b(def|class|control|action|table) {name}\b", (ROOT / path).read_text()), place
