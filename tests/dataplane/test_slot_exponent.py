"""The exponent of a chunk is the largest that any worker sent."""

from itertools import permutations

import pytest

from tests.dataplane.dataplane.jobs import MakeJob, lanes_of, saturating_sum
from tests.dataplane.dataplane.target import Target


@pytest.mark.parametrize("exponents", [(0, 0, 0), (1, 0, 16384), (0xFFFF, 7, 0), (0x7FFF, 0x8000, 0x8001)])
def test_largest_wins_in_any_order(target: Target, make_job: MakeJob, exponents: tuple[int, ...]) -> None:
    job = make_job(workers=3)
    for chunk, order in enumerate(permutations(exponents)):
        job.expect(
            [job.contribution(worker, chunk, exponent=order[worker]) for worker in range(3)],
            job.results(chunk, exponent=max(exponents)),
        )


def test_next_chunk_starts_lowest(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=1)
    for chunk, exponent in enumerate((0xFFFF, 0xFFFF, 3, 0, 5)):
        job.expect(job.contribution(0, chunk, exponent=exponent))
        job.expect(job.contribution(1, chunk, exponent=0), job.results(chunk, exponent=exponent))


def test_comes_with_lanes_and_with_each_answer(target: Target, make_job: MakeJob) -> None:
    job = make_job()
    parts = [lanes_of(target, worker) for worker in range(2)]
    total = saturating_sum(parts)
    job.expect(job.contribution(0, 0, parts[0], exponent=500))
    job.expect(job.contribution(1, 0, parts[1], exponent=499), job.results(0, total, exponent=500))
    job.expect(job.contribution(1, 0, parts[1], exponent=499), job.result(1, 0, total, exponent=500))
