"""Operations on each lane: saturating sum, maximum, bitwise or."""

import itertools
import random
from collections.abc import Callable, Sequence

import pytest

from tests.dataplane.dataplane.frames import BOR, MAX, SUM
from tests.dataplane.dataplane.jobs import MakeJob, lanes_of, saturating_sum
from tests.dataplane.dataplane.target import Target

LOWEST, HIGHEST = -(2**31), 2**31 - 1
CORNERS = [LOWEST, LOWEST + 1, -(2**30), -1, 0, 1, 2**30, HIGHEST - 1, HIGHEST]


def lanewise(operation: Callable[[int, int], int]) -> Callable[[Sequence[Sequence[int]]], list[int]]:
    def combine(parts: Sequence[Sequence[int]]) -> list[int]:
        total = list(parts[0])
        for part in parts[1:]:
            total = [operation(a, b) for a, b in zip(total, part, strict=True)]
        return total

    return combine


OPERATIONS = [
    pytest.param(SUM, saturating_sum, id="sum"),
    pytest.param(MAX, lanewise(max), id="max"),
    pytest.param(BOR, lanewise(lambda a, b: a | b), id="bor"),
]


@pytest.mark.parametrize(("op", "combine"), OPERATIONS)
def test_any_values(
    target: Target, make_job: MakeJob, op: int, combine: Callable[[Sequence[Sequence[int]]], list[int]]
) -> None:
    job = make_job(workers=3)
    for chunk in range(4):
        parts = [lanes_of(target, 3 * chunk + worker, LOWEST, HIGHEST) for worker in range(3)]
        job.expect(
            [job.contribution(worker, chunk, parts[worker], op=op) for worker in range(3)],
            job.results(chunk, combine(parts), op=op),
        )


@pytest.mark.parametrize(("op", "combine"), OPERATIONS)
def test_every_pair_of_corner_values(
    target: Target, make_job: MakeJob, op: int, combine: Callable[[Sequence[Sequence[int]]], list[int]]
) -> None:
    job = make_job(slots=2)
    pairs = [(a, b) for a in CORNERS for b in CORNERS]
    for chunk, start in enumerate(range(0, len(pairs), target.lanes)):
        filled = list(itertools.islice(itertools.cycle(pairs[start:] + pairs[:start]), target.lanes))
        parts = [[pair[worker] for pair in filled] for worker in range(2)]
        job.expect(
            [job.contribution(worker, chunk, parts[worker], op=op) for worker in range(2)],
            job.results(chunk, combine(parts), op=op),
        )


def test_sum_stays_at_the_limit(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=32, slots=2)
    for chunk, value in enumerate((2**27, -(2**27), HIGHEST, LOWEST)):
        lanes = [value] * target.lanes
        total = [min(max(32 * value, LOWEST), HIGHEST)] * target.lanes
        job.expect(
            [job.contribution(worker, chunk, lanes) for worker in range(32)], job.results(chunk, total)
        )


def test_sum_never_wraps_in_any_order(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=3, slots=1)
    parts = [[HIGHEST] * target.lanes, [HIGHEST] * target.lanes, [LOWEST] * target.lanes]
    source = random.Random(1)
    for chunk in range(6):
        order = source.sample(range(3), 3)
        total = saturating_sum([parts[worker] for worker in order])
        job.expect(
            [job.contribution(worker, chunk, parts[worker]) for worker in order], job.results(chunk, total)
        )


def test_operation_of_one_chunk_is_not_that_of_the_next(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=1)
    parts = [lanes_of(target, worker, LOWEST, HIGHEST) for worker in range(2)]
    for chunk, (op, combine) in enumerate(
        ((SUM, saturating_sum), (MAX, lanewise(max)), (SUM, saturating_sum))
    ):
        job.expect(
            [job.contribution(worker, chunk, parts[worker], op=op) for worker in range(2)],
            job.results(chunk, combine(parts), op=op),
        )
