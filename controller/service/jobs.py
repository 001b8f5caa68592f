"""A job while the service runs it: its record, its state, its members, and the messages to its workers."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from controller.errors import ControllerError
from controller.jobs import Job
from controller.service.changes import Changes
from controller.service.events import Subject
from controller.service.last_ranks import LastRanks
from controller.service.records import JobRecord, WorkerRecord
from controller.service.states import (
    JOB_TRANSITIONS,
    MEMBER_TRANSITIONS,
    JobEvent,
    JobState,
    MemberEvent,
    MemberState,
)
from controller.service.timer import Timer
from controller.trees import Tree
from host_agent.job_api import jobs_pb2
from host_agent.job_api.jobs_pb2 import ToWorker
from host_agent.job_api.tickets import ticket_of
from host_agent.wire import Admission


class Kind(Enum):
    """The kind of a refusal; the job API maps each to a gRPC status code."""

    WRONG = "wrong"  # The request is invalid.
    NOT_NOW = "not now"  # The request is not possible in the present state.
    FULL = "full"
    UNKNOWN = "unknown"
    FORBIDDEN = "forbidden"
    TAKEN = "taken"
    TOO_LATE = "too late"


class RefusalError(ControllerError):
    """The service refuses a request; the client receives the message."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Counted:
    """The packets that switches counted for one job."""

    # Packets by counter; empty if the switch did not answer.
    packets: Mapping[str, int] = field(default_factory=dict)
    # Packets admitted from each worker in the current epoch, by rank; unavailable counts are omitted.
    admitted: Mapping[int, int] = field(default_factory=dict)
    # Packets by switch and counter; `packets` are those of the root.
    by_switch: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


Outbox = asyncio.Queue[ToWorker | RefusalError | None]
"""The messages to send on a worker's stream; None or a refusal ends it."""


@dataclass(eq=False)
class Member:
    """A worker's place in a job."""

    worker: WorkerRecord  # The worker's record in the store.
    job: str  # The job's name.
    changes: "Changes[ServiceJob]"  # Defers transitions and messages until a change is on disk.
    outbox: Outbox | None = None  # The queue of the worker's stream; None while the worker is detached.
    sent_epoch: int = 0  # The last epoch that was sent to the worker; 0 before the first.
    asked_again: int = 0  # The epoch that the worker asked to replace; 0 if it did not.
    asked_resize: int = 0  # The epoch after which the worker asked to resize the job; 0 if it did not.
    # report, reported: the worker's last report, and the time of its arrival (`time.monotonic`).
    report: jobs_pb2.Report | None = None
    reported: float = 0.0
    # Makes the worker leave if it does not reattach in time; stopped while it is attached.
    disconnect_timer: Timer = field(default_factory=Timer)

    @property
    def rank(self) -> int:
        """The worker's rank."""
        return self.worker.rank

    @property
    def ready(self) -> bool:
        """Whether the worker has sent its UDP port and has not left."""
        return self.worker.udp_port > 0 and not self.worker.left

    @property
    def state(self) -> MemberState:
        """The state of the member."""
        if self.worker.left:
            return MemberState.LEFT
        return MemberState.DETACHED if self.outbox is None else MemberState.ATTACHED

    @property
    def subject(self) -> Subject:
        """The member as the subject of transitions."""
        return Subject(self.job, self.rank)

    def attach(self, outbox: Outbox) -> None:
        """Give the member a stream, and end its earlier stream."""
        self._on(MemberEvent.ATTACH, "")
        self.disconnect_timer.stop()
        if self.outbox is not None:
            self.outbox.put_nowait(None)
        self.outbox = outbox

    def detach(self) -> None:
        """Note that the member's stream broke."""
        self._on(MemberEvent.DETACH, "its stream broke")
        self.outbox = None

    def leave(self, reason: str) -> None:
        """Note that the worker has left."""
        self._on(MemberEvent.LEAVE, reason)
        self.changes.after(self.disconnect_timer.stop)
        self.outbox = None
        self.worker.left = reason

    def _on(self, event: MemberEvent, reason: str) -> None:
        """Record a transition; raise `TransitionError` if the event is not possible in the present state."""
        self.changes.on(self.subject, MEMBER_TRANSITIONS, self.state, event, reason)

    def send(self, message: ToWorker | RefusalError | None) -> None:
        """Send a message to the worker if it is attached."""
        if self.outbox is not None:
            self.changes.after(self.outbox.put_nowait, message)


