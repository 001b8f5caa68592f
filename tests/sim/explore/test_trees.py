"""Trees of switches: small ones in full, the reductions of the search, and the names of switches in schedules."""

import struct
from pathlib import Path

import pytest

from host_agent.errors import NetsumError
from netsum.command_errors import CommandError
from netsum.programs import compiled_program
from sim.explore.engine import step_codes as codes
from sim.explore.engine.world import DOWN, STUCK, TO_WORKER, UP, WRONG_RESULT
from sim.explore.scenario import BlockPass, ExplorerScenario, ScenarioError
from sim.explore.schedules import pcap, read_schedule, text, write_schedule
from sim.explore.search import Search, SearchResult
from sim.explore.shape import ScenarioShape
from sim.explore.shrink import violates
from sim.explore.story import Walk, events_of, recorded_steps, sentence
from sim.explore.system import System
from tests.sim.explore.faults.catalogue import FAULTS
from tests.sim.explore.faults.run import faulty_system, look_for
from tests.sim.explore.on_bmv2 import require_bmv2

PROGRAM: Path = compiled_program(64).json
ONE = (BlockPass(),)
TWO_LEAVES = ExplorerScenario("two leaves", rounds=ONE, parents=(0, 0), leaves=(1, 2), batches=False)
ROOT_AND_LEAF = ExplorerScenario("root and leaf", rounds=ONE, parents=(0,), leaves=(0, 1), batches=False)


def search(scenario: ExplorerScenario, **options: object) -> SearchResult:
    return Search(System(scenario, PROGRAM), **options).run()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "scenario",
    [
        TWO_LEAVES,
        ROOT_AND_LEAF,
        ExplorerScenario(
            "exponents", rounds=(BlockPass("float32"),), parents=(0, 0), leaves=(1, 2), batches=False
        ),
        ExplorerScenario(
            "disagreement", rounds=(BlockPass(agreed=False),), parents=(0,), leaves=(0, 1), batches=False
        ),
    ],
    ids=lambda scenario: scenario.name,
)
def test_no_schedule_breaks_a_guarantee(scenario: ExplorerScenario) -> None:
    result = search(scenario, order="largest")
    assert (result.outcome, result.violation) == ("exhausted", 0)
    assert result.progress.states > 100


def test_what_is_left_out_reaches_nothing_else() -> None:
    """All states of this tree are millions; without what leaves out the most they are thousands."""
    plain = search(ROOT_AND_LEAF, order="breadth", collect=False)
    assert plain.outcome == "exhausted"
    for order, collect in (("breadth", True), ("largest", False), ("largest", True)):
        less = search(ROOT_AND_LEAF, order=order, collect=collect)
        assert less.outcome == "exhausted"
        assert less.progress.ends == plain.progress.ends
        assert less.progress.states < plain.progress.states


def test_a_switch_restarts_and_the_job_moves_to_a_new_epoch() -> None:
    scenario = ExplorerScenario(
        "restart", rounds=ONE, epochs=2, switch_restarts=1, parents=(0,), leaves=(0, 1), batches=False
    )
    result = search(scenario, order="largest")
    assert result.outcome == "exhausted"
    # Without the comparison of epochs, a slot of the old one would be taken for the new one's.
    faulty = faulty_system(FAULTS["epoch-not-compared"], scenario, PROGRAM)
    assert Search(faulty, order="largest").run().outcome == "violated"


def test_sums_go_up_and_results_come_down() -> None:
    """Without losses, each packet goes the way that the tree says."""
    walk = Walk(System(TWO_LEAVES, PROGRAM))
    shape = TWO_LEAVES.shape
    ways = []
    steps = [codes.step_code(codes.BEGIN, host, 0) for host in range(2)]
    for code in steps:
        walk.make(walk.step_of(code))
    made = set()
    while True:
        packets = [walk.packet(entry) for entry in walk.entries()]
        fresh = [packet for packet in packets if packet not in made]
        if not fresh:
            break
        made.add(fresh[0])
        place = packets.index(fresh[0])
        event = walk.make(walk.step_of(codes.step_code(codes.DELIVER, place, 0)))
        assert event is not None
        assert event.result >= 0
        ends = [shape.name(end) for end in shape.ends(fresh[0].way, fresh[0].host)]
        ways.append((*ends, fresh[0].text().split(" ")[0]))
    assert sorted(ways) == sorted(
        [
            ("worker 0", "switch 1", "CONTRIBUTE"),
            ("switch 1", "root", "CONTRIBUTE"),
            ("worker 1", "switch 2", "CONTRIBUTE"),
            ("switch 2", "root", "CONTRIBUTE"),
            ("root", "switch 1", "RESULT"),
            ("root", "switch 2", "RESULT"),
            ("switch 1", "worker 0", "RESULT"),
            ("switch 2", "worker 1", "RESULT"),
        ]
    )


