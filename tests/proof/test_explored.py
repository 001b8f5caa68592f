"""The proof's sentences in every state of the explorer's configurations, and the faults that they notice there."""

import pytest

pytest.importorskip("z3", reason="needs an SMT solver: pip install z3-solver")

from netsum.programs import compiled_program
from sim.explore.configurations import CONFIGURATIONS
from sim.explore.scenario import ExplorerScenario, passes_of
from sim.explore.search import Search
from sim.explore.system import System
from tests.proof.catalogue import OUTSIDE
from tests.proof.explored_check import sentences_missing
from tests.sim.explore.faults.catalogue import FAULTS
from tests.sim.explore.faults.run import faulty_system

PROGRAM = compiled_program(64).json
SMALL = [
    *(
        CONFIGURATIONS[name]
        for name in ("smallest", "wrap", "disagreement", "header-only-results", "quorum", "tree-two-leaves")
    ),
    ExplorerScenario("two epochs", rounds=passes_of("sum"), epochs=2, switch_restarts=1, kills=1),
    ExplorerScenario(
        "two epochs of a tree", rounds=passes_of("sum"), epochs=2, parents=(0, 0), leaves=(1, 2)
    ),
    ExplorerScenario("two slots", slots=2, rounds=passes_of("sum"), batches=False),
    ExplorerScenario("two jobs", rounds=passes_of("sum"), jobs=2, batches=False),
]


def test_only_faults_of_the_catalogue_are_outside_the_lemmas() -> None:
    assert OUTSIDE.keys() - FAULTS.keys() == set()


@pytest.mark.parametrize("scenario", SMALL, ids=lambda scenario: scenario.name)
def test_every_state_of_the_explorer_has_the_invariant(scenario: ExplorerScenario) -> None:
    search = Search(System(scenario, PROGRAM), order="largest")
    assert search.run().outcome == "exhausted"
    assert sentences_missing(search) == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("seen-skipped", "the lanes hold the contributions that `seen` names"),
        ("one-version", "no chunk in flight is stale"),
        ("asker-named", "a RESULT is in its slot, or the slot has moved on"),
        ("final-too-early", "a final slot has the root's lanes"),
    ],
)
def test_a_state_of_a_faulty_program_does_not(name: str, sentence: str) -> None:
    fault = FAULTS[name]
    system = faulty_system(fault, fault.scenarios[0], PROGRAM)
    search = Search(system, order="breadth", liveness=False, collect=False, memory_bytes=1 << 27)
    search.run(until_s=5)
    missing = {each.sentence: each for each in sentences_missing(search)}
    assert sentence in missing
    assert missing[sentence].way
