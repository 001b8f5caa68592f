"""The compiled program's step is that of docs/protocol.md, for every packet, slot and entry."""

import pytest

pytest.importorskip("z3", reason="needs an SMT solver: pip install z3-solver")

from tests.proof.program_lemmas import Ingress, cases, copies, lemmas, load, of_lane


@pytest.fixture(scope="module")
def ingress() -> Ingress:
    return Ingress.of(load("netsum_v1model_64"))


def test_every_output_is_that_of_the_page(ingress: Ingress) -> None:
    assert [v for v in lemmas(ingress) if not v.holds] == []


def test_every_outcome_is_possible_under_the_hypotheses(ingress: Ingress) -> None:
    assert [v for v in cases(ingress) if not v.holds] == []


def test_the_last_lane_is_added_as_the_first_is(ingress: Ingress) -> None:
    assert [v for v in of_lane(ingress, 63) if not v.holds] == []


def test_copies_of_an_answer_are_cut_and_addressed_in_egress() -> None:
    assert [v for v in copies(load("netsum_v1model_64")) if not v.holds] == []
