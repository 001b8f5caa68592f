"""The compiled program's step is that of docs/protocol.md, for every packet, slot and entry."""

import json
from pathlib import Path

import pytest

pytest.importorskip("z3", reason="needs an SMT solver: pip install z3-solver")

from sim.switch.loader import load_program
from tests.proof import program_copies, program_faults
from tests.proof.induction import ask
from tests.proof.program_lemmas import BUILD, Ingress, Lemma, cases, lanes_unlike_the_first, lemmas, load

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


def test_every_lane_has_the_formula_of_the_first(ingress: Ingress) -> None:
    assert lanes_unlike_the_first(ingress) == []


def test_a_lane_that_is_not_as_the_first_is_noticed(tmp_path: Path) -> None:
    document = json.loads((BUILD / "netsum_v1model_64.json").read_text())
    adds = next(a for a in document["actions"] if "slot.lanes.lane_7" in json.dumps(a["primitives"]))
    text = json.dumps(adds["primitives"])
    adds["primitives"] = json.loads(text.replace('"lanes", "lane_7"', '"lanes", "lane_6"'))
    assert json.dumps(adds["primitives"]) != text
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(document))
    assert lanes_unlike_the_first(Ingress.of(load_program(changed))) == [7]


def test_copies_of_an_answer_are_cut_and_addressed_in_egress() -> None:
    assert _not_shown([*program_copies.lemmas(PROGRAM)]) == []


@pytest.mark.parametrize("number", [63, 74, -1])
def test_a_branch_that_is_exchanged_is_noticed(number: int) -> None:
    name, faulty = [*program_faults.branches(PROGRAM)][number]
    found = program_faults.verdict(name, faulty, PROGRAM)
    assert found.answer == "noticed"
    assert found.example
