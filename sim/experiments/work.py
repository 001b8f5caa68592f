"""The work of a job, independent of how it reduces: iterations of computing, and buckets to reduce meanwhile."""

from dataclasses import dataclass

from sim.experiments.settings import JobTable
from sim.network.engine.dice import CHANCES, philox
from sim.traces.graph import Kind
from sim.traces.reading import read_trace

_LATE = 7  # The purpose of these dice (`sim.network.engine.dice`).


@dataclass(frozen=True)
class Bucket:
    """Bytes to reduce, how long after the backward pass has begun they are there, and the share of blocks that are not zero."""

    size: int
    ready_ns: int
    density: float = 1.0
    kind: Kind = "all-reduce"
    root: int = -1  # Root of a broadcast, or of a reduce, whose result no other rank needs.
    common: bool = False  # The blocks that are zero are so at all workers.


@dataclass(frozen=True)
class Work:
    """Iterations: a forward pass, then a backward pass while which buckets become ready.

    Plain all-reduces are iterations that compute nothing, or for a time that the job states, with one bucket. So is an iteration
    of a trace: its bucket are the bytes of all communication of a rank.
    """

    iterations: int
    forward_ns: int
    backward_ns: int
    buckets: tuple[Bucket, ...]

    @property
    def computing_ns(self) -> int:
        """How long an iteration would take if nothing had to be sent."""
        return self.forward_ns + self.backward_ns


def work_of(job: JobTable) -> Work:
    """Return the work of a job.

    A round of a job with a quorum reduces one array, which is complete when all computing has ended.

    Raises SettingError: there is no such model or trace.
    """
    if job.workload:
        trace = read_trace(job.workload, job.workers)
        size = sum(step.node.size for step in trace.steps if 0 in step.ranks)
        return Work(job.collectives, trace.computing_ns(job.batch), 0, (Bucket(size, 0),))
    work = _work_of(job)
    if not job.quorum:
        return work
    size = sum(bucket.size for bucket in work.buckets)
    return Work(work.iterations, work.computing_ns, 0, (Bucket(size, 0),))


def _work_of(job: JobTable) -> Work:
    if job.model:
        from sim.experiments.models import buckets_of, load_model

        model = load_model(job.model).scaled(job.batch)
        buckets = tuple(
            Bucket(size, ready, density * job.density)
            for size, ready, density in buckets_of(model, job.bucket)
        )
        return Work(job.collectives, model.forward_ns, model.backward_ns, buckets)
    return Work(job.collectives, job.compute, 0, (Bucket(job.size, 0, job.density),))


def slowness(job: JobTable, worker: int) -> float:
    """Return how many times longer a worker computes."""
    return job.slower if worker == job.straggler else 1.0


def late_ns(job: JobTable, seed: int, worker: int, iteration: int) -> int:
    """Return how much later than it might a worker begins an iteration."""
    late = job.late if worker == job.straggler else 0
    if job.jitter:
        late += job.jitter * int(philox(seed, _LATE, worker, iteration)) // CHANCES
    return late
