"""Contributions without lanes: they add their bit and exponent; the result has lanes if any of them had."""

import pytest

from tests.dataplane.dataplane.frames import BOR, MAX, SUM
from tests.dataplane.dataplane.jobs import Job, MakeJob, lanes_of, saturating_sum
from tests.dataplane.dataplane.target import Packet, Target


def has_room(target: Target) -> bool:
    return 4 * target.lanes <= target.growth_bytes


def full(
    target: Target, job: Job, chunk: int, total: list[int], worker_id: int | None = None
) -> list[Packet]:
    """Return the answers to a packet without lanes when the slot is full and has lanes, for all workers or one."""
    answers = job.results(chunk, total) if has_room(target) else job.statuses(chunk, job.full_mask)
    return answers if worker_id is None else [answers[worker_id]]


def test_only_headers(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=3)
    for chunk in range(12):
        job.expect([job.contribution(0, chunk), job.contribution(1, chunk)])
        job.expect(job.contribution(2, chunk), job.results(chunk))
        job.expect(job.contribution(1, chunk), job.result(1, chunk))


def test_single_worker(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=1)
    job.expect(job.contribution(0, 0), job.results(0))
    job.expect(job.contribution(0, 0), job.results(0))


@pytest.mark.parametrize("headers", [{0}, {1}, {0, 1}])
def test_first_and_middle(target: Target, make_job: MakeJob, headers: set[int]) -> None:
    job = make_job(workers=3)
    parts = {worker: lanes_of(target, worker) for worker in range(3) if worker not in headers}
    job.expect([job.contribution(0, 0, parts.get(0)), job.contribution(1, 0, parts.get(1))])
    job.expect(job.contribution(2, 0, parts[2]), job.results(0, saturating_sum(list(parts.values()))))


@pytest.mark.parametrize("headers", [{2}, {0, 2}, {1, 2}])
def test_last(target: Target, make_job: MakeJob, headers: set[int]) -> None:
    job = make_job(workers=3)
    parts = {worker: lanes_of(target, worker) for worker in range(3) if worker not in headers}
    total = saturating_sum(list(parts.values()))
    job.expect([job.contribution(0, 0, parts.get(0)), job.contribution(1, 0, parts.get(1))])
    with job.counting(contributions=1, results=1):
        job.expect(job.contribution(2, 0), full(target, job, 0, total))
    with job.counting(duplicates_answered=6):
        for worker in range(3):
            job.expect(job.contribution(worker, 0), full(target, job, 0, total, worker))
            job.expect(job.contribution(worker, 0, lanes_of(target, 9)), job.result(worker, 0, total))


def test_retransmission_with_lanes_of_a_slot_without(target: Target, make_job: MakeJob) -> None:
    job = make_job()
    job.expect(job.contribution(0, 0))
    job.expect(job.contribution(1, 0), job.results(0))
    job.expect(job.contribution(0, 0, lanes_of(target, 9)), job.result(0, 0))
    job.expect(job.contribution(1, 0), job.result(1, 0))


def test_retransmission_with_lanes_before_completion_adds_none(target: Target, make_job: MakeJob) -> None:
    job = make_job()
    job.expect(job.contribution(0, 0))
    with job.counting(duplicates_dropped=1):
        job.expect(job.contribution(0, 0, lanes_of(target, 9)))
    job.expect(job.contribution(1, 0), job.results(0))


def test_lanes_of_the_slots_last_chunk_do_not_come_back(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=1)
    parts = [lanes_of(target, worker) for worker in range(2)]
    job.expect(
        [job.contribution(worker, 0, parts[worker]) for worker in range(2)],
        job.results(0, saturating_sum(parts)),
    )
    job.expect(job.contribution(0, 2))
    job.expect(job.contribution(1, 2), job.results(2))
    job.expect(job.contribution(0, 4))
    job.expect(job.contribution(1, 4, parts[1]), job.results(4, parts[1]))


def test_nothing_leaves_with_more_room_than_the_target_has(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=3, slots=1)
    parts = [lanes_of(target, worker) for worker in range(2)]
    sent = [
        *(job.contribution(0, 0, parts[0]), job.contribution(1, 0, parts[1]), job.contribution(2, 0)),
        *(job.contribution(2, 0), job.probe(2, 0), job.contribution(2, 0, fingerprint=5), job.probe(1, 1)),
        *(job.contribution(worker, 1) for worker in range(3)),
    ]
    for packet in sent:
        for _, frame in target.send([packet]):
            assert len(frame) - len(packet[1]) <= target.growth_bytes


@pytest.mark.parametrize(("op", "combined"), [(SUM, -12), (MAX, -5), (BOR, -5 | -7)])
def test_first_without_lanes_is_neutral(target: Target, make_job: MakeJob, op: int, combined: int) -> None:
    """Also of negative numbers: missing lanes count as nothing."""
    job = make_job(workers=3)
    low, lower = [-5] * target.lanes, [-7] * target.lanes
    job.expect(job.contribution(0, 0, op=op))
    job.expect(job.contribution(1, 0, lower, op=op))
    job.expect(job.contribution(2, 0, low, op=op), job.results(0, [combined] * target.lanes, op=op))
