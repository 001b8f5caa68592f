"""Workers write to one array, and yet every block of every worker's result is compared."""

from collections.abc import Callable
from typing import Any

import pytest

from sim.experiments.experiment import parse_experiment
from sim.experiments.netsum_job import NetsumJob, WrongSumError
from sim.experiments.running import PointResult, Watch, run_point
from sim.experiments.values import expected_sum

TEXT = '[topology]\nrate = "10gbit"\n[[job]]\nworkers = 3\nsize = "64KiB"\nlanes = 64\ncollectives = 3\n'
LATE_NS = 150_000
"""Time at which results are under way, in the third of three all-reduces."""


class Meddling(Watch):
    """Does something to the job at a time."""

    def __init__(self, meddle: Callable[[NetsumJob], None], at_ns: int = LATE_NS) -> None:
        super().__init__()
        self._meddle, self._at_ns = meddle, at_ns

    def begin(self, scenario: Any, jobs: Any) -> None:
        super().begin(scenario, jobs)
        scenario.network.at(self._at_ns, self._meddle, jobs[0])


def run(programs: dict[int, str], watch: Watch | None = None, text: str = TEXT) -> PointResult:
    return run_point(parse_experiment(text, "x", None).points[0], programs, watch)


def only_output(job: NetsumJob) -> Any:
    (output,) = job._outputs.values()
    return output


def test_all_sums_are_compared_and_no_output_is_kept(programs: dict[int, str]) -> None:
    watch = Watch()
    assert run(programs, watch).rows[0]["sums_checked"] == 9
    (job,) = watch.jobs
    assert isinstance(job, NetsumJob)
    assert not job._outputs
    assert not job._inputs
    assert not any(worker.outcomes for worker in job.workers)
    assert watch.scenario is not None
    assert len(watch.scenario.network.outputs) <= 2


@pytest.mark.parametrize("element", [0, 4097, 16383])
def test_one_wrong_element_is_found(
    programs: dict[int, str], monkeypatch: pytest.MonkeyPatch, element: int
) -> None:

    def wrong(parts: Any, lanes: int) -> Any:
        sums = expected_sum(parts, lanes)
        sums[element] += 1
        return sums

    monkeypatch.setattr("sim.experiments.values.expected_sum", wrong)
    with pytest.raises(WrongSumError, match=f"of worker [012]: element {element} is not the sum"):
        run(programs)


def test_a_block_that_only_other_workers_wrote_is_missing(programs: dict[int, str]) -> None:
    def restart_one(job: NetsumJob) -> None:
        only_output(job)._blocks[1] -= 1

    with pytest.raises(WrongSumError, match="of worker 1: 255 of 256 blocks were written"):
        run(programs, Meddling(restart_one))


def test_a_block_that_a_worker_left_unwritten_does_not_hold_the_sum_of_another(
    programs: dict[int, str],
) -> None:
    """Compared results are erased, so a worker that takes a RESULT and writes nothing is found."""

    def stop_writing(job: NetsumJob) -> None:
        core = job.workers[2].core
        at = int(core.state["passes_done"][0]) % len(core.records[2])
        core.records[2]["payload"]["decode"][at] = 0

    with pytest.raises(WrongSumError, match="of worker 2: element [0-9]+ is not the sum"):
        run(programs, Meddling(stop_writing))


def test_a_stray_write_is_found(programs: dict[int, str]) -> None:
    def write(job: NetsumJob) -> None:
        only_output(job).array[0] = 1.0

    with pytest.raises(WrongSumError, match="element 0 was written without a RESULT"):
        run(programs, Meddling(write))


def test_a_restarted_job_writes_every_block_once_more(programs: dict[int, str]) -> None:
    text = TEXT + '[[event]]\nat = "150us"\naction = "switch-restart"\n[controller]\ndelay = "100us"\n'
    (*_, row) = run(programs, text=text).rows
    assert row["error"] is None
    assert row["sums_checked"] == 9


def test_unchecked_runs_share_an_array_too(programs: dict[int, str]) -> None:
    (*_, row) = run(programs, text=TEXT + "[run]\ncheck = false\n").rows
    assert row["sums_checked"] == 0
    assert row["duration_ns"] is not None
