"""The catalogue of faults: each can be put in, and the explorer finds what SwitchML's verifiers found, and others."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from netsum.programs import compiled_program
from sim.explore.drawing import svg, text
from sim.explore.engine.world import STUCK, WRONG_RESULT
from sim.explore.faults.catalogue import FAULTS, Fault
from sim.explore.faults.program import changed_program
from sim.explore.faults.run import faulty_system, look_for
from sim.explore.schedules import pcap, read_schedule, write_schedule
from sim.explore.story import tell

PROGRAM = compiled_program(64).json


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 25


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_every_fault_changes_what_ships(fault: Fault, tmp_path: Path) -> None:
    if fault.program is not None:
        changed = changed_program(PROGRAM, fault.program, tmp_path / "changed.json")
        assert json.loads(changed.read_text()) != json.loads(PROGRAM.read_text())
        return
    source = Path(str(import_module(f"host_agent.protocol.{fault.module}").__file__)).read_text()
    for old, new in fault.changes:
        assert source.count(old) == 1
        assert old != new


@pytest.mark.parametrize(
    ("name", "violation"),
    [
        ("version-bit", WRONG_RESULT),
        ("seen-skipped", WRONG_RESULT),
        ("answered-too-early", WRONG_RESULT),
        ("never-answered", STUCK),
    ],
)
def test_a_fault_is_found_and_its_schedule_can_be_read_and_replayed(
    name: str, violation: int, tmp_path: Path
) -> None:
    found = look_for(FAULTS[name], PROGRAM)
    assert found.result.violation == violation
    events = list(found.events)
    path = tmp_path / "schedule.json"
    write_schedule(path, found.scenario, name, violation, events)
    scenario, fault, expected, made = read_schedule(path)
    again = tell(faulty_system(FAULTS[fault], scenario, PROGRAM), made)
    assert [event.result for event in again] == [event.result for event in events]
    assert expected == violation
    assert text(events, "title", "ending").count("\n") == len(events) + 4
    assert svg(events, scenario.hosts, "title", "ending").startswith("<svg ")
    assert len(pcap(events)) > 24
    shipped = tell(faulty_system(None, scenario, PROGRAM), made)
    assert all(event.result >= 0 for event in shipped)
