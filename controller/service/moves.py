"""The moves of a service's running jobs: messages to their workers, deadlines, and retries.

`controller.moves` decides how a move continues after a worker's answer. Until a move is carried out, it can be given up; the
workers then resume in the old epoch, which the switches still hold.
"""

import itertools
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from controller.moves import Move, MoveStep
from controller.service.jobs import Member, ServiceJob
from controller.service.states import JobEvent, JobState
from controller.service.timer import Timer
from host_agent.job_api import jobs_pb2
from host_agent.job_api.jobs_pb2 import ToWorker
from host_agent.words import plural

FIRST_BACKOFF_S = 1.0
LAST_BACKOFF_S = 60.0

# Random, as workers may answer an attempt of an earlier controller.
_attempts = itertools.count(1 + secrets.randbits(31))


@dataclass
class _Waiting(Move):
    """A move with the timer that gives it up."""

    timer: Timer = field(default_factory=Timer)
    # Distinguishes answers to this move from answers to earlier moves.
    attempt: int = field(default_factory=_attempts.__next__)

    def hold(self, job: ServiceJob) -> ToWorker:
        """Return the message to a worker at this stage."""
        missing = self.missing(job.members)
        message = jobs_pb2.Hold(epoch=job.record.epoch, missing=missing, attempt=self.attempt)
        if self.until is not None:
            message.until = self.until
        return ToWorker(hold=message)


class Moves:
    """The moves of a controller's jobs.

    `wait_s`: how long a worker may take to answer, or to end the collectives that another worker has ended, in seconds.
    `again`: called when a move that was given up may be tried again.
    """

    def __init__(self, wait_s: float, again: Callable[[], None]) -> None:
        self._wait_s = wait_s
        self._again = again
        self._moves: dict[ServiceJob, _Waiting] = {}
        self._backoff_s: dict[ServiceJob, float] = {}
        self._retries: dict[ServiceJob, Timer] = {}

    def possible(self, job: ServiceJob) -> bool:
        """Whether a move of a job can begin now."""
        return (
            job.state is JobState.RUNNING
            and job not in self._retries
            and all(
                member.outbox is not None and member.sent_epoch == job.record.epoch
                for member in job.members.values()
            )
        )

    def begin(self, job: ServiceJob, slots: int, home: bool = False) -> None:
        """Hold a job's workers for a move."""
        wanted = f"it is to have {plural(slots, 'slot')} in place of {job.record.slot_count}"
        job.on(JobEvent.HOLD, f"it is to return from aggregator {job.record.aggregator}" if home else wanted)
        move = self._moves[job] = _Waiting(slots, home)
        self._start_timer(job, move)
        job.send(move.hold(job))

    def on_held(self, job: ServiceJob, member: Member, held: jobs_pb2.Held) -> Move | None:
        """Process a worker's progress; return the move when no worker has a collective in progress."""
        move = self._moves.get(job)
        if move is None or job.state is not JobState.HELD or held.epoch != job.record.epoch:
            return None
        if held.attempt not in (0, move.attempt):
            return None  # The worker has not heard that an earlier move was given up.
        if held.fixed:
            self.give_up(job, f"worker {member.rank} cannot take part: {held.fixed}")
            return None
        match move.update(job.members, member.rank, held.begun, held.ended):
            case MoveStep.WAIT:
                self._watch_the_last(job, move)
                return None
            case MoveStep.HOLD:
                move.timer.stop()  # A worker may compute for a long time before it begins the collective of the others.
                self._watch_the_last(job, move)
                job.send(move.hold(job))
                return None
        self.drop(job)
        return move

    def notify(self, job: ServiceJob, member: Member) -> None:
        """Tell a reattached worker whether the move of its job continues or was given up."""
        move = self._moves.get(job)
        if move is not None:
            member.send(move.hold(job))
        elif job.state is JobState.RUNNING and member.sent_epoch == job.record.epoch:
            member.send(_release(job))

    def give_up(self, job: ServiceJob, reason: str) -> None:
        """Give up a job's move, if it has one; workers of a held job resume in the present epoch."""
        move = self._moves.pop(job, None)
        if move is None:
            return
        move.timer.stop()
        if job.state is JobState.HELD:
            self.put_off(job, reason)
            job.send(_release(job))

    def put_off(self, job: ServiceJob, reason: str) -> None:
        """Let a held job run in its present epoch, and try the move again later."""
        job.reason = f"it keeps its slots: {reason}"
        job.on(JobEvent.RELEASE, job.reason)
        backoff_s = self._backoff_s.get(job, FIRST_BACKOFF_S)
        self._backoff_s[job] = min(2 * backoff_s, LAST_BACKOFF_S)
        retry = self._retries[job] = Timer()
        retry.start(backoff_s, self._retry, job)

    def drop(self, job: ServiceJob) -> None:
        """Drop the move and the retries of a job that has ended, is restarted or moves."""
        move = self._moves.pop(job, None)
        if move is not None:
            move.timer.stop()
        self._backoff_s.pop(job, None)
        retry = self._retries.pop(job, None)
        if retry is not None:
            retry.stop()

    def close(self) -> None:
        """Cancel all timers."""
        for job in [*self._moves, *self._retries]:
            self.drop(job)

    def _watch_the_last(self, job: ServiceJob, move: _Waiting) -> None:
        """Start the timer for the other workers once a worker has ended all collectives before the boundary."""
        if not move.timer and move.last:
            self._start_timer(job, move)

    def _start_timer(self, job: ServiceJob, move: _Waiting) -> None:
        move.timer.start(self._wait_s, self._too_late, job, move)

    def _too_late(self, job: ServiceJob, move: _Waiting) -> None:
        if self._moves.get(job) is not move:
            return
        missing = move.missing(job.members)
        names = f"worker{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        did = "did not answer" if move.until is None else f"did not end collective {move.until - 1}"
        self.give_up(job, f"{names} {did} within {self._wait_s:g} s")

    def _retry(self, job: ServiceJob) -> None:
        del self._retries[job]
        self._again()


def _release(job: ServiceJob) -> ToWorker:
    return ToWorker(release=jobs_pb2.Release(epoch=job.record.epoch))
