"""Things die in the middle of a run: who is missing is named, nothing hangs, and what can go on does."""

from pathlib import Path

import pytest

from tests.integration.digits_runs import NAMING, ON_BOTH_SWITCHES, SOON, TestbedKind, train, undisturbed
from tests.integration.digits_training import TrainingError, TrainingRun
from topologies.hosts import SwitchTestbed
from topologies.loopback import LoopbackTestbed
from topologies.mininet_testbed import Bmv2Star

pytestmark = pytest.mark.slow


@ON_BOTH_SWITCHES
def test_a_killed_worker_is_named_by_all_others(kind: TestbedKind, tmp_path: Path) -> None:
    def kill_worker_1(_: SwitchTestbed, run: TrainingRun, step: int) -> None:
        if step == 5:
            run.children[1].kill()

    with pytest.raises(TrainingError) as caught:
        train(kind, tmp_path, NAMING, on_step=kill_worker_1)
    first, *others = str(caught.value).splitlines()
    assert first == "worker 1 was killed by SIGKILL"
    assert len(others) == 2
    for survivor, said in zip((0, 2), others, strict=True):
        assert f"worker {survivor} stopped at step" in said
        assert "worker 1 did not contribute" in said


@pytest.mark.parametrize(
    ("kind", "when"),
    [
        *((LoopbackTestbed, when) for when in (0, 7, SOON.steps - 1)),
        pytest.param(Bmv2Star, 7, marks=[pytest.mark.bmv2, pytest.mark.root]),
    ],
)
def test_a_killed_switch_comes_back_and_the_job_completes(
    kind: TestbedKind, tmp_path: Path, when: int
) -> None:
    def kill_the_switch_once(testbed: SwitchTestbed, _: TrainingRun, step: int) -> None:
        if step == when and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            testbed.switch.kill()

    # Several incarnations, should a worker miss a deadline on a busy machine: they change no bit.
    outcome = train(kind, tmp_path, SOON, restarts=3, on_step=kill_the_switch_once)
    # Workers do not wait for the reader of their reports: they may be done before the switch is dead.
    assert outcome.job_epochs > 1 or when > 0
    assert set(outcome.digests) == set(undisturbed(kind).digests)
    assert outcome.losses == undisturbed(kind).losses


@ON_BOTH_SWITCHES
def test_a_killed_switch_is_named(kind: TestbedKind, tmp_path: Path) -> None:
    def kill_the_switch(testbed: SwitchTestbed, _: TrainingRun, step: int) -> None:
        if step == 0:  # A busy machine may report a step after the workers have taken several more.
            testbed.switch.kill()

    with pytest.raises(TrainingError) as caught:
        train(kind, tmp_path, SOON, on_step=kill_the_switch)
    first, *others = str(caught.value).splitlines()
    assert first == f"{'BMv2 s1' if kind is Bmv2Star else 'the embedded switch'} was killed by SIGKILL"
    assert len(others) == SOON.workers
    for worker, said in enumerate(others):
        assert f"worker {worker} stopped at step" in said
        assert "does not answer" in said