@dataclass(eq=False)
class ServiceJob:
    """A job that has not ended."""

    record: JobRecord  # The job's record, as it is to be saved.
    # Called with the job and an event after its state has changed.
    changed: Callable[["ServiceJob", JobEvent], None]
    changes: "Changes[ServiceJob]"  # Defers transitions and messages until a change is on disk.
    on_disk: JobRecord | None = None  # The record in the store; None: there is none.
    # The members by rank. A worker that left a running job stays a member until a restart.
    members: dict[int, Member] = field(default_factory=dict)
    # Members of workers that wait to be added when the job is resized.
    newcomers: list[Member] = field(default_factory=list)
    resizing: bool = False  # Whether the workers wait for the first epoch after a resize.
    admitted_epoch: int = 0  # The last epoch that all its switches are known to hold; 0 before the first.
    # tree, parts, admissions: for the last epoch, the switches that add for the job, its part on each (the root first), and the
    # admissions by rank.
    tree: Tree | None = None
    parts: dict[str, Job] = field(default_factory=dict)
    admissions: list[Admission] = field(default_factory=list)
    installed: dict[str, int] = field(default_factory=dict)  # The epoch that each switch is known to hold.
    reason: str = ""  # Why the job waits, or why it was last restarted.
    # The job's place in its queue, given by `JobQueues`; 0 while the job does not wait. A job that is being installed keeps
    # its place until its workers are admitted.
    queue_place: int = 0
    timer: Timer = field(default_factory=Timer)  # Ends a job that waits, or has no workers, too long.
    asked_at: float | None = None  # Time of the request for the first slots (`time.monotonic`); None before.
    waited_s: float | None = None  # How long the job waited for its first slots, in s; None while it waits.
    last_counted: Counted = field(default_factory=Counted)  # The switch's counts when the job ended.
    ended: asyncio.Event = field(default_factory=asyncio.Event)  # Set when the job has ended.
    # The job's state, which only `on` changes. A job that an earlier controller ran is installing until its switches have been
    # reconciled.
    state: JobState = field(init=False)
    last_ranks: LastRanks = field(init=False)  # Finds the worker that begins collectives last.

    def __post_init__(self) -> None:
        self.last_ranks = LastRanks(self.record.world_size)
        self.state = JobState.INSTALLING if self.record.running else JobState.GATHERING

    @property
    def name(self) -> str:
        """The job's name."""
        return self.record.name

    @property
    def subject(self) -> Subject:
        """The job as the subject of transitions."""
        return Subject(self.name)

    def on(self, event: JobEvent, reason: str = "") -> None:
        """Change the state, and record why; `TransitionError` if the event is not possible in the present state."""
        self.state = self.changes.on(self.subject, JOB_TRANSITIONS, self.state, event, reason)
        self.record.running = self.state in (JobState.INSTALLING, JobState.RUNNING, JobState.HELD)
        self.changed(self, event)

    def to_keep(self) -> JobRecord | None:
        """Return a copy of the record for the store; None for a job that its workers would create again."""
        operated = self.record.operated and self.state is not JobState.ENDED
        return self.record.copy() if operated or self.record.running else None

    @property
    def waited_so_far_s(self) -> float:
        """How long the job has waited for its first slots, in seconds."""
        if self.waited_s is not None or self.asked_at is None:
            return self.waited_s or 0.0
        return time.monotonic() - self.asked_at

    def leave_queue(self) -> None:
        """Give up the job's place in the queue, if it has one."""
        if self.state is JobState.QUEUED:
            self.on(JobEvent.DEQUEUE, f"it waits for workers {', '.join(map(str, self.missing))}")

    @property
    def missing(self) -> list[int]:
        """The ranks that have not joined."""
        return [
            rank
            for rank in range(self.record.world_size)
            if rank not in self.members or not self.members[rank].ready
        ]

    def present(self) -> Iterator[Member]:
        """Iterate over the members whose workers have not left."""
        return (member for member in self.members.values() if not member.worker.left)

    def current_and_joining(self) -> Iterator[Member]:
        """Iterate over the members whose workers have not left, and over the newcomers."""
        yield from self.present()
        yield from self.newcomers

    @property
    def not_asked_to_resize(self) -> list[int]:
        """The present ranks that have not asked to resize the job in its current epoch."""
        return sorted(member.rank for member in self.present() if member.asked_resize != self.record.epoch)

    def send_newcomers(self) -> None:
        """Send all workers the number of newcomers."""
        count = sum(member.ready for member in self.newcomers)
        self.send(ToWorker(newcomers=jobs_pb2.Newcomers(count=count)))

    def renumber(self) -> None:
        """Renumber the present workers, then the newcomers, from rank 0 on; drop the members of workers that have left."""
        waiting = [member for member in self.newcomers if member.ready]
        going_on = sorted(self.present(), key=lambda member: member.rank)
        self.members.clear()
        self.record.workers.clear()
        for rank, member in enumerate(going_on + waiting):
            member.worker.rank = rank
            self.add_member(member)
        self.newcomers = [member for member in self.newcomers if member not in waiting]
        self.record.request = replace(self.record.request, world_size=len(self.members))
        self.last_ranks = LastRanks(len(self.members))

    def add_member(self, member: Member) -> None:
        """Add a member."""
        self.members[member.rank] = member
        self.record.workers[member.rank] = member.worker

    def remove_member(self, rank: int) -> None:
        """Remove a member."""
        self.changes.after(self.members.pop(rank).disconnect_timer.stop)
        del self.record.workers[rank]

    def take_report(self, member: Member, report: jobs_pb2.Report) -> None:
        """Keep a worker's report."""
        corrupted = report.corrupted - (member.report.corrupted if member.report is not None else 0)
        if corrupted > 0:
            self.changes.note(
                member.subject, "corrupted", member.state, f"results that failed their check: {corrupted}"
            )
        member.report, member.reported = report, time.monotonic()
        if not self.record.request.quorum:  # A quorum does not wait for its last worker.
            self.last_ranks.add(member.rank, report.durations)

    def send(self, message: ToWorker | RefusalError | None, but: Member | None = None) -> None:
        """Send a message to all workers that have not left, except `but`."""
        for member in self.present():
            if member is not but:
                member.send(message)

    def send_gathering(self) -> None:
        """Send all workers the missing ranks and, if the job waits for more than workers, the reason."""
        queued = "" if self.state is JobState.GATHERING else self.reason
        self.send(ToWorker(gathering=jobs_pb2.Gathering(missing=self.missing, queued=queued)))

    def send_epoch_to(self, member: Member, report_s: float) -> None:
        """Send the current admission to one worker, unless the worker has it already."""
        epoch = self.admitted_epoch
        if member.outbox is None or member.sent_epoch == epoch or epoch != self.record.epoch:
            return
        ticket = ticket_of(self.admissions[member.rank])
        if member.sent_epoch and member.sent_epoch == self.record.moved_from:
            member.send(ToWorker(moved=jobs_pb2.Moved(admission=ticket, reason=self.reason)))
        elif member.sent_epoch:
            member.send(ToWorker(restarted=jobs_pb2.Restarted(admission=ticket, reason=self.reason)))
        else:
            member.send(ToWorker(admitted=jobs_pb2.Admitted(admission=ticket, report_s=report_s)))
        member.sent_epoch = epoch
