"""The world finds historical faults of the controller that are put back into copies of it."""

import shutil
from pathlib import Path

import pytest

from tests.controller.world.faults import FAULTS, SOURCE, Fault, look_for


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fits_the_sources(fault: Fault, tmp_path: Path) -> None:
    copy = tmp_path / "controller"
    for file, _, _ in fault.changes:
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE / file, copy / file)
    fault.put_back(copy)


def test_a_write_that_fails_and_changes_memory_is_found() -> None:
    (fault,) = [each for each in FAULTS if each.name.startswith("a-failed-write-changes-memory")]
    assert look_for(fault, seeds="0..199", minutes=4.0).fault
