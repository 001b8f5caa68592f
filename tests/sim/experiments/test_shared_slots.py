"""Jobs that come and go in the simulator: real workers and program, the controller's sharing policy."""

from dataclasses import replace

import pytest

from netsum.programs import compiled_program
from tests.sim.experiments.sharing import ARMS, LANES, Arm, Setting, poisson_trace, run

SMALL = Setting(
    jobs=4,
    workers=2,
    slots=32,
    array_bytes=1 << 16,
    collectives=(4, 8),
    mean_gap_ns=4_000_000,
    control_ns=100_000,
)
CROWDED = replace(SMALL, mean_gap_ns=300_000, control_ns=20_000)
"""Jobs that take longer than the next one needs to come."""
PROGRAM = compiled_program(LANES).json


@pytest.mark.parametrize("arm", ARMS)
def test_all_jobs_end_and_the_same_trace_has_the_same_result(arm: Arm) -> None:
    result = run(CROWDED, arm, 3, PROGRAM)  # The run raises if a sum is wrong.
    assert all(took > 0 for took in result.completion_ns)
    assert result == run(CROWDED, arm, 3, PROGRAM)
    assert result.end_ns >= max(result.completion_ns)
    assert (result.moves > 0) == (arm != "static")


def test_shared_slots_are_faster_than_a_partition_and_fair() -> None:
    static, shared = (run(SMALL, arm, 3, PROGRAM) for arm in ("static", "shared"))
    assert shared.throughput > 1.4 * static.throughput
    assert shared.jain > 0.9


def test_a_trace_follows_from_its_seed() -> None:
    assert poisson_trace(SMALL, 5) == poisson_trace(SMALL, 5) != poisson_trace(SMALL, 6)
    many = replace(SMALL, jobs=4000)
    trace = poisson_trace(many, 1)
    assert trace[-1].at_ns / many.jobs == pytest.approx(many.mean_gap_ns, rel=0.1)
    assert {one.collectives for one in trace} == set(range(4, 9))
