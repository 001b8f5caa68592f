"""Packets that come twice or late: nothing is added twice, nothing old is added at all."""

from tests.dataplane.dataplane.jobs import MakeJob, lanes_of, saturating_sum
from tests.dataplane.dataplane.target import Target


def test_before_completion_it_is_dropped(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=3)
    parts = [lanes_of(target, worker) for worker in range(3)]
    job.expect([job.contribution(0, 0, parts[0]), job.contribution(1, 0, parts[1])])
    with job.counting(duplicates_dropped=4):
        for _ in range(2):
            job.expect([job.contribution(0, 0, parts[0]), job.contribution(1, 0, parts[1])])
    job.expect(job.contribution(2, 0, parts[2]), job.results(0, saturating_sum(parts)))


def test_after_completion_the_sender_alone_is_answered(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=3)
    parts = [lanes_of(target, worker) for worker in range(3)]
    total = saturating_sum(parts)
    job.expect([job.contribution(worker, 0, parts[worker]) for worker in range(3)], job.results(0, total))
    with job.counting(duplicates_answered=6):
        for _ in range(2):
            for worker in range(3):
                job.expect(job.contribution(worker, 0, parts[worker]), job.result(worker, 0, total))


def test_what_it_carries_is_not_read(target: Target, make_job: MakeJob) -> None:
    job = make_job()
    parts = [lanes_of(target, worker) for worker in range(2)]
    other = lanes_of(target, 99)
    total = saturating_sum(parts)
    job.expect(job.contribution(0, 0, parts[0], exponent=3))
    job.expect(job.contribution(0, 0, other, exponent=9))
    job.expect(job.contribution(1, 0, parts[1], exponent=4), job.results(0, total, exponent=4))
    job.expect(job.contribution(0, 0, other, exponent=9), job.result(0, 0, total, exponent=4))
    job.expect(job.contribution(1, 0, parts[1], exponent=4), job.result(1, 0, total, exponent=4))


def test_previous_set_is_still_answered(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=2)
    totals = {}
    for chunk in (0, 2):
        parts = [lanes_of(target, 2 * chunk + worker) for worker in range(2)]
        totals[chunk] = saturating_sum(parts)
        job.expect(job.contribution(0, chunk, parts[0]))
        if chunk == 2:  # while the next set is being filled
            job.expect(job.contribution(1, 0, parts[1]), job.result(1, 0, totals[0]))
        job.expect(job.contribution(1, chunk, parts[1]), job.results(chunk, totals[chunk]))
    for chunk in (0, 2):  # when it is full
        job.expect(job.contribution(0, chunk, parts[0]), job.result(0, chunk, totals[chunk]))


def test_of_a_slot_used_again_it_is_stale(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=2)
    parts = [lanes_of(target, worker) for worker in range(2)]
    total = saturating_sum(parts)
    job.expect([job.contribution(worker, 0, parts[worker]) for worker in range(2)], job.results(0, total))
    job.expect(job.contribution(0, 4, parts[0]))  # the same slot and version
    with job.counting(stale=2):
        job.expect([job.contribution(worker, 0, parts[worker]) for worker in range(2)])
    job.expect(job.contribution(1, 4, parts[1]), job.results(4, total))


def test_reuse_with_retransmission(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=1)
    for chunk in range(8):
        parts = [lanes_of(target, 2 * chunk + worker) for worker in range(2)]
        total = saturating_sum(parts)
        job.expect(job.contribution(0, chunk, parts[0]))
        job.expect(job.contribution(0, chunk, parts[0]))
        job.expect(job.contribution(1, chunk, parts[1]), job.results(chunk, total))
        job.expect(job.contribution(1, chunk, parts[1]), job.result(1, chunk, total))
        job.expect(job.contribution(0, chunk, parts[0]), job.result(0, chunk, total))


def test_packet_delayed_past_reuses_of_its_slot(target: Target, make_job: MakeJob) -> None:
    """A case that one version bit cannot tell: the packet's version is the one that is being filled."""
    job = make_job(slots=1)
    late = [
        job.contribution(worker, chunk, lanes_of(target, 77)) for worker in range(2) for chunk in range(2)
    ]
    for chunk in range(9):
        parts = [lanes_of(target, 2 * chunk + worker) for worker in range(2)]
        job.expect(job.contribution(0, chunk, parts[0]))
        if chunk >= 4:
            with job.counting(stale=4):
                job.expect(late)
        job.expect(job.contribution(1, chunk, parts[1]), job.results(chunk, saturating_sum(parts)))


def test_late_packet_before_its_slot_is_used_again(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=1)
    parts = [lanes_of(target, worker) for worker in range(2)]
    total = saturating_sum(parts)
    for chunk in (0, 1):
        job.expect(
            [job.contribution(worker, chunk, parts[worker]) for worker in range(2)], job.results(chunk, total)
        )
    job.expect(job.contribution(1, 0, lanes_of(target, 9)), job.result(1, 0, total))
