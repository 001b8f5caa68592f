"""Slots that a quorum completes: its number of contributions is added, later ones are counted and change nothing."""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from tests.dataplane.dataplane.frames import BOR, MAX, MISMATCH, STATUS, SUM
from tests.dataplane.dataplane.jobs import Job, MakeJob, lanes_of, saturating_sum
from tests.dataplane.dataplane.target import Entry, Packet, Target

"""Bytes by which a packet may leave larger than it came."""


class QuorumJob(Job):
    """A job whose flagged slots are complete with `quorum` contributions."""

    def __init__(self, target: Target, quorum: int, **given: Any) -> None:
        super().__init__(target, **given)
        self.quorum = quorum

    def entries(self) -> list[Entry]:
        """List the controller's entries for the job."""
        return [
            *super().entries(),
            Entry("job_quorum", {"job_id": self.job_id}, "set_quorum", {"workers": self.quorum}),
        ]

    def offer(
        self, worker_id: int, chunk: int, lanes: Sequence[int] | None = None, **fields: object
    ) -> Packet:
        """Make a contribution to a slot that a quorum completes."""
        return self.contribution(worker_id, chunk, lanes, quorum=1, **fields)

    def quorum_probe(self, worker_id: int, chunk: int, **fields: object) -> Packet:
        """Make a PROBE of such a slot."""
        return self.probe(worker_id, chunk, quorum=1, **fields)

    def named(
        self, worker_id: int, chunk: int, seen: int, lanes: Sequence[int] | None = None, **fields: object
    ) -> Packet:
        """Make the RESULT of such a slot that one worker should get, with whose contributions it has."""
        return self.result(worker_id, chunk, lanes, quorum=1, status=(seen, chunk), **fields)

    def all_named(
        self, chunk: int, seen: int, lanes: Sequence[int] | None = None, **fields: object
    ) -> list[Packet]:
        """Make the RESULTs of such a slot that all workers should get."""
        return [self.named(worker.worker_id, chunk, seen, lanes, **fields) for worker in self.workers]

    def part(self, each: int) -> list[int] | None:
        """Make the lanes of a worker, where the slots of quorums may have some."""
        return lanes_of(self.target, each) if self.target.can.lanes_in_quorums else None

    def total(self, parts: Sequence[Sequence[int] | None]) -> list[int] | None:
        """Add parts."""
        given = [part for part in parts if part is not None]
        return saturating_sum(given) if given else None

    def late(self) -> int:
        """Return how many late contributions were counted."""
        return self.target.counters(["late"], self.job_id)["late"]


MakeQuorum = Callable[..., QuorumJob]


@pytest.fixture
def make_quorum(target: Target, make_job: MakeJob) -> MakeQuorum:
    def make(workers: int, quorum: int, **given: Any) -> QuorumJob:
        job = make_job(workers=workers, kind=partial(QuorumJob, quorum=quorum), **given)
        assert isinstance(job, QuorumJob)
        return job

    return make


def needs_lanes(target: Target) -> None:
    """Skip where the slots of quorums have no lanes."""
    if not target.can.lanes_in_quorums:
        pytest.skip("on Tofino a slot that a quorum completes has no lanes")


@pytest.mark.parametrize("op", [SUM, MAX, BOR])
def test_headers_of_each_operation(make_quorum: MakeQuorum, op: int) -> None:
    job = make_quorum(workers=3, quorum=2)
    job.expect(job.offer(2, 0, op=op, exponent=4))
    job.expect(job.offer(1, 0, op=op, exponent=6), job.all_named(0, 0b110, op=op, exponent=6))
    job.expect(job.offer(0, 0, op=op, exponent=8), job.named(0, 0, 0b110, op=op, exponent=6))


def test_lanes_of_a_quorum_are_malformed_where_it_has_none(make_quorum: MakeQuorum, target: Target) -> None:
    job = make_quorum(workers=2, quorum=1)
    if target.can.lanes_in_quorums:
        pytest.skip("here a slot that a quorum completes may have lanes")
    with job.counting(malformed=1):
        job.expect(job.offer(0, 0, lanes_of(target, 0)))
    job.expect(job.offer(0, 0), job.all_named(0, 0b1))