@pytest.mark.parametrize(
    ("name", "violation"),
    [("final-too-early", WRONG_RESULT), ("result-not-kept", WRONG_RESULT), ("sent-once", STUCK)],
)
def test_a_fault_of_trees_is_found_and_its_schedule_names_the_switches(
    name: str, violation: int, tmp_path: Path
) -> None:
    found = look_for(FAULTS[name], PROGRAM)
    assert (found.result.violation, found.shortest) == (violation, True)
    events = list(found.events)
    path = tmp_path / "schedule.json"
    write_schedule(path, found.scenario, name, violation, events)
    scenario, fault, expected, made = read_schedule(path)
    assert scenario == found.scenario
    shape = faulty_system(None, scenario, PROGRAM).shape
    assert {("root", "switch 1"), ("root", "switch 2"), ("switch 1", "worker 0")} <= set(shape.links())
    for step, event in zip(recorded_steps(events, shape), events, strict=True):
        names = {step["from"], step.get("to", step["from"])} | {
            name for pair in step["sent"] for name in pair
        }
        assert names <= {name for pair in shape.links() for name in pair}
        assert step["text"] == sentence(event, shape)
    faulty = faulty_system(FAULTS[fault], scenario, PROGRAM)
    assert [event.result for event in events_of(faulty, made)] == [event.result for event in events]
    assert expected == violation
    assert violates(faulty, made, violation)
    assert not violates(faulty_system(None, scenario, PROGRAM), made, violation)
    assert "→ switch 1: CONTRIBUTE" in text(events, scenario.shape, "title", "ending")
    late = pcap(events * (1000 // len(events) + 2), scenario.shape)  # A step takes a millisecond.
    at, times = 24, []
    while at < len(late):
        seconds, ns, kept, _ = struct.unpack_from("=IIII", late, at)
        times.append((seconds, ns))
        at += 16 + kept
    assert times[-1] >= (1, 0)
    assert times == sorted(times)
    assert all(ns < 10**9 for _, ns in times)
    with pytest.raises(CommandError, match="tree"):
        require_bmv2(scenario)


def test_who_is_at_the_other_end() -> None:
    shape = ScenarioShape((2, 2, 1), (0, 0))
    assert (shape.hosts, shape.switches) == (3, 3)
    assert shape.below(0) == [0, 1, 2]
    assert shape.below(2) == [0, 1]
    assert shape.children(0) == [4, 5]
    assert [shape.goes_to(UP, port) for port in (0, 2, 4, 5)] == [2, 1, 0, 0]
    assert [shape.goes_to(DOWN, port) for port in (0, 2, 4, 5)] == [TO_WORKER, TO_WORKER, 1, 2]
    assert shape.ends(UP, 5) == (5, 3)
    assert shape.ends(DOWN, 2) == (4, 2)
    assert ScenarioShape((0, 0)).name(2) == "switch"


@pytest.mark.parametrize(
    ("parents", "leaves", "why"),
    [
        ((0,), (0,), "a switch for each worker"),
        ((0, 0), (0, 1), "workers below every switch"),
        ((1,), (1, 1), "a parent of switch 1"),
        ((0, 1, 0), (2, 3), "ascending"),
        ((0,), (1, 1), "two children of the root"),
    ],
)
def test_a_tree_that_cannot_be(parents: tuple[int, ...], leaves: tuple[int, ...], why: str) -> None:
    with pytest.raises(ScenarioError, match=why) as raised:
        System(ExplorerScenario("wrong", parents=parents, leaves=leaves), PROGRAM)
    assert isinstance(raised.value, NetsumError)
