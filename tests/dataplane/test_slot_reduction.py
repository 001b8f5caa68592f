"""Contributions become results: exactly one of every worker, in any order, in any slot, for ever."""

from itertools import permutations

import pytest

from tests.dataplane.dataplane.jobs import MakeJob, lanes_of, saturating_sum
from tests.dataplane.dataplane.target import Target


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 32])
def test_last_contribution_leaves_as_the_result_of_all(
    target: Target, make_job: MakeJob, workers: int
) -> None:
    job = make_job(workers=workers)
    parts = [lanes_of(target, worker) for worker in range(workers)]
    with job.counting(contributions=workers, results=1):
        for worker in range(workers - 1):
            job.expect(job.contribution(worker, 0, parts[worker]))
        job.expect(job.contribution(workers - 1, 0, parts[-1]), job.results(0, saturating_sum(parts)))


def test_order_of_arrival_does_not_matter(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=3, slots=8)
    parts = [lanes_of(target, worker) for worker in range(3)]
    for chunk, order in enumerate(permutations(range(3))):
        job.expect(
            [job.contribution(worker, chunk, parts[worker]) for worker in order],
            job.results(chunk, saturating_sum(parts)),
        )


def test_single_worker_gets_its_own_lanes_back(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=1)
    for chunk in range(10):
        lanes = lanes_of(target, chunk, -(2**31), 2**31 - 1)
        job.expect(job.contribution(0, chunk, lanes), job.results(chunk, lanes))


def test_slots_are_apart(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=4)
    first = [lanes_of(target, chunk) for chunk in range(8)]
    second = [lanes_of(target, 100 + chunk) for chunk in range(8)]
    for chunk in range(8):
        job.expect(job.contribution(0, chunk, first[chunk]))
    for chunk in reversed(range(8)):
        job.expect(
            job.contribution(1, chunk, second[chunk]),
            job.results(chunk, saturating_sum([first[chunk], second[chunk]])),
        )


def test_slots_are_used_again(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=2)
    for chunk in range(20):
        parts = [lanes_of(target, 2 * chunk + worker) for worker in range(2)]
        job.expect(job.contribution(chunk % 2, chunk, parts[0]))
        job.expect(
            job.contribution(1 - chunk % 2, chunk, parts[1]), job.results(chunk, saturating_sum(parts))
        )


def test_chunk_numbers_wrap(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=2)
    for chunk in range(2**32 - 6, 2**32 + 6):
        parts = [lanes_of(target, 2 * chunk + worker) for worker in range(2)]
        chunk %= 2**32
        job.expect(job.contribution(0, chunk, parts[0]))
        job.expect(job.contribution(1, chunk, parts[1]), job.results(chunk, saturating_sum(parts)))


def test_chunks_may_be_skipped_up_to_half_the_number_space(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=1, slots=1)
    lanes = lanes_of(target, 1)
    job.expect(job.contribution(0, 5, lanes), job.results(5, lanes))
    newest = 5 + 2**31 - 2  # an even distance: the same pool version
    job.expect(job.contribution(0, newest, lanes), job.results(newest, lanes))
    with job.counting(stale=1):
        job.expect(job.contribution(0, (newest + 2**31) % 2**32, lanes))


def test_jobs_at_once_do_not_touch_each_other(target: Target, make_job: MakeJob) -> None:
    jobs = [make_job(workers=2), make_job(workers=3)]
    parts = [[lanes_of(target, 10 * job + worker) for worker in range(3)] for job in range(2)]
    for worker in range(2):
        jobs[1].expect(jobs[1].contribution(worker, 0, parts[1][worker]))
    jobs[0].expect(jobs[0].contribution(0, 0, parts[0][0]))
    jobs[0].expect(jobs[0].contribution(1, 0, parts[0][1]), jobs[0].results(0, saturating_sum(parts[0][:2])))
    jobs[1].expect(jobs[1].contribution(2, 0, parts[1][2]), jobs[1].results(0, saturating_sum(parts[1])))


def test_last_slot_of_the_switch(target: Target, make_job: MakeJob) -> None:
    job = make_job(slot_base=1022, slots=2)
    for chunk in range(4):
        parts = [lanes_of(target, 2 * chunk + worker) for worker in range(2)]
        job.expect(job.contribution(0, chunk, parts[0]))
        job.expect(job.contribution(1, chunk, parts[1]), job.results(chunk, saturating_sum(parts)))
