"""Small systems in full; and that what the search leaves out changes nothing of what it reaches."""

from pathlib import Path

import pytest

from netsum.programs import compiled_program
from sim.explore.configurations import CONFIGURATIONS
from sim.explore.engine.packing import unlisted_fields
from sim.explore.scenario import Round, Scenario
from sim.explore.search import Result, Search
from sim.explore.system import System

PROGRAM: Path = compiled_program(64).json


def search(scenario: Scenario, **options: object) -> Result:
    return Search(System(scenario, PROGRAM), **options).run()  # type: ignore[arg-type]


def test_every_field_of_the_core_is_accounted_for() -> None:
    assert unlisted_fields() == set()


ONE, TWO = (Round(),), (Round(), Round())


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario("two rounds", rounds=TWO),
        Scenario("exponents", rounds=(Round("int32"),)),
        Scenario("header-only", rounds=(Round("broadcast"), Round("barrier"))),
        Scenario("a dead worker", rounds=ONE, kills=1),
        Scenario("a new epoch", rounds=ONE, epochs=2),
        Scenario("chunk numbers wrap", rounds=TWO, first_chunk=(1 << 32) - 1),
        Scenario("strangers", rounds=ONE, strangers=True),
        Scenario("disagreement", rounds=(Round(agreed=False),)),
    ],
    ids=lambda scenario: scenario.name,
)
def test_no_schedule_breaks_a_guarantee(scenario: Scenario) -> None:
    result = search(scenario, order="largest")
    assert (result.outcome, result.violation) == ("exhausted", 0)
    assert result.progress.states > 100


def test_what_is_left_out_reaches_nothing_else() -> None:
    scenario = Scenario("one round", rounds=ONE)
    whole = search(scenario, order="breadth", reduce=False)
    for order in ("breadth", "largest"):
        less = search(scenario, order=order)
        assert less.progress.ends == whole.progress.ends
        assert less.progress.states < whole.progress.states


def test_packets_that_never_cease_reach_what_copies_do() -> None:
    forever = search(Scenario("for ever", workers=1, rounds=TWO, batches=False), order="largest")
    copies = search(Scenario("copies", workers=1, rounds=TWO, batches=False, copies=1), order="depth")
    assert copies.outcome == forever.outcome == "exhausted"
    assert copies.progress.ends == forever.progress.ends


def test_memory_has_a_limit() -> None:
    result = search(CONFIGURATIONS["two-slots"], order="breadth", reduce=False, memory_bytes=1 << 27)
    assert result.outcome == "memory"
    assert result.progress.memory <= 1 << 27
