"""The compiled program's step is that of docs/protocol.md, for every packet, slot and entry."""

import pytest

pytest.importorskip("z3", reason="needs an SMT solver: pip install z3-solver")

from tests.proof import program_copies, program_faults
from tests.proof.induction import ask
from tests.proof.program_lemmas import Ingress, Lemma, cases, lemmas, load, of_lane

PROGRAM = load("netsum_v1model_64")


@pytest.fixture(scope="module")
def ingress() -> Ingress:
    return Ingress.of(PROGRAM)


def _not_shown(asked: list[Lemma]) -> list[str]:
    verdicts = [ask(name, terms, logic="QF_UFBV") for name, terms in asked]
    return [v.lemma for v in verdicts if not v.holds]


def test_every_output_is_that_of_the_page(ingress: Ingress) -> None:
    assert _not_shown([*lemmas(ingress)]) == []


def test_every_outcome_is_possible_under_the_hypotheses(ingress: Ingress) -> None:
    assert [v for v in cases(ingress) if not v.holds] == []


def test_the_last_lane_is_added_as_the_first_is(ingress: Ingress) -> None:
    assert _not_shown([*of_lane(ingress, 63)]) == []


def test_copies_of_an_answer_are_cut_and_addressed_in_egress() -> None:
    assert _not_shown([*program_copies.lemmas(PROGRAM)]) == []


@pytest.mark.parametrize("branch", ["node_19", "node_208", "node_224 of egress"])
def test_a_branch_that_is_exchanged_is_noticed(branch: str) -> None:
    faulty = dict(program_faults.branches(PROGRAM))[f"branch {branch}"]
    assert program_faults.verdict(branch, faulty, PROGRAM).holds
