"""BMv2 answers every packet of a schedule as the embedded switch does (`tests.sim.explore.faults --replay FILE --bmv2`)."""

import subprocess
import sys
from pathlib import Path

import pytest

from netsum.programs import compiled_program
from sim.explore.engine import step_codes
from sim.explore.random_runs import SYSTEMS, RandomRuns
from sim.explore.schedules import write_schedule
from tests.cabled_bmv2 import missing_for_cabled_bmv2
from tests.sim.explore.faults.catalogue import FAULTS
from tests.sim.explore.faults.run import faulty_system, look_for
from tests.sim.explore.on_bmv2 import answers_of_bmv2

PROGRAM = compiled_program(64)
MISSING = missing_for_cabled_bmv2()
needs_bmv2 = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@needs_bmv2
@pytest.mark.parametrize("name", ["seen-skipped", "epoch-not-compared"])
def test_a_fault_in_the_program_is_one_on_bmv2_too(name: str, tmp_path: Path) -> None:
    found = look_for(FAULTS[name], PROGRAM.json, breadth_bytes=72 << 20)
    assert found.result.outcome == "violated"
    path = tmp_path / "schedule.json"
    write_schedule(path, found.scenario, name, found.result.violation, list(found.events))
    words = [sys.executable, "-m", "tests.sim.explore.faults", "--replay", str(path), "--bmv2"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 1, done.stderr  # a guarantee is violated, as the file says
    assert "each the same bytes as the embedded switch's" in done.stdout


@needs_bmv2
def test_a_random_run_with_a_restart_and_a_new_epoch() -> None:
    scenario = next(each for each in SYSTEMS if each.switch_restarts)
    for seed in range(1, 50):
        runs = RandomRuns(scenario, PROGRAM.json, seed)
        once = iter((False, True))
        assert runs.run(lambda once=once: next(once)) == 0  # type: ignore[misc]
        made = runs.steps()
        if any(step.kind == step_codes.RESTART for step in made):
            break
    else:
        pytest.fail("no run had a restart")
    system = faulty_system(None, scenario, PROGRAM.json)
    answered = 0
    for each in answers_of_bmv2(system, PROGRAM, made):
        assert each.bmv2 == each.embedded, each.packet.text()
        answered += len(each.embedded)
        if answered > 120:
            break
    assert answered > 20
