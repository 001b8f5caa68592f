"""Workers that disagree about the collective: nothing is added, all workers are notified."""

import pytest

from tests.dataplane.dataplane.frames import BOR, MAX, MISMATCH, SUM
from tests.dataplane.dataplane.jobs import MakeJob, lanes_of, saturating_sum
from tests.dataplane.dataplane.target import Target


@pytest.mark.parametrize(
    ("other", "with_lanes"),
    [
        pytest.param({"fingerprint": 0x1235}, True, id="fingerprint"),
        pytest.param({"fingerprint": 0x1235}, False, id="fingerprint, no lanes"),
        pytest.param({"fingerprint": 0}, True, id="fingerprint 0"),
        pytest.param({"fingerprint": 0x1234, "op": MAX}, True, id="operation"),
        pytest.param({"fingerprint": 0x1234, "op": BOR}, False, id="operation, no lanes"),
    ],
)
def test_all_workers_get_the_mismatch_and_nothing_is_added(
    target: Target, make_job: MakeJob, other: dict[str, int], with_lanes: bool
) -> None:
    job = make_job(workers=3)
    parts = [lanes_of(target, worker) for worker in range(3)]
    agreed = {"fingerprint": 0x1234, "op": SUM}
    wrong = {"op": SUM} | other
    lanes = lanes_of(target, 9) if with_lanes else None
    replies = job.statuses(0, 0b001, flags=MISMATCH, exponent=9, **wrong)
    job.expect(job.contribution(0, 0, parts[0], exponent=3, **agreed))
    with job.counting(mismatches=3):
        for worker in (1, 0, 2):
            job.expect(job.contribution(worker, 0, lanes, exponent=9, **wrong), replies)
    again = job.statuses(0, 0b001, flags=MISMATCH, exponent=3, **agreed)
    with job.counting(mismatches=4):  # a repeated request has the same answer, should the first be lost
        for worker in range(3):
            job.expect(job.contribution(worker, 0, parts[worker], exponent=3, **agreed), again)
        job.expect(job.probe(0, 0, exponent=3, **agreed), again)


def test_probe_of_another_collective_is_answered_and_changes_nothing(
    target: Target, make_job: MakeJob
) -> None:
    job = make_job()
    parts = [lanes_of(target, worker) for worker in range(2)]
    job.expect(job.contribution(0, 0, parts[0], fingerprint=1))
    with job.counting(mismatches=2):
        for other in ({"fingerprint": 2}, {"fingerprint": 1, "op": MAX}):
            job.expect(job.probe(1, 0, **other), job.statuses(0, 0b01, flags=MISMATCH, **other))
    job.expect(
        job.contribution(1, 0, parts[1], fingerprint=1),
        job.results(0, saturating_sum(parts), fingerprint=1),
    )


def test_next_chunk_of_a_disputed_slot_is_new(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=1)
    parts = [lanes_of(target, worker) for worker in range(2)]
    job.expect(job.contribution(0, 0, fingerprint=1))
    job.expect(job.contribution(1, 0, fingerprint=2), job.statuses(0, 0b01, flags=MISMATCH, fingerprint=2))
    job.expect(job.contribution(0, 2, parts[0], fingerprint=3))
    job.expect(
        job.contribution(1, 2, parts[1], fingerprint=3),
        job.results(2, saturating_sum(parts), fingerprint=3),
    )


def test_full_slot_does_not_answer_another_collective(target: Target, make_job: MakeJob) -> None:
    job = make_job()
    parts = [lanes_of(target, worker) for worker in range(2)]
    total = saturating_sum(parts)
    job.expect([job.contribution(worker, 0, parts[worker]) for worker in range(2)], job.results(0, total))
    job.expect(
        job.contribution(0, 0, parts[0], fingerprint=1), job.statuses(0, 0b11, flags=MISMATCH, fingerprint=1)
    )
    job.expect(job.contribution(0, 0, parts[0]), job.statuses(0, 0b11, flags=MISMATCH))


def test_next_chunk_of_the_slot_may_be_another_collective(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=1)
    for chunk in range(6):
        job.expect(job.contribution(0, chunk, fingerprint=chunk))
        job.expect(job.contribution(1, chunk, fingerprint=chunk), job.results(chunk, fingerprint=chunk))


def test_stale_packet_of_another_collective_is_stale(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=1)
    job.expect(job.contribution(0, 2, fingerprint=1))
    with job.counting(stale=1):
        job.expect(job.contribution(1, 0, fingerprint=2))
