"""What a job does, whatever reduces for it: iterations of computing, and buckets to reduce meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from sim.experiments.settings import Job
from sim.network.engine.dice import CHANCES, philox

__all__ = ["Bucket", "Work", "late_ns", "slowness", "work_of"]

_LATE = 7
"""The purpose of these dice (`sim.network.engine.dice`)."""


@dataclass(frozen=True)
class Bucket:
    """Bytes to reduce, and how long after the backward pass has begun they are there."""

    size: int
    ready_ns: int


@dataclass(frozen=True)
class Work:
    """Iterations: a forward pass, then a backward pass while which buckets become ready.

    Plain all-reduces are iterations that compute nothing, with one bucket.
    """

    iterations: int
    forward_ns: int
    backward_ns: int
    buckets: tuple[Bucket, ...]

    @property
    def computing_ns(self) -> int:
        """How long an iteration would take if nothing had to be sent."""
        return self.forward_ns + self.backward_ns


def work_of(job: Job) -> Work:
    """Return what a job does."""
    if job.model:
        from sim.experiments.models import buckets_of, load_model

        model = load_model(job.model).scaled(job.batch)
        buckets = tuple(Bucket(size, ready) for size, ready in buckets_of(model, job.bucket))
        return Work(job.collectives, model.forward_ns, model.backward_ns, buckets)
    return Work(job.collectives, 0, 0, (Bucket(job.size, 0),))


def slowness(job: Job, worker: int) -> float:
    """Return how many times longer a worker computes."""
    return job.slower if worker == job.straggler else 1.0


def late_ns(job: Job, seed: int, worker: int, iteration: int) -> int:
    """Return how much later than it might a worker begins an iteration."""
    late = job.late if worker == job.straggler else 0
    if job.jitter:
        late += job.jitter * int(philox(seed, _LATE, worker, iteration)) // CHANCES
    return late
