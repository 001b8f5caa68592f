"""The slots that a job gets on its switches, in full or as a share, or on an aggregator host."""

from collections.abc import Mapping

from controller.errors import JobRefusedError
from controller.jobs import Reservation
from controller.service.aggregators import Aggregators
from controller.service.installation import Installation
from controller.service.jobs import ServiceJob
from controller.service.queues import JobQueues
from controller.service.records import JobRecord
from controller.service.shares import Shares
from controller.service.sizing import slots_for
from controller.service.trees import JobTrees
from controller.slots import SlotAllocator
from host_agent.words import plural


class SlotsComingError(JobRefusedError):
    """A job's slots are not available yet, but other jobs are about to give up slots, or an aggregator is starting."""


class Reservations:
    """Reserves slots for the jobs of a controller, and tells which jobs could get some."""

    def __init__(
        self,
        jobs: Mapping[str, ServiceJob],
        queues: JobQueues,
        switches: Installation,
        trees: JobTrees,
        shares: Shares,
        aggregators: Aggregators,
    ) -> None:
        self._jobs = jobs
        self._queues = queues
        self._switches = switches
        self._trees = trees
        self._shares = shares
        self._aggregators = aggregators

    def reserve(self, job: ServiceJob) -> None:
        """Reserve a job id and slots for a job; raise `JobRefusedError` with the reason if they are not available."""
        try:
            if job.record.request.on_host:
                raise JobRefusedError(f"job {job.name} is to be added on a host")
            held = self._on_switches(job)
        except SlotsComingError:
            raise
        except JobRefusedError as refusal:
            if not self._possible(job):
                raise
            held = self._on_a_host(job, refusal)
        job.record.hold(held)

    def ahead_of(self, job: ServiceJob) -> str:
        """Describe the jobs behind which a job would wait if it queued now; return an empty text if there are none."""
        record = job.record
        ahead = self._queues.ahead(record.queue)
        if not ahead or job.queue_place or record.job_id or record.request.if_full != "queue":
            return ""
        where = f"slots of switch {record.switch}" if record.switch else "slots"
        return f"{plural(ahead, 'other job')} already waiting for {where}"

    def release(self, job: ServiceJob) -> None:
        """Free a job's id and slots."""
        self._trees.ledgers.discard(job.name, job.record.slots_on)
        job.record.release()

    def _on_switches(self, job: ServiceJob) -> dict[str, Reservation]:
        """Reserve slots on a job's switches; raises as `reserve`."""
        record = job.record
        ahead = self.ahead_of(job)
        if ahead:
            raise JobRefusedError(ahead)
        return self._trees.reserve(record, self._switches.ready, self._share(job))

    def _share(self, job: ServiceJob) -> int | None:
        """Return how many slots a job gets as its share; None if jobs do not share slots.

        Raises SlotsComingError if other jobs must give up slots first. Raises JobRefusedError if the job's share is 0.
        """
        if not self._shares.active:
            return None
        record = job.record
        plan = self._shares.plan(self._switches.ready, job)
        share = plan.get(record.name)
        if share is None:
            return None  # No switch can take the job; the reservation gives the reason.
        if share == 0:
            raise JobRefusedError("no slots are free, and every job has the minimum: end a job first")
        free = self._trees.free_slots(record, self._switches.ready)
        if free >= share:
            return share
        givers = [
            one.name
            for one in self._jobs.values()
            if one.record.job_id and one.record.slot_count > plan.get(one.name, 0) > 0
        ]
        if givers:
            raise SlotsComingError(f"it waits for slots that {', '.join(givers)} will give up")
        return free or share

    def _on_a_host(self, job: ServiceJob, refusal: JobRefusedError) -> dict[str, Reservation]:
        """Reserve slots on an aggregator host for a job that no switch takes.

        Raises SlotsComingError if a host must first start its aggregator. Raises JobRefusedError if no host has room.
        """
        try:
            return self._trees.reserve_on_host(job.record, self._switches.ready)
        except JobRefusedError as none:
            why = str(none)
            coming = self._aggregators.start_one()
        if coming:
            raise SlotsComingError(f"{refusal}; {coming}") from None
        failures = self._aggregators.failures or (why if self._aggregators.hosts else "")
        if job.record.request.on_host and not failures:
            failures = "no aggregator has registered, or none has room"
        raise JobRefusedError(f"{refusal}; {failures}" if failures else str(refusal)) from None

    def room_at_home(self, job: ServiceJob) -> int:
        """Return how many slots a job on a host would get on its switches; 0 if it has to stay on the host."""
        home = job.record.at_home()
        ready = self._switches.ready
        try:
            free = self._trees.free_slots(home, ready)
            if self._shares.active:
                return min(self._shares.plan(ready).get(home.name, 0), free)
            asked = slots_for(home.slots, self._trees.lanes, self._trees.capacity)
        except JobRefusedError:
            return 0
        if home.request.if_full == "take less":
            asked = min(asked, free)
        return asked if asked <= free else 0

    def take_home(self, job: ServiceJob, slots: int) -> None:
        """Replace a job's slots on a host by slots on its switches, or by new ones on the host if the switches have no room."""
        record = job.record
        host = record.aggregator
        self.release(job)
        try:
            record.hold(self._trees.reserve(record, self._switches.ready, slots))
            job.reason = f"it returned from aggregator {host} to {', '.join(record.slots_on)}"
        except JobRefusedError as refusal:
            record.hold(self._trees.reserve_on_host(record, {host}))
            job.reason = f"it stays on aggregator {host}: {refusal}"

    def has_other_switches(self, job: ServiceJob) -> bool:
        """Whether switches that are ready could form a tree for a job."""
        unplaced = job.record.at_home()
        try:
            self._trees.place(unplaced, self._switches.ready)
        except JobRefusedError:
            return False
        return True

    def fits_ever(self, job: ServiceJob) -> bool:
        """Whether empty switches could grant the job's slots."""
        try:
            if job.record.spread and not job.missing:
                self._trees.place(job.record)
        except JobRefusedError:
            return False
        return self._possible(job)

    def _possible(self, job: ServiceJob) -> bool:
        """Whether an empty switch has as many slots as a job requests."""
        try:
            self.check(job.record)
        except JobRefusedError:
            return False
        return True

    def check(self, record: JobRecord) -> None:
        """Raise JobRefusedError with the reason if not even an empty switch could grant a job's slots."""
        capacity = self._trees.capacity
        count = slots_for(record.slots, self._trees.lanes, capacity)
        SlotAllocator(capacity).allocate(
            min(count, capacity) if record.request.if_full == "take less" else count
        )
