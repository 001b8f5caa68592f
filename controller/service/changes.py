"""Changes of jobs, always in one order: memory, disk, then messages and switches.

A block under `Changes.of` changes memory and does not wait. At its end, the store writes the whole change in one transaction. If
the transaction fails, memory is restored. Messages, timers and transitions of the event log follow only once the change is on
disk, so a failed change has no effect outside. Switches come last, and get the state that is then in memory. If a switch refuses
or does not answer, the reconciliation at the beginning of its next session installs that state, or the job ends.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from controller.errors import JobStoreError
from controller.ledger import JobLedger
from controller.service.events import EventLog, Subject
from controller.service.records import JobRecord, WorkerRecord
from controller.service.store import JobStore
from controller.service.timer import Timer
from netsum_common.states import Event, State, next_state

log = logging.getLogger(__name__)

RETRY_S = 1.0  # Delay after which a change that the store did not take is tried again, in seconds.


class JobMember(Protocol):
    """A member of a job that changes."""

    worker: WorkerRecord


class ChangingJob(Protocol):
    """A job whose attributes a change may set; hashed by identity."""

    record: JobRecord
    on_disk: JobRecord | None  # The last saved record.

    @property
    def name(self) -> str:
        """The job's name."""

    @property
    def members(self) -> Mapping[int, JobMember]:
        """The members by rank."""

    @property
    def newcomers(self) -> Collection[JobMember]:
        """The members without a rank."""

    def to_keep(self) -> JobRecord | None:
        """Return the record to save; None if the store is to have no record of the job."""


J = TypeVar("J", bound=ChangingJob)


class Changes(Generic[J]):
    """The changes of a controller's jobs.

    `ledgers`: the jobs and reservations of each switch. `put_back`: puts a job whose change was undone back into its queue.
    """

    def __init__(
        self,
        store: JobStore,
        events: EventLog,
        ledgers: Mapping[str, JobLedger],
        put_back: Callable[[J], None],
    ) -> None:
        self._store = store
        self._events = events
        self._ledgers = ledgers
        self._put_back = put_back
        self._failed = False  # Whether the store did not take the last change.
        self._depth = 0  # The number of open blocks, which are nested.
        # State of the open blocks: the jobs that they change, their other writes to the store, and the calls that follow.
        self._jobs: dict[J, None] = {}
        self._writes: list[Callable[[], object]] = []
        self._then: list[Callable[[], object]] = []
        # Calls that wait for the store to recover, in order.
        self._owed: dict[tuple[Callable[..., object], tuple[object, ...]], None] = {}
        self._timer = Timer()

    @contextlib.contextmanager
    def of(self, *jobs: J) -> Iterator[None]:
        """Change jobs in a block that takes effect as a whole or not at all; a nested block is saved with the outer one.

        Raises JobStoreError if the change cannot be saved. An exception in the block is raised once its changes are undone.
        """
        before = list(_kept(jobs, self._ledgers.values()))
        marks = len(self._writes), len(self._then)
        self._jobs |= dict.fromkeys(jobs)
        self._depth += 1
        try:
            yield
            if self._depth == 1:
                self._save()
        except BaseException:
            for changed, values in before:
                vars(changed).update(values)
            for job in jobs:
                self._put_back(job)
            del self._writes[marks[0] :], self._then[marks[1] :]
            raise
        finally:
            self._depth -= 1
            if not self._depth:
                self._jobs.clear()
                self._writes.clear()
        if not self._depth:
            then, self._then = self._then, []
            for call in then:
                call()

    def write(self, call: Callable[..., object], *arguments: object) -> None:
        """Write to the store in the same transaction as the open block's jobs."""
        self._writes.append(lambda: call(*arguments))

    def after(self, call: Callable[..., object], *arguments: object) -> None:
        """Make an irreversible call: once the open block is on disk, or at once if no block is open."""
        if self._depth:
            self._then.append(lambda: call(*arguments))
        else:
            call(*arguments)

    def on(
        self,
        subject: Subject,
        table: Mapping[tuple[State, Event], State],
        state: State,
        event: Event,
        reason: str,
    ) -> State:
        """Return the state after an event; raises as `EventLog.on`, which records the transition."""
        after = next_state(table, state, event, str(subject))
        self.after(self._events.on, subject, table, state, event, reason)
        return after

    def begin(self, subject: Subject, event: str, state: Enum, reason: str) -> None:
        """Record the first state of a subject."""
        self.after(self._events.begin, subject, event, state, reason)

    def note(self, subject: Subject, event: str, state: Enum, reason: str) -> None:
        """Record an event that changes no state."""
        self.after(self._events.note, subject, event, state, reason)

    def certainly(self, call: Callable[..., object], *arguments: object) -> None:
        """Apply a change that cannot be refused, as its event has happened; retry while the store fails.

        `call`: makes the change; it must check each time whether anything is left to change.
        """
        try:
            call(*arguments)
        except JobStoreError:
            self.again(call, *arguments)

    def again(self, call: Callable[..., object], *arguments: object) -> None:
        """Call a function when the store may have recovered; equal requests are merged."""
        self._owed[call, arguments] = None
        if not self._timer:
            self._timer.start(RETRY_S, self._retry)

    def close(self) -> None:
        """Drop the calls that wait for the store, as the next controller finds the unchanged state on disk."""
        self._owed.clear()
        self._timer.stop()

    def _retry(self) -> None:
        """Make the waiting calls in order until the store fails again, as each failing call may block."""
        self._timer.stop()
        try:
            for call, arguments in list(self._owed):
                self._owed.pop((call, arguments), None)
                try:
                    call(*arguments)
                except JobStoreError:
                    self._owed = {(call, arguments): None, **self._owed}
                    return
        finally:
            if self._owed:
                self._timer.start(RETRY_S, self._retry)

    def _save(self) -> None:
        """Write the changed records of the open block's jobs; delete the records of jobs whose `to_keep` is None."""
        due = {job: job.to_keep() for job in self._jobs}
        due = {job: kept for job, kept in due.items() if kept != job.on_disk}
        if not due and not self._writes:
            return
        try:
            with self._store.transaction():
                for job, kept in due.items():
                    if kept is None:
                        self._store.delete_job(job.name)
                    else:
                        self._store.save(kept)
                for call in self._writes:
                    call()
        except JobStoreError as fault:
            if not self._failed:
                log.error("%s", fault)
            self._failed = True
            raise
        if self._failed:
            log.warning("the controller's state can be saved again")
        self._failed = False
        for job, kept in due.items():
            job.on_disk = kept


def _kept(
    jobs: Iterable[ChangingJob], ledgers: Iterable[JobLedger]
) -> Iterator[tuple[object, dict[str, Any]]]:
    """Iterate over the objects that a change of jobs may change, with copies of their attributes."""
    for job in jobs:
        yield from map(_copied, (job, job.record))
        for member in (*job.members.values(), *job.newcomers):
            yield from map(_copied, (member, member.worker))
    for ledger in ledgers:
        yield from map(_copied, (ledger, ledger.allocator))


def _copied(one: object) -> tuple[object, dict[str, Any]]:
    copies = {
        name: value.copy() if isinstance(value, dict | list | set) else value
        for name, value in vars(one).items()
    }
    return one, copies
