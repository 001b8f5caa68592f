"""The waiting jobs: those in line for slots, and others, which hold slots or do not queue for them."""

from collections.abc import Iterator

from controller.service.jobs import ServiceJob
from controller.service.states import JobEvent


class JobQueues:
    """The queues of a controller: one for each switch, and one, whose name is empty, for all jobs on trees.

    Thousands of jobs may be in line for slots, so they are kept apart from the few hundred others of a switch.
    """

    def __init__(self) -> None:
        self._asked = 0
        self._in_line: dict[str, dict[ServiceJob, None]] = {}
        self._others: dict[str, dict[ServiceJob, None]] = {}

    def on(self, job: ServiceJob, event: JobEvent) -> None:
        """Give a job a place when it begins to wait, and remove the place when the wait ends."""
        if event is JobEvent.ENQUEUE:
            self._asked += 1
            job.queue_place = job.queue_place or self._asked
        elif event in (JobEvent.ADMIT, JobEvent.DEQUEUE, JobEvent.RESTART, JobEvent.END):
            job.queue_place = 0
        self.sort_in(job)

    def sort_in(self, job: ServiceJob) -> None:
        """Put a job into the right queue after its place or its slots have changed."""
        lines_up = job.record.request.if_full == "queue" and not job.record.job_id
        for jobs, belongs in zip(self._of(job), (lines_up, not lines_up), strict=True):
            if belongs and job.queue_place:
                jobs.setdefault(job)
            else:
                jobs.pop(job, None)

    def put_back(self, job: ServiceJob) -> None:
        """Put a job whose last change was undone back into its earlier place."""
        held = [job in jobs for jobs in self._of(job)]
        self.sort_in(job)
        for jobs, was_there in zip(self._of(job), held, strict=True):
            # In other cases, the queue must not change, as `waiting` may iterate over it.
            if job in jobs and not was_there:
                ordered = sorted(jobs, key=lambda each: each.queue_place)
                jobs.clear()
                jobs.update(dict.fromkeys(ordered))

    def _of(self, job: ServiceJob) -> tuple[dict[ServiceJob, None], dict[ServiceJob, None]]:
        """Return the jobs in line, and the others, of a job's queue."""
        queue = job.record.queue
        return self._in_line.setdefault(queue, {}), self._others.setdefault(queue, {})

    def ahead(self, queue: str) -> int:
        """Return how many jobs wait for slots in a queue."""
        others = self._others.get(queue, {})
        return len(self._in_line.get(queue, {})) + sum(not job.record.job_id for job in others)

    @property
    def some_wait(self) -> bool:
        """Whether a job waits for slots in any queue."""
        return any(map(self.ahead, self._others))

    def waiting(self, queue: str) -> Iterator[ServiceJob]:
        """Iterate over the jobs to serve now: all that are not in line, then the line up to the first job that stays in it.

        The caller serves each job before it takes the next.
        """
        yield from [job for job in self._others.get(queue, {}) if job.queue_place]
        line = self._in_line.setdefault(queue, {})
        while line:
            job = next(iter(line))
            yield job
            if job in line:
                return
