"""Every exercise of p4lang's tutorials whose solution compiles, on the embedded switch and on BMv2.

Run it with NETSUM_TUTORIALS=CHECKOUT; the summary lists the exercises by name.
"""

import importlib.util
import subprocess
from pathlib import Path

import pytest

from netsum_common.targets import PROCESS_TARGETS
from tests.tutorials import checks, controllers
from tests.tutorials.bed import brought_up
from tests.tutorials.exercises import EXERCISES, Exercise, checkout, missing, prepare
from topologies.mininet_testbed import missing_for_mininet

lacking = missing() or missing_for_mininet()
pytestmark = [
    pytest.mark.root,
    pytest.mark.p4c,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(lacking is not None, reason=str(lacking)),
]


def test_every_exercise_is_listed() -> None:
    """An exercise that the checkout has and the table lacks would pass unseen."""
    whole = checkout()
    assert whole is not None
    found = {path.parent.parent.name for path in (whole / "exercises").glob("*/solution/*")}
    assert found == {exercise.folder for exercise in EXERCISES}
    assert {*checks.CHECKS, *controllers.CHECKS} == {exercise.name for exercise in EXERCISES}


@pytest.mark.parametrize("kind", list(PROCESS_TARGETS))
@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_exercise(exercise: Exercise, kind: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    if (why := PROCESS_TARGETS[kind].lacking()) is not None:
        pytest.skip(why)
    if exercise.controlled and importlib.util.find_spec("p4") is None:
        pytest.skip("the tutorials' controller library needs the Python package p4runtime")
    assert pytestconfig.cache is not None
    try:
        folder = prepare(exercise, tmp_path, pytestconfig.cache.mkdir("tutorials"))
    except subprocess.CalledProcessError:
        pytest.skip("p4c refuses the solution")
    topology = folder / exercise.topology
    if exercise.controlled:
        controllers.number_from_zero(topology)
    options = ["--no-controller"] if exercise.controlled else []
    options += [word for entries in exercise.entries for word in ("--entries", entries)]
    with brought_up(folder, exercise.topology, kind, *options) as bed:
        if not exercise.controlled:
            checks.CHECKS[exercise.name](bed)
            return
        controller = controllers.Controller(bed)
        try:
            controllers.CHECKS[exercise.name](bed, controller)
        finally:
            controller.end()
