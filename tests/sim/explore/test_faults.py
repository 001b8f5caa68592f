"""The catalogue of faults: each can be put into what ships."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from netsum.programs import compiled_program
from sim.explore.faults.catalogue import FAULTS, Fault
from sim.explore.faults.program import changed_program

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
