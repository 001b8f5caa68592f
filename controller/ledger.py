"""The jobs of switches, with their ids, epochs and slots; a job has one id, epoch and token on all of its switches. No I/O.

Slots pass from one job to the next, and the switch treats the contents of a slot as stale only if the epoch differs, so epochs
count over all jobs of a switch. `max(last + 1, Unix seconds)` exceeds all earlier epochs even if a controller has lost its state.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controller.errors import JobRefusedError, UnknownJobError
from controller.jobs import Job, ParentLink, Reservation, WorkerEndpoint
from controller.slots import SlotAllocator, SlotRange
from controller.trees import Tree
from host_agent.job_api.job_request import JobRequest
from host_agent.wire.constants import MAX_CHILDREN, MAX_JOB_ID
from netsum_common.targets import Capabilities

JOB_IDS = range(1, MAX_JOB_ID + 1)  # The switch counts packets of unknown jobs under job id 0.

MAX_EPOCH = 0xFFFF_FFFF
DEFAULT_SLOTS = 64  # For a job that requests no number.


class JobLedger:
    """The jobs and reservations of one switch.

    `capabilities`: those of the switch's program. `last_epoch`: the highest epoch known to have been used on this switch.
    """

    def __init__(self, capabilities: Capabilities, last_epoch: int = 0) -> None:
        self.allocator = SlotAllocator(capabilities.slots)
        self.capabilities = capabilities
        self.last_epoch = last_epoch  # The highest epoch ever used.
        self._held: dict[str, Job | Reservation] = {}  # By the names of jobs.

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that have not ended, by job id."""
        jobs = [held for held in self._held.values() if isinstance(held, Job)]
        return tuple(sorted(jobs, key=lambda job: job.job_id))

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
    def free_job_ids(self) -> list[int]:
        """The free job ids, ascending."""
        used = {held.job_id for held in self._held.values()}
        return [free for free in JOB_IDS if free not in used]

    def reserve(self, request: JobRequest, slots: int, job_id: int | None = None) -> Reservation:
        """Reserve slots and a job id, any if `job_id` is None, for a job whose workers are not known yet.

        Raises JobRefusedError with the reason; nothing is reserved then.
        """
        try:
            request.check()
        except ValueError as expected:
            raise JobRefusedError(str(expected)) from None
        if slots < request.least_slots:
            raise JobRefusedError(f"a job with a quorum needs {request.least_slots} slots, not {slots}")
        if request.name in self._held:
            raise JobRefusedError(
                f"a job named {request.name!r} is running: end it first, or choose another name"
            )
        free = self.free_job_ids
        if job_id is None and free:
            job_id = free[0]
        if job_id not in free:
            raise JobRefusedError(f"the switch has {len(JOB_IDS)} jobs, the maximum: end one first")
        held = self._held[request.name] = Reservation(request.name, job_id, self.allocator.allocate(slots))
        return held

    def restore(self, held: Job | Reservation) -> None:
        """Restore a job or reservation of an earlier ledger; `JobRefusedError` if its id or its slots are not free."""
        if held.job_id not in self.free_job_ids:
            raise JobRefusedError(f"job id {held.job_id} of job {held.name!r} is taken")
        self.allocator.reserve(held.slots)
        self._held[held.name] = held
        if isinstance(held, Job):
            self.last_epoch = max(self.last_epoch, held.epoch)

    def admit(
        self,
        request: JobRequest,
        workers: Sequence[WorkerEndpoint],
        *,
        token: int,
        unix_seconds: int,
        parent: ParentLink | None = None,
    ) -> Job:
        """Give a job its next epoch, on the slots that it has or that are reserved for it; their earlier contents are stale then.

        `workers`: 1 to 32 endpoints. `token`: 32 random bits that differ from the present token. `unix_seconds`: the time now,
        or the epoch of the job's other switches if that is later. `parent`: the switch above in the job's tree. Raises
        UnknownJobError if the job holds no slots. Raises JobRefusedError with the reason; everything stays as it was then.
        Raises ValueError if the token does not differ.
        """
        held = self.held(request.name)
        if isinstance(held, Job) and token == held.token:
            raise ValueError("a restarted job needs a new token")
        placed = _placed(workers)
        _refuse_shared_ports(placed, [job for job in self.jobs if job is not held])
        epoch = max(self.last_epoch + 1, unix_seconds)
        if not 0 < epoch <= MAX_EPOCH:
            raise JobRefusedError(
                f"the next epoch would be {epoch}, outside 1 to {MAX_EPOCH}: check the clock"
            )
        job = Job(request, held.job_id, epoch, token, held.slots, self.capabilities, placed, parent)
        self.last_epoch, self._held[request.name] = epoch, job
        return job

    def resize(self, name: str, count: int) -> SlotRange:
        """Change the slots of a job or reservation to `count`, or to the most that are available if fewer.

        The present range counts as free. The caller gives a job its next epoch before the switch gets the new range.

        Returns at least as many slots as before unless `count` is less.
        """
        held = self.held(name)
        slots = self.allocator.resize(held.slots, count)
        self._held[name] = replace(held, slots=slots)
        return slots

    def would_have(self, name: str, count: int) -> int:
        """Return how many slots `resize` would give a job or reservation."""
        return self.allocator.would_have(self.held(name).slots, count)

    def held(self, name: str) -> Job | Reservation:
        """Return the job or reservation of a name; `UnknownJobError` if there is none."""
        if name not in self._held:
            raise UnknownJobError(f"job {name!r} has ended, or belongs to another controller")
        return self._held[name]

    def discard(self, name: str) -> None:
        """End the job, or release the reservation, of a name if there is one."""
        if name in self._held:
            self.allocator.free(self._held.pop(name).slots)


