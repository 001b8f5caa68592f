"""Workers that need a header-only RESULT: their copies have no lanes, all other copies have them."""

import itertools
import random
from collections.abc import Sequence
from functools import partial

import pytest

from tests.dataplane.dataplane.frames import BOR, HEADER_ONLY, LANES, MAX, SUM
from tests.dataplane.dataplane.jobs import Job, MakeJob, lanes_of, saturating_sum
from tests.dataplane.dataplane.target import Packet, Target
from tests.dataplane.dataplane.tree import PlacedJob
from tests.dataplane.test_quorum import QuorumJob

"""Bytes by which a packet may leave larger than it came."""


@pytest.fixture(autouse=True)
def needs_header_only_results(target: Target) -> None:
    if not target.can.header_only:
        pytest.skip("the program sends all lanes to all workers")


def given(
    job: Job, worker_id: int, lanes: Sequence[int] | None, header_only: bool, chunk: int = 0, **fields: object
) -> Packet:
    """Make a contribution; its worker may need a header-only RESULT."""
    flags = (0 if lanes is None else LANES) | (HEADER_ONLY if header_only else 0)
    return job.contribution(worker_id, chunk, lanes, flags=flags, **fields)


def cut_results(
    job: Job, lanes: Sequence[int], header_only: int, chunk: int = 0, **fields: object
) -> list[Packet]:
    """Make the RESULTs that the workers should get; those of the bitmap without lanes."""
    return [
        job.result(each.worker_id, chunk, None if header_only >> each.worker_id & 1 else lanes, **fields)
        for each in job.workers
    ]


@pytest.mark.parametrize("op", [SUM, MAX, BOR])
@pytest.mark.parametrize("header_only", range(8))
def test_copies_for_each_set_of_workers(target: Target, make_job: MakeJob, header_only: int, op: int) -> None:
    job = make_job(workers=3)
    parts = [lanes_of(target, each) for each in range(3)]
    total = {
        SUM: saturating_sum(parts),
        MAX: [max(each) for each in zip(*parts, strict=True)],
        BOR: [a | b | c for a, b, c in zip(*parts, strict=True)],
    }[op]
    order = random.Random(header_only).sample(range(3), 3)
    with job.counting(contributions=3, results=1):
        for worker_id in order:
            job.expect(
                given(
                    job, worker_id, parts[worker_id], bool(header_only >> worker_id & 1), op=op, exponent=4
                ),
                cut_results(job, total, header_only, op=op, exponent=4) if worker_id == order[-1] else [],
            )


def test_thirty_two_workers(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=32)
    parts = [lanes_of(target, each) for each in range(32)]
    bitmap = 0xA5C3_0F81
    for worker_id, part in enumerate(parts):
        expected = cut_results(job, saturating_sum(parts), bitmap) if worker_id == 31 else []
        job.expect(given(job, worker_id, part, bool(bitmap >> worker_id & 1)), expected)


def test_a_duplicate_is_answered_with_what_it_says(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=2)
    parts = [lanes_of(target, each) for each in range(2)]
    total = saturating_sum(parts)
    job.expect(given(job, 0, parts[0], True))
    job.expect(given(job, 1, parts[1], False), cut_results(job, total, 0b01))
    with job.counting(duplicates_answered=6):
        for _ in range(2):
            job.expect(given(job, 0, parts[0], True), job.result(0, 0))
            job.expect(given(job, 0, None, True), job.result(0, 0))
        job.expect(given(job, 1, parts[1], False), job.result(1, 0, total))
        job.expect(given(job, 0, parts[0], False), job.result(0, 0, total))


def test_a_duplicate_of_a_slot_that_waits_changes_nothing(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=2)
    parts = [lanes_of(target, each) for each in range(2)]
    for chunk, first in enumerate((False, True)):
        job.expect(given(job, 0, parts[0], first, chunk))
        job.expect(given(job, 0, parts[0], not first, chunk))
        job.expect(
            given(job, 1, parts[1], False, chunk), cut_results(job, saturating_sum(parts), int(first), chunk)
        )


