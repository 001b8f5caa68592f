"""Control of a communicator by its membership and by process groups: epochs, durations, the thread that drives."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

from host_agent.boundary import Position
from host_agent.claims import claim
from host_agent.durations import Sample
from host_agent.progress import Progress
from host_agent.wire import Admission


class Control:
    """The internal interface of one communicator; trainers use `Communicator` alone."""

    def __init__(self, progress: Progress, admission: Admission) -> None:
        self.admission = admission  # The epoch of the next collective.
        self._progress = progress

    def driven_by_caller(self) -> AbstractContextManager[None]:
        """Let the caller's thread progress what it begins in a ``with`` block, where it calls `drive`.

        For a caller that waits at once: two changes of threads cost more than a small collective. Has no effect if a collective
        is under way. Collectives that are not done at the end of the block, the other thread progresses.
        """
        return self._progress.driven_by_caller()

    def drive(self, future: Future[Any]) -> None:
        """Return when a future is done, or at once where another thread makes it progress."""
        self._progress.drive(future)

    def durations(self) -> Sample | None:
        """Return how long collectives took since the last call, for the controller; None if there were none."""
        return self._progress.durations.drain()

    def on_boundary(self, reached: Callable[[Position], None]) -> None:
        """Call back, from the thread that ends a collective, when all collectives before a hold's limit have ended."""
        self._progress.boundary.on_reached = reached

    def hold(self, until: int | None, missing: tuple[int, ...] = ()) -> Position:
        """Begin no collective from number `until` on, so that the job can move to other slots.

        `until`: None: begin no further one. `missing`: the ranks that the move waits for, which the error names if a collective
        waits beyond its deadline. Returns how many collectives have begun and ended.
        """
        return self._progress.hold(until, missing)

    def release(self) -> None:
        """Continue in the present epoch after a `hold`."""
        self._progress.release()

    def note_restart(self, reason: str) -> None:
        """Keep why the job has another epoch by now: errors of collectives that fail in this one say it."""
        self._progress.restarted = reason

    def move(self, admission: Admission) -> bool:
        """Let the next collective be the first of another epoch of the job.

        All workers must have ended the same collectives, those before the limit of their `hold`. Returns whether it does; False
        if this worker has not ended exactly those collectives, or has failed.
        """
        if not self._progress.move(admission):
            return False
        claim(admission)
        self.admission = admission
        return True