class Ledgers(dict[str, JobLedger]):
    """The ledgers of a controller's switches, by the switches' names; a job is on all of its switches or on none."""

    def load(self, switch: str) -> float:
        """Return the fraction of a switch's slots that jobs hold."""
        ledger = self[switch]
        return 1 - ledger.free_slots / ledger.capacity

    def reserve(self, request: JobRequest, switches: Sequence[str], slots: int) -> dict[str, Reservation]:
        """Reserve one job id, and slots on each of a job's switches.

        Returns the reservations by switch, in the given order. Raises JobRefusedError with the reason; nothing is reserved
        then.
        """
        ledgers = [self[switch] for switch in switches]
        common = set.intersection(*(set(ledger.free_job_ids) for ledger in ledgers))
        job_id = min(common) if common else None
        if job_id is None and len(switches) > 1:
            raise JobRefusedError(f"no job id is free on all of {', '.join(switches)}: end a job first")
        held: dict[str, Reservation] = {}
        try:
            for switch, ledger in zip(switches, ledgers, strict=True):
                held[switch] = ledger.reserve(request, slots, job_id)
        except JobRefusedError as refusal:
            self.discard(request.name, held)
            where = f"switch {switches[len(held)]}: " if len(switches) > 1 else ""
            raise JobRefusedError(f"{where}{refusal}") from None
        return held

    def restore(self, parts: Mapping[str, Job | Reservation]) -> None:
        """Restore a job's parts, by the switches' names, on all its switches or on none; raises as `JobLedger.restore`."""
        done: dict[str, Job | Reservation] = {}
        try:
            for switch, part in parts.items():
                self[switch].restore(part)
                done[switch] = part
        except JobRefusedError:
            for switch, part in done.items():
                self[switch].discard(part.name)
            raise

    def admit(
        self, request: JobRequest, tree: Tree, *, token: int, unix_seconds: int, last_epoch: int = 0
    ) -> dict[str, Job]:
        """Give a job its next epoch on all switches of its tree, where its slots are reserved or held.

        `tree`: the switches, and the children that each adds for. `token`: 32 random bits that differ from the present token.
        `last_epoch`: the last epoch that the job's workers know, perhaps of other switches. Returns the job's part on each
        switch, the root first. Raises JobRefusedError if a switch cannot admit its part.
        """
        last = max(last_epoch, *(self[branch.switch].last_epoch for branch in tree.branches))
        epoch = max(last + 1, unix_seconds)
        return {
            branch.switch: self[branch.switch].admit(
                request, branch.children, token=token, unix_seconds=epoch, parent=branch.parent
            )
            for branch in tree.branches
        }

    def resize(self, name: str, switches: Iterable[str], slots: int) -> dict[str, SlotRange]:
        """Change a job's slots on each of its switches to `slots`, or to the most that all switches have for it if fewer."""
        ranges = {switch: self[switch].resize(name, slots) for switch in switches}
        count = min(held.count for held in ranges.values())
        for switch, held in ranges.items():
            if held.count > count:
                ranges[switch] = self[switch].resize(name, count)
        return ranges

    def would_have(self, name: str, switches: Iterable[str], slots: int) -> int:
        """Return how many slots, at most `slots`, `resize` would give a job now."""
        return min(self[switch].would_have(name, slots) for switch in switches)

    def discard(self, name: str, switches: Iterable[str]) -> None:
        """Free a job's id and slots on switches; switches that are gone are skipped."""
        for switch in switches:
            if switch in self:
                self[switch].discard(name)


def _placed(workers: Sequence[WorkerEndpoint]) -> tuple[WorkerEndpoint, ...]:
    """Return the workers by worker id, with the ids filled in."""
    if not 1 <= len(workers) <= MAX_CHILDREN:
        raise JobRefusedError(f"a job has 1 to {MAX_CHILDREN} workers, not {len(workers)}")
    placed = [
        replace(worker, worker_id=position if worker.worker_id is None else worker.worker_id)
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


def _refuse_shared_ports(workers: tuple[WorkerEndpoint, ...], jobs: Sequence[Job]) -> None:
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