def test_a_probe_of_another_tag_is_answered_with_what_the_slot_has(make_quorum: MakeQuorum) -> None:
    job = make_quorum(workers=3, quorum=2, slots=2)
    job.expect([job.offer(0, 4)])
    job.expect(job.quorum_probe(1, 0), job.answer(job.header(STATUS, 1, 0, status=(0b1, 4), quorum=1)))
    job.expect(job.quorum_probe(1, 8), job.answer(job.header(STATUS, 1, 8, status=(0b1, 4), quorum=1)))


def test_the_quorum_completes_the_slot_and_is_named(make_quorum: MakeQuorum) -> None:
    job = make_quorum(workers=5, quorum=3)
    with job.counting(contributions=3, results=1):
        job.expect([job.offer(4, 0), job.offer(1, 0)])
        job.expect(job.offer(2, 0), job.all_named(0, 0b10110))


def test_late_contributions_are_counted_and_answered_and_not_added(
    make_quorum: MakeQuorum, target: Target
) -> None:
    job = make_quorum(workers=4, quorum=2)
    parts = [job.part(each) for each in range(4)]
    total = job.total([parts[3], parts[0]])
    job.expect(job.offer(3, 0, parts[3], exponent=5))
    job.expect(job.offer(0, 0, parts[0], exponent=2), job.all_named(0, 0b1001, total, exponent=5))
    before = job.late()
    with job.counting():
        for worker_id in (1, 2):
            job.expect(
                job.offer(worker_id, 0, parts[worker_id], exponent=9),
                job.named(worker_id, 0, 0b1001, total, exponent=5),
            )
    assert job.late() - before == 2
    job.expect(job.quorum_probe(1, 0), job.status(1, 0, 0b1001, quorum=1))
    # Who is late again is counted again; Tofino's program has its bit by now, and counts a duplicate.
    counted = target.counters(["late", "duplicates_answered"], job.job_id)
    job.expect(job.offer(1, 0, parts[1], exponent=9), job.named(1, 0, 0b1001, total, exponent=5))
    again = target.counters(["late", "duplicates_answered"], job.job_id)
    assert sum(again.values()) - sum(counted.values()) == 1
    with job.counting(duplicates_answered=2):
        for worker_id in (0, 3):
            job.expect(job.offer(worker_id, 0, parts[1]), job.named(worker_id, 0, 0b1001, total, exponent=5))


def test_a_contribution_counts_once(make_quorum: MakeQuorum, target: Target) -> None:
    job = make_quorum(workers=4, quorum=3)
    parts = [job.part(each) for each in range(4)]
    with job.counting(contributions=2, duplicates_dropped=3):
        job.expect([job.offer(0, 0, parts[0])] * 3 + [job.offer(1, 0, parts[1])] * 2)
    total = job.total([parts[0], parts[1], parts[3]])
    job.expect(job.offer(3, 0, parts[3]), job.all_named(0, 0b1011, total))


@pytest.mark.parametrize("op", [SUM, MAX, BOR])
def test_each_operation(make_quorum: MakeQuorum, target: Target, op: int) -> None:
    job = make_quorum(workers=3, quorum=2)
    needs_lanes(target)
    parts = [lanes_of(target, each) for each in range(3)]
    operations: dict[int, Callable[[int, int], int]] = {SUM: operator.add, MAX: max, BOR: operator.or_}
    total = [operations[op](a, b) for a, b in zip(parts[1], parts[2], strict=True)]
    job.expect(job.offer(2, 0, parts[2], op=op))
    job.expect(job.offer(1, 0, parts[1], op=op), job.all_named(0, 0b110, total, op=op))
    job.expect(job.offer(0, 0, parts[0], op=op), job.named(0, 0, 0b110, total, op=op))


