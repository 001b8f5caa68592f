"""PROBE: the slot's contents for the sender, without changing them."""

from tests.dataplane.dataplane.frames import MAX
from tests.dataplane.dataplane.jobs import MakeJob, lanes_of, saturating_sum
from tests.dataplane.dataplane.target import Target


def test_says_who_contributed(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=3)
    parts = [lanes_of(target, worker) for worker in range(3)]
    job.expect(job.probe(0, 0), job.status(0, 0, 0))
    job.expect(job.contribution(0, 0, parts[0]))
    job.expect(job.probe(0, 0), job.status(0, 0, 0b001))
    job.expect(job.contribution(2, 0, parts[2]))
    for worker in range(3):
        job.expect(job.probe(worker, 0), job.status(worker, 0, 0b101))
    job.expect(job.contribution(1, 0, parts[1]), job.results(0, saturating_sum(parts)))
    with job.counting(probes=1):
        job.expect(job.probe(1, 0), job.status(1, 0, 0b111))


def test_says_which_chunk_the_slot_holds(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=1)
    job.expect(job.contribution(1, 4))
    job.expect(job.probe(0, 2), job.status(0, 2, 0b10, slot_chunk=4))
    job.expect(job.probe(0, 6), job.status(0, 6, 0b10, slot_chunk=4))
    job.expect(job.probe(0, 5), job.status(0, 5, 0, slot_chunk=5))  # the other version, never used


def test_knows_nothing_of_an_older_epoch(target: Target, make_job: MakeJob) -> None:
    old = make_job(job_id=7)
    old.expect(old.contribution(1, 0))
    old.end()
    new = make_job(job_id=7, slot_base=old.slot_base)
    new.expect(new.probe(0, 8), new.status(0, 8, 0, slot_chunk=8))


def test_echoes_what_was_asked(target: Target, make_job: MakeJob) -> None:
    """The exponent of a PROBE is a number of its own: by it the worker knows which PROBE a STATUS answers."""
    job = make_job()
    job.expect(job.contribution(0, 0, fingerprint=7, exponent=2, op=MAX))
    for exponent in (0, 1, 8191, 0xFFFF):
        asked = {"fingerprint": 7, "exponent": exponent, "op": MAX}
        job.expect(job.probe(1, 0, **asked), job.status(1, 0, 0b01, **asked))


def test_changes_nothing(target: Target, make_job: MakeJob) -> None:
    job = make_job(slots=1)
    parts = [lanes_of(target, worker) for worker in range(2)]
    job.expect(job.contribution(0, 0, parts[0], exponent=5))
    for chunk in (0, 2, 4, 2**31, 2**32 - 2):
        target.send([job.probe(1, chunk, exponent=9, fingerprint=3)])
    job.expect(job.contribution(1, 0, parts[1]), job.results(0, saturating_sum(parts), exponent=5))
