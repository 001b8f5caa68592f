"""Small systems in full; and that the reductions change nothing of the states that are reached."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.entries import JOB_PARENT, Entry
from controller.jobs import Job
from controller.switch_tables import SwitchTables
from controller.table_writer import Change
from host_agent.protocol.recovery import PTO_PROBES
from netsum.programs import compiled_program
from sim.explore.configurations import ALL, CONFIGURATIONS
from sim.explore.engine.world import WRONG_RESULT
from sim.explore.scenario import BlockPass, ExplorerScenario, ScenarioError
from sim.explore.search import Search, SearchResult
from sim.explore.system import System
from tests.sim.explore.core_fields import unlisted_fields

PROGRAM: Path = compiled_program(64).json


def search(scenario: ExplorerScenario, **options: object) -> SearchResult:
    return Search(System(scenario, PROGRAM), **options).run()  # type: ignore[arg-type]


def test_every_field_of_the_core_is_accounted_for() -> None:
    assert unlisted_fields() == set()


ONE, TWO = (BlockPass(),), (BlockPass(), BlockPass())
QUORUM = (BlockPass("quorum"), BlockPass("contributors"))


@pytest.mark.parametrize(
    "scenario",
    [
        ExplorerScenario("two rounds", rounds=TWO),
        ExplorerScenario("exponents", rounds=(BlockPass("int32"),)),
        ExplorerScenario("header-only", rounds=(BlockPass("broadcast"), BlockPass("barrier"))),
        ExplorerScenario("a dead worker", rounds=ONE, kills=1),
        ExplorerScenario("a deadline", rounds=TWO, deadlines=1),
        ExplorerScenario("values", rounds=(BlockPass("saturating"), BlockPass("min"), BlockPass("sparse"))),
        ExplorerScenario("two datagrams a call", workers=1, slots=2, rounds=TWO, rows=2),
        ExplorerScenario("a new epoch", rounds=ONE, epochs=2),
        ExplorerScenario("a lower epoch", rounds=ONE, epochs=2, falls=True),
        ExplorerScenario("a move", rounds=ONE, epochs=2, moves=True),
        ExplorerScenario("packets that cannot grow", rounds=(BlockPass("gather"),), grows=False),
        ExplorerScenario("chunk numbers wrap", rounds=TWO, first_chunk=(1 << 32) - 1),
        ExplorerScenario("unknown-sources", rounds=ONE, unknown_sources=True),
        ExplorerScenario(
            "unknown sources in a tree", rounds=ONE, unknown_sources=True, parents=(0, 0), leaves=(1, 2)
        ),
        ExplorerScenario("disagreement", rounds=(BlockPass(agreed=False),)),
        ExplorerScenario("a quorum", slots=2, rounds=QUORUM, quorum=1, batches=False),
        ExplorerScenario("a quorum of all", slots=2, rounds=QUORUM, quorum=2, batches=False),
    ],
    ids=lambda scenario: scenario.name,
)
def test_no_schedule_breaks_a_guarantee(scenario: ExplorerScenario) -> None:
    result = search(scenario, order="largest")
    assert (result.outcome, result.violation) == ("exhausted", 0)
    assert result.progress.states > 100


def test_workers_that_are_admitted_before_their_switch_has_its_parent_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install, write = SwitchTables.install, SwitchTables._write

    def parent_last(tables: SwitchTables, job: Job) -> None:
        parent: list[tuple[Change, Sequence[Entry], str]] = []

        def put_off(tables: SwitchTables, change: Change, changed: Sequence[Entry], what: str) -> None:
            if change is Change.INSERT and changed and changed[0].table == JOB_PARENT:
                parent.append((change, changed, what))
            else:
                write(tables, change, changed, what)

        monkeypatch.setattr(SwitchTables, "_write", put_off)
        install(tables, job)
        monkeypatch.setattr(SwitchTables, "_write", write)
        for put in parent:
            write(tables, *put)

    monkeypatch.setattr(SwitchTables, "install", parent_last)
    leaves = ExplorerScenario("leaves", rounds=ONE, epochs=2, batches=False, parents=(0, 0), leaves=(1, 2))
    assert search(leaves, order="largest").violation == WRONG_RESULT


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"rounds": (BlockPass("quorum"),), "slots": 2, "quorum": 1},
            "the sum over its contributors behind each quorum chunk",
        ),
        ({"rounds": QUORUM, "slots": 2}, "a quorum where there are quorum chunks"),
        ({"rounds": ONE, "slots": 2, "quorum": 1}, "a quorum where there are quorum chunks"),
        ({"rounds": QUORUM, "slots": 2, "quorum": 3}, "a quorum of 1 to 2, not 3"),
        ({"rounds": QUORUM, "quorum": 1}, "2 slots at least"),
        ({"rounds": QUORUM, "slots": 2, "quorum": 1, "kills": 1}, "whose workers live"),
        ({"rounds": ONE, "moves": True}, "2 epochs where a job moves"),
    ],
)
def test_what_is_no_scenario_of_a_quorum(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(ScenarioError, match=expected):
        ExplorerScenario("wrong", **given)


def test_every_configuration_has_a_name_of_its_own() -> None:
    assert [each.name for each in ALL] == list(CONFIGURATIONS)


def test_no_configuration_has_slots_for_which_what_a_state_leaves_out_would_decide() -> None:
    """With more slots `unanswered` decides how many chunks are probed: it would belong to the state."""
    assert max(each.slots for each in CONFIGURATIONS.values()) <= PTO_PROBES


def test_what_is_left_out_reaches_nothing_else() -> None:
    scenario = ExplorerScenario("one round", rounds=ONE)
    whole = search(scenario, order="breadth", reduce=False)
    assert whole.outcome == "exhausted"
    for order in ("breadth", "largest"):
        for collect in (False, True):
            less = search(scenario, order=order, collect=collect)
            assert less.outcome == "exhausted"
            assert less.progress.ends == whole.progress.ends
            assert less.progress.states < whole.progress.states / 10


@pytest.mark.parametrize(
    "scenario",
    [
        ExplorerScenario("two rounds", rounds=TWO),
        ExplorerScenario("two slots", rounds=ONE, slots=2, batches=False),
        ExplorerScenario("a dead worker", rounds=ONE, kills=1),
        ExplorerScenario("a new epoch", rounds=ONE, epochs=2),
        ExplorerScenario("a lower epoch", rounds=ONE, epochs=2, falls=True),
        ExplorerScenario("a move", rounds=ONE, epochs=2, moves=True),
        ExplorerScenario("packets that cannot grow", rounds=(BlockPass("gather"),), grows=False),
        ExplorerScenario("exponents", rounds=(BlockPass("int32"),)),
    ],
    ids=lambda scenario: scenario.name,
)
def test_finished_packets_reach_nothing_else(scenario: ExplorerScenario) -> None:
    with_them = search(scenario, order="largest", collect=False)
    without = search(scenario, order="largest")
    assert with_them.outcome == without.outcome == "exhausted"
    assert with_them.progress.ends == without.progress.ends


def test_packets_that_never_cease_reach_what_copies_do() -> None:
    forever = search(ExplorerScenario("for ever", workers=1, rounds=TWO, batches=False), order="largest")
    copies = search(ExplorerScenario("copies", workers=1, rounds=TWO, batches=False, copies=1), order="depth")
    assert copies.outcome == forever.outcome == "exhausted"
    assert copies.progress.ends == forever.progress.ends