@pytest.mark.parametrize(("workers", "quorum"), [(1, 1), (8, 8), (8, 1), (32, 31), (32, 17)])
def test_any_number_of_workers(make_quorum: MakeQuorum, workers: int, quorum: int) -> None:
    job = make_quorum(workers=workers, quorum=quorum)
    order = sorted(range(workers), key=lambda each: each * 7919 % 101)
    seen = 0
    for worker_id in order[:quorum]:
        seen |= 1 << worker_id
        done = seen.bit_count() == quorum
        job.expect(job.offer(worker_id, 0), job.all_named(0, seen) if done else [])
    for worker_id in order[quorum:]:
        job.expect(job.offer(worker_id, 0), job.named(worker_id, 0, seen))


def test_a_status_shows_whose_contributions_there_are(make_quorum: MakeQuorum) -> None:
    job = make_quorum(workers=4, quorum=2)
    job.expect(job.offer(2, 0))
    job.expect(job.quorum_probe(0, 0, exponent=7), job.status(0, 0, 0b100, exponent=7, quorum=1))
    job.expect(job.offer(3, 0), job.all_named(0, 0b1100))
    job.expect(job.quorum_probe(0, 0, exponent=8), job.status(0, 0, 0b1100, exponent=8, quorum=1))
    job.expect(job.offer(0, 0), job.named(0, 0, 0b1100))


def test_other_slots_of_the_job_wait_for_all(make_quorum: MakeQuorum, target: Target) -> None:
    job = make_quorum(workers=3, quorum=2)
    parts = [lanes_of(target, each) for each in range(3)]
    job.expect([job.contribution(0, 0, parts[0]), job.contribution(1, 0, parts[1])])
    job.expect(job.contribution(2, 0, parts[2]), job.results(0, saturating_sum(parts)))


def test_a_slot_is_one_or_the_other(make_quorum: MakeQuorum) -> None:
    job = make_quorum(workers=3, quorum=2)
    job.expect(job.offer(0, 0))
    with job.counting(mismatches=1):
        job.expect(job.contribution(1, 0), job.statuses(0, 0b1, flags=MISMATCH))


def test_a_job_without_a_quorum_has_no_such_slots(
    make_quorum: MakeQuorum, make_job: MakeJob, target: Target
) -> None:
    job = make_job(workers=2)
    with job.counting(not_admitted=3):
        job.expect(
            [
                job.contribution(0, 0, quorum=1),
                job.contribution(1, 0, lanes_of(target, 1), quorum=1)
                if target.can.lanes_in_quorums
                else job.contribution(1, 0, quorum=1),
                job.probe(0, 0, quorum=1),
            ]
        )
    job.expect(job.contribution(0, 0))
    job.expect(job.contribution(1, 0), job.results(0))


def test_a_newer_chunk_takes_the_slot(make_quorum: MakeQuorum) -> None:
    job = make_quorum(workers=3, quorum=2, slots=2)
    job.expect([job.offer(0, 0)])
    job.expect(job.offer(1, 0), job.all_named(0, 0b11))
    job.expect(job.offer(2, 4))  # the same slot and version
    with job.counting(stale=2):
        job.expect([job.offer(0, 0), job.offer(2, 0)])
    job.expect(job.offer(1, 4), job.all_named(4, 0b110))


def test_a_late_header_gets_lanes_if_there_is_room(make_quorum: MakeQuorum, target: Target) -> None:
    job = make_quorum(workers=3, quorum=2)
    needs_lanes(target)
    parts = [lanes_of(target, each) for each in range(2)]
    total = saturating_sum(parts)
    job.expect(job.offer(0, 0, parts[0]))
    job.expect(job.offer(1, 0, parts[1]), job.all_named(0, 0b11, total))
    if 4 * target.lanes + 8 <= target.growth_bytes:
        job.expect(job.offer(2, 0), job.named(2, 0, 0b11, total))
    else:
        job.expect(job.offer(2, 0), job.answer(job.header(STATUS, 2, 0, status=(0b11, 0), quorum=1)))
        job.expect(job.offer(2, 0, parts[0]), job.named(2, 0, 0b11, total))