def test_who_needs_the_header_alone_is_forgotten_with_the_chunk(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=2, slots=2)
    parts = [lanes_of(target, each) for each in range(4)]
    for chunk, header_only in ((0, 0b11), (4, 0b00), (8, 0b10)):
        job.expect(given(job, 0, parts[0], bool(header_only & 1), chunk))
        job.expect(
            given(job, 1, parts[1], bool(header_only & 2), chunk),
            cut_results(job, saturating_sum(parts[:2]), header_only, chunk),
        )


def test_one_worker_has_the_lanes_and_the_others_need_them(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=3)
    part = lanes_of(target, 5)
    for chunk, order in enumerate(itertools.permutations(range(3))):
        if chunk == 4:
            break
        for worker_id in order:
            owns = worker_id == 1
            expected: list[Packet] = []
            if worker_id == order[-1]:
                expected = cut_results(job, part, 0b010, chunk, op=BOR)
                if not owns and 4 * target.lanes > target.growth_bytes:
                    expected = job.statuses(chunk, 0b111, op=BOR)
            job.expect(given(job, worker_id, part if owns else None, owns, chunk, op=BOR), expected)


def test_a_slot_without_lanes(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=2)
    job.expect(given(job, 0, None, True))
    job.expect(given(job, 1, None, False), job.results(0))


def test_the_flag_is_no_part_of_what_workers_agree_on(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=2)
    with job.counting(contributions=2, results=1):
        job.expect(given(job, 0, lanes_of(target, 0), True))
        job.expect(
            given(job, 1, lanes_of(target, 0), False),
            cut_results(job, saturating_sum([lanes_of(target, 0)] * 2), 0b01),
        )


def test_a_slot_of_a_quorum_has_no_such_workers(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=2, kind=partial(QuorumJob, quorum=1))
    with job.counting(malformed=2):
        job.expect(job.contribution(0, 0, flags=HEADER_ONLY, quorum=1))
        job.expect(job.contribution(0, 0, lanes_of(target, 0), flags=HEADER_ONLY | LANES, quorum=1))


@pytest.mark.parametrize("header_only", range(4))
def test_a_switch_with_a_parent_needs_lanes_if_a_child_does(
    target: Target, make_job: MakeJob, header_only: int
) -> None:
    if not target.can.trees:
        pytest.skip("the program has no trees")
    job = make_job(workers=2, kind=PlacedJob)
    assert isinstance(job, PlacedJob)
    parts = [lanes_of(target, each) for each in range(2)]
    total, result = saturating_sum(parts), lanes_of(target, 9)
    flags = LANES | (HEADER_ONLY if header_only == 0b11 else 0)
    needs = [bool(header_only >> each & 1) for each in range(2)]
    job.expect(given(job, 1, parts[1], needs[1]))
    job.expect(given(job, 0, parts[0], needs[0]), job.sum_up(0, total, flags=flags))
    job.expect(given(job, 0, parts[0], needs[0]), job.sum_up(0, total, flags=flags))
    if header_only == 0b11:
        job.expect(job.result_of_parent(0), job.results(0))
    else:
        job.expect(job.result_of_parent(0, result), cut_results(job, result, header_only))
    for each in range(2):
        answer = job.result(each, 0, None if needs[each] else result)
        job.expect(given(job, each, parts[each], needs[each]), answer)


def test_a_probe_that_goes_up_has_no_flag(target: Target, make_job: MakeJob) -> None:
    if not target.can.trees:
        pytest.skip("the program has no trees")
    job = make_job(workers=2, kind=PlacedJob)
    assert isinstance(job, PlacedJob)
    for each in range(2):
        job.expect(given(job, each, None, True), *([job.sum_up(0, flags=HEADER_ONLY)] if each else []))
    job.expect(job.probe_from(1, 0, 0), job.probe_up(0, 1))
