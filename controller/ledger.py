"""The jobs of one switch, with their ids, epochs and slots. No I/O, no clock, no randomness.

Slots pass from one job to the next, and the switch treats the contents of a slot as stale only if the epoch differs, so epochs
count over all jobs of a switch. `max(last + 1, Unix seconds)` exceeds all earlier epochs even if a controller has lost its state.
"""

from collections.abc import Sequence
from dataclasses import replace

from controller.errors import JobRefusedError, UnknownJobError
from controller.jobs import Job, ParentLink, Reservation, WorkerEndpoint, check_quorum
from controller.slots import SlotAllocator, SlotRange
from host_agent.wire.constants import MAX_CHILDREN, MAX_JOB_ID
from netsum_common.targets import Capabilities

JOB_IDS = range(1, MAX_JOB_ID + 1)  # The switch counts packets of unknown jobs under job id 0.

MAX_EPOCH = 0xFFFF_FFFF
DEFAULT_SLOTS = 64  # For a job that requests no number.


class JobLedger:
    """The jobs of one switch.

    `capabilities`: those of the switch's program. `last_epoch`: the highest epoch known to have been used on this switch.
    """

    def __init__(self, capabilities: Capabilities, last_epoch: int = 0) -> None:
        self.allocator = SlotAllocator(capabilities.slots)
        self.capabilities = capabilities
        self._last_epoch = last_epoch
        self._jobs: dict[int, Job] = {}
        self._reserved: dict[str, Reservation] = {}

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that have not ended, by job id."""
        return tuple(self._jobs[job_id] for job_id in sorted(self._jobs))

    @property
    def free_slots(self) -> int:
        """The number of slots that no job holds."""
        return self.allocator.free_slots

    @property
    def largest_free(self) -> int:
        """The length of the longest slot range that is free; 0 if none."""
        return self.allocator.largest_free()

    @property
    def capacity(self) -> int:
        """The number of slots of the switch."""
        return self.allocator.capacity

    @property
    def last_epoch(self) -> int:
        """The highest epoch ever used."""
        return self._last_epoch

    @property
    def free_job_ids(self) -> list[int]:
        """The free job ids, ascending."""
        used = self._jobs.keys() | {held.job_id for held in self._reserved.values()}
        return [free for free in JOB_IDS if free not in used]

    def reserve(self, name: str, slots: int, job_id: int | None = None) -> "Reservation":
        """Reserve slots and a job id, any if `job_id` is None, for a job whose workers are not known yet.

        Raises JobRefusedError with the reason; nothing is reserved then.
        """
        if name in self._reserved or any(job.name == name for job in self.jobs):
            raise JobRefusedError(f"a job named {name!r} is running: end it first, or choose another name")
        free = self.free_job_ids
        if job_id is None and free:
            job_id = free[0]
        if job_id not in free:
            raise JobRefusedError(f"the switch has {len(JOB_IDS)} jobs, the maximum: end one first")
        held = Reservation(name, job_id, self.allocator.allocate(slots))
        self._reserved[name] = held
        return held

    def release(self, name: str) -> None:
        """Give up a reservation; `UnknownJobError` if there is none."""
        held = self._reserved.pop(name, None)
        if held is None:
            raise UnknownJobError(f"nothing is reserved for job {name!r}")
        self.allocator.free(held.slots)

    def restore(self, held: "Job | Reservation") -> None:
        """Restore a job or reservation of an earlier ledger; `JobRefusedError` if its id or its slots are not free."""
        if held.job_id not in self.free_job_ids:
            raise JobRefusedError(f"job id {held.job_id} of job {held.name!r} is taken")
        self.allocator.reserve(held.slots)
        if isinstance(held, Reservation):
            self._reserved[held.name] = held
        else:
            self._jobs[held.job_id] = held
            self._last_epoch = max(self._last_epoch, held.epoch)

    def current(self, job: Job) -> Job:
        """Return the present epoch of a job, given any epoch of it; `UnknownJobError` if it has ended."""
        present = self._jobs.get(job.job_id)
        if present is None or present.name != job.name:
            raise UnknownJobError(f"job {job.name!r} has ended, or belongs to another controller")
        return present

    def admit(
        self,
        name: str,
        workers: Sequence[WorkerEndpoint],
        slots: int,
        *,
        switch: tuple[str, int] | None,
        token: int,
        unix_seconds: int,
        parent: ParentLink | None = None,
        quorum: int = 0,
    ) -> Job:
        """Make a job.

        `name`: unique among the switch's jobs. `workers`: 1 to 32 endpoints. `slots`: chunks in flight at most; a power of
        two. Ignored if the name has a reservation. `switch`: the address for workers whose endpoint names none.
        `token`: 32 random bits. `unix_seconds`: the time now, or the epoch of the job's other switches if that is later.
        `parent`: the switch above in the job's tree. `quorum`: number of contributions that complete a quorum chunk; 0: no
        quorum. Raises JobRefusedError with the reason; nothing is reserved then.
        """
        placed = _placed(workers, switch)
        _refuse_shared_ports(placed, self.jobs)
        epoch = self._next_epoch(unix_seconds)
        reserved = self._reserved.get(name)
        check_quorum(quorum, len(placed), reserved.slots.count if reserved else slots)
        held = reserved or self.reserve(name, slots)
        job = Job(name, held.job_id, epoch, token, held.slots, self.capabilities, placed, parent, quorum)
        del self._reserved[name]
        self._last_epoch = epoch
        self._jobs[job.job_id] = job
        return job

    def renew(
        self,
        job: Job,
        *,
        token: int,
        unix_seconds: int,
        workers: Sequence[WorkerEndpoint] | None = None,
        parent: ParentLink | None = None,
    ) -> Job:
        """Give a job a new epoch and token on the same slots, whose earlier contents are stale from now on.

        `token`: 32 random bits that differ from the present token. `workers`: the workers' present endpoints; None: workers
        and parent are unchanged. `parent`: the switch above in the job's tree, if `workers` is given. Raises UnknownJobError
        if the job has ended. Raises JobRefusedError if the workers cannot be admitted; the job stays as it was. Raises
        ValueError if the token does not differ.
        """
        present = self.current(job)
        if token == present.token:
            raise ValueError("a restarted job needs a new token")
        placed, above = present.workers, present.parent
        if workers is not None:
            placed, above = _placed(workers, None), parent
            _refuse_shared_ports(placed, tuple(each for each in self.jobs if each is not present))
        self._last_epoch = self._next_epoch(unix_seconds)
        renewed = replace(present, epoch=self._last_epoch, token=token, workers=placed, parent=above)
        self._jobs[job.job_id] = renewed
        return renewed

    def resize(self, name: str, count: int) -> SlotRange:
        """Change the slots of a job or reservation to `count`, or to the most that are available if fewer.

        The present range counts as free. The caller gives a job its next epoch before the switch gets the new range.

        Returns at least as many slots as before unless `count` is less.
        """
        held = self._held_by(name)
        slots = self.allocator.resize(held.slots, count)
        if isinstance(held, Reservation):
            self._reserved[name] = replace(held, slots=slots)
        else:
            self._jobs[held.job_id] = replace(held, slots=slots)
        return slots

    def would_have(self, name: str, count: int) -> int:
        """Return how many slots `resize` would give a job or reservation."""
        return self.allocator.would_have(self._held_by(name).slots, count)

    def _held_by(self, name: str) -> Job | Reservation:
        """Return the reservation or job of a name; there must be one."""
        return self._reserved.get(name) or next(job for job in self.jobs if job.name == name)

    def discard(self, name: str) -> None:
        """End the job, or release the reservation, of a name if there is one."""
        for job in self.jobs:
            if job.name == name:
                self.end(job)
        if name in self._reserved:
            self.release(name)

    def end(self, job: Job) -> None:
        """Forget a job and free its slots; `UnknownJobError` if it has ended already."""
        self.allocator.free(self.current(job).slots)
        del self._jobs[job.job_id]

    def _next_epoch(self, unix_seconds: int) -> int:
        epoch = max(self._last_epoch + 1, unix_seconds)
        if not 0 < epoch <= MAX_EPOCH:
            raise JobRefusedError(
                f"the next epoch would be {epoch}, outside 1 to {MAX_EPOCH}: check the clock"
            )
        return epoch


def _placed(workers: Sequence[WorkerEndpoint], switch: tuple[str, int] | None) -> tuple[WorkerEndpoint, ...]:
    """Return the workers by worker id, with ids and the switch's address filled in."""
    if not 1 <= len(workers) <= MAX_CHILDREN:
        raise JobRefusedError(f"a job has 1 to {MAX_CHILDREN} workers, not {len(workers)}")
    placed = [
        replace(
            worker,
            worker_id=position if worker.worker_id is None else worker.worker_id,
            switch=worker.switch or switch,
        )
        for position, worker in enumerate(workers)
    ]
    placed.sort(key=lambda worker: worker.worker_id or 0)
    ids = [worker.worker_id for worker in placed]
    if ids != list(range(len(placed))):
        raise JobRefusedError(f"the worker ids of a job are 0 to {len(placed) - 1}, each once, not {ids}")
    if any(worker.switch is None for worker in placed):
        raise JobRefusedError(
            "the switch has no address yet: set it first, or give each worker the one to send to"
        )
    return tuple(placed)


def _refuse_shared_ports(workers: tuple[WorkerEndpoint, ...], jobs: tuple[Job, ...]) -> None:
    """Refuse two workers that would receive each other's results."""
    users = {
        (worker.ip, worker.udp_port): f"job {job.name!r}"
        for job in jobs
        for worker in job.workers
        if not worker.is_switch
    }
    for worker in workers:
        if worker.is_switch:
            continue
        place = (worker.ip, worker.udp_port)
        if place in users:
            raise JobRefusedError(
                f"worker {worker.worker_id} and {users[place]} both receive on {worker.ip}:{worker.udp_port}"
            )
        users[place] = f"worker {worker.worker_id}"
