"""Faults on the running testbed, on both switches; test_testbed_faults_tree.py has the same on a tree.

``NETSUM_LONG_TESTS=1`` adds minutes of them at random moments.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.integration import testbed_faults
from tests.integration.testbed_faults import (
    HARMLESS,
    SOON_S,
    WORKERS,
    Bed,
    SteadyJob,
    kill_a_worker,
    running,
    steady_job,
)

LONG_S = float(os.environ.get("NETSUM_FAULT_SECONDS", "300"))

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

Fault = Callable[[Bed, SteadyJob, random.Random], str]


@pytest.fixture(scope="module", params=["embedded", pytest.param("bmv2", marks=pytest.mark.bmv2)], name="bed")
def running_testbed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bed]:
    with running(request.param, "star-4", tmp_path_factory.mktemp("faults")) as bed:
        yield bed


@pytest.fixture(scope="module", name="job")
def running_job(bed: Bed) -> Iterator[SteadyJob]:
    """One job that all the faults that it must survive happen to."""
    with steady_job(bed, WORKERS) as job:
        yield job
        job.finish()


@pytest.mark.parametrize("fault", HARMLESS, ids=lambda fault: fault.__name__)
def test_the_job_goes_on(fault: Fault, bed: Bed, job: SteadyJob) -> None:
    fault(bed, job, random.Random(fault.__name__))
    job.none_wrong()


def test_a_dead_worker_is_named_by_all_others(bed: Bed) -> None:
    with steady_job(bed, WORKERS, SOON_S) as job:
        job.goes_on(3)  # The first rounds load compiled code, each for as long as a busy machine takes.
        kill_a_worker(bed, job, random.Random(1))


@pytest.mark.skipif("NETSUM_LONG_TESTS" not in os.environ, reason="NETSUM_LONG_TESTS=1 runs it")
@pytest.mark.timeout(LONG_S + 900)
def test_faults_at_random_moments(bed: Bed) -> None:
    seed = int(os.environ.get("NETSUM_FAULT_SEED", str(time.time_ns() % 10**6)))
    draw = random.Random(seed)
    happened: Counter[str] = Counter()
    rounds = 0
    end = time.monotonic() + LONG_S
    print(f"\nseed {seed}")
    while time.monotonic() < end:
        with steady_job(bed, WORKERS) as job:
            for fault in [*draw.choices(HARMLESS, k=8), kill_a_worker]:
                time.sleep(draw.uniform(0, 1.5))
                outcome = fault(bed, job, draw)
                happened[f"{fault.__name__}: {outcome}"] += 1
                job.none_wrong()
            rounds += max(worker.round for worker in job.workers)
    for outcome, times in sorted(happened.items()):
        print(f"{times:4} times {outcome}")
    print(f"{rounds} rounds of {testbed_faults.WORKERS}, none wrong")
