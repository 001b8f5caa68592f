"""A job while the service serves it: its record, who sits in it, what they were told."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from controller.errors import ControllerError
from controller.service.records import JobRecord, WorkerRecord
from controller.service.states import (
    JOB_TRANSITIONS,
    SEAT_TRANSITIONS,
    JobEvent,
    JobState,
    SeatEvent,
    SeatState,
    next_state,
)
from host_agent.wire import jobs_pb2
from host_agent.wire.jobs_pb2 import ToWorker


class Kind(Enum):
    """Of a refusal; the job API has a status code for each."""

    WRONG = "wrong"
    """It can never be done."""
    NOT_NOW = "not now"
    """It cannot be done as things are."""
    FULL = "full"
    UNKNOWN = "unknown"
    FORBIDDEN = "forbidden"
    TAKEN = "taken"
    TOO_LATE = "too late"


class RefusalError(ControllerError):
    """The service does not do what it was asked; the message goes to who asked."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Counted:
    """What a switch counted for a job.

    Attributes
    ----------
    packets
        By the names of its counters; empty if it did not answer.
    admitted
        Packets it admitted from each worker, by rank, in the job's present epoch; without those it did not tell of.
    """

    packets: Mapping[str, int] = field(default_factory=dict)
    admitted: Mapping[int, int] = field(default_factory=dict)


Outbox = asyncio.Queue[ToWorker | RefusalError | None]
"""What a worker's stream is to say; None or a refusal ends it."""


@dataclass(eq=False)
class Seat:
    """A worker's place in a job.

    Attributes
    ----------
    worker
        As it is kept.
    outbox
        Of the stream it is attached by; None while it has none.
    told_epoch
        The last epoch it was told of, 0 before the first.
    asked_again
        The epoch after which it has asked for another, 0 before.
    report, reported
        What it said last of itself, and when (`time.monotonic`).
    disconnect_timer
        The timer that makes it leave, while it is not attached.
    """

    worker: WorkerRecord
    outbox: Outbox | None = None
    told_epoch: int = 0
    asked_again: int = 0
    report: jobs_pb2.Report | None = None
    reported: float = 0.0
    disconnect_timer: asyncio.TimerHandle | None = None

    @property
    def rank(self) -> int:
        """Its worker id."""
        return self.worker.rank

    @property
    def ready(self) -> bool:
        """Whether it has said where it receives, and has not left."""
        return self.worker.udp_port > 0 and not self.worker.left

    @property
    def state(self) -> SeatState:
        """Where it stands."""
        if self.worker.left:
            return SeatState.LEFT
        return SeatState.DETACHED if self.outbox is None else SeatState.ATTACHED

    def attach(self, outbox: Outbox) -> None:
        """Give the seat a stream; its earlier one is ended."""
        self._check(SeatEvent.ATTACH)
        self.stop_disconnect_timer()
        if self.outbox is not None:
            self.outbox.put_nowait(None)
        self.outbox = outbox

    def detach(self) -> None:
        """Note that the seat's stream broke."""
        self._check(SeatEvent.DETACH)
        self.outbox = None

    def leave(self, reason: str) -> None:
        """Note that the worker has left."""
        self._check(SeatEvent.LEAVE)
        self.stop_disconnect_timer()
        self.outbox = None
        self.worker.left = reason

    def _check(self, event: SeatEvent) -> None:
        """Raise `TransitionError` if the event is not possible in the present state."""
        next_state(SEAT_TRANSITIONS, self.state, event, f"the seat of worker {self.rank}")

    def tell(self, message: ToWorker | RefusalError | None) -> None:
        """Put something on its stream, if it has one."""
        if self.outbox is not None:
            self.outbox.put_nowait(message)

    def take_report(self, report: jobs_pb2.Report) -> None:
        """Keep what it says of itself."""
        self.report, self.reported = report, time.monotonic()

    def stop_disconnect_timer(self) -> None:
        """Stop the timer that would make it leave."""
        if self.disconnect_timer is not None:
            self.disconnect_timer.cancel()
            self.disconnect_timer = None


@dataclass(eq=False)
class ServiceJob:
    """A job that has not ended.

    Attributes
    ----------
    record
        As it is kept.
    seats
        Its workers, by rank; those that have left stay until a restart.
    admitted_epoch
        The epoch that the switch is known to hold; 0 before the first.
    reason
        Why it waits, or was restarted last.
    queue_place
        Its place in the queue for its switch; 0 while it does not wait. A job that is being installed keeps its place until
        its workers are admitted.
    timer
        Of its queueing or idling.
    last_counted
        What the switch had counted when it ended.
    ended
        Set when it has ended.
    state
        Where it stands; changed by `on` alone. A job that an earlier controller ran is installing until its switch has been
        reconciled.
    """

    record: JobRecord
    seats: dict[int, Seat] = field(default_factory=dict)
    admitted_epoch: int = 0
    reason: str = ""
    queue_place: int = 0
    timer: asyncio.TimerHandle | None = None
    last_counted: Counted = field(default_factory=Counted)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    state: JobState = field(init=False)

    def __post_init__(self) -> None:
        self.state = JobState.INSTALLING if self.record.running else JobState.GATHERING

    @property
    def name(self) -> str:
        """Its name."""
        return self.record.name

    def on(self, event: JobEvent) -> None:
        """Change the state.

        Raises
        ------
        TransitionError
            The event is not possible in the present state.
        """
        self.state = next_state(JOB_TRANSITIONS, self.state, event, f"job {self.name}")
        self.record.running = self.state in (JobState.INSTALLING, JobState.RUNNING)

    def leave_queue(self) -> None:
        """Give up the job's place in the queue, if it has one."""
        self.queue_place = 0
        if self.state is JobState.QUEUED:
            self.on(JobEvent.DEQUEUE)

    @property
    def missing(self) -> list[int]:
        """The ranks that have not come."""
        return [
            rank
            for rank in range(self.record.world_size)
            if rank not in self.seats or not self.seats[rank].ready
        ]

    def present(self) -> Iterator[Seat]:
        """Iterate over the seats whose workers have not left."""
        return (seat for seat in self.seats.values() if not seat.worker.left)

    def sit(self, seat: Seat) -> None:
        """Give a worker its seat."""
        self.seats[seat.rank] = seat
        self.record.workers[seat.rank] = seat.worker

    def vacate(self, rank: int) -> None:
        """Take a seat away."""
        self.seats.pop(rank).stop_disconnect_timer()
        del self.record.workers[rank]

    def tell(self, message: ToWorker | RefusalError | None, but: Seat | None = None) -> None:
        """Tell all who sit in it."""
        for seat in self.present():
            if seat is not but:
                seat.tell(message)

    def tell_gathering(self) -> None:
        """Tell all who is missing, or why the job waits."""
        queued = self.reason if self.queue_place else ""
        self.tell(ToWorker(gathering=jobs_pb2.Gathering(missing=self.missing, queued=queued)))

    def tell_epoch(self, report_s: float) -> None:
        """Tell who does not know it yet of the epoch that the switch holds now."""
        for seat in self.present():
            self.tell_epoch_to(seat, report_s)

    def tell_epoch_to(self, seat: Seat, report_s: float) -> None:
        """Tell one worker, unless it knows already."""
        epoch = self.admitted_epoch
        if seat.outbox is None or seat.told_epoch == epoch or epoch != self.record.epoch:
            return
        ticket = self._ticket(seat)
        if seat.told_epoch:
            seat.tell(ToWorker(restarted=jobs_pb2.Restarted(admission=ticket, reason=self.reason)))
        else:
            seat.tell(ToWorker(admitted=jobs_pb2.Admitted(admission=ticket, report_s=report_s)))
        seat.told_epoch = epoch

    def stop_timer(self) -> None:
        """Stop the timer of its queueing or idling."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _ticket(self, seat: Seat) -> jobs_pb2.AdmissionTicket:
        record = self.record
        return jobs_pb2.AdmissionTicket(
            job_id=record.job_id,
            token=record.token,
            epoch=record.epoch,
            worker_id=seat.rank,
            num_workers=record.world_size,
            slot_count=record.slot_count,
            lanes=record.lanes,
            switch_ip=seat.worker.switch_ip,
            switch_port=seat.worker.switch_port,
        )
