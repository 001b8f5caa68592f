"""The boundary between two collectives at which a communicator stops, so that its job can go on in another epoch.

The controller holds the workers of a job, learns how many collectives each has begun, lets them go on until all have ended
the same number, and moves them. Its messages come in one thread, collectives are driven by another: a lock guards the counts.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from host_agent.wire import Admission


@dataclass(frozen=True)
class Position:
    """How many collectives a communicator has begun and ended."""

    # begun, ended: collectives, over all its epochs.
    begun: int
    ended: int


class Boundary:
    """The collectives that a communicator may begin, and the epoch that the next one belongs to."""

    def __init__(self) -> None:
        # Called, from whichever thread ends a collective, when all collectives before the limit have ended.
        self.on_reached: Callable[[Position], None] = lambda position: None
        self._lock = threading.Lock()  # guards all below
        self._begun = 0
        self._ended = 0
        self._limit: int | None = None
        self._missing: tuple[int, ...] = ()
        self._waiting_since_ns: int | None = None
        self._next: Admission | None = None

    @property
    def position(self) -> Position:
        """How far it has come."""
        with self._lock:
            return Position(self._begun, self._ended)

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that the controller waits for."""
        with self._lock:
            return self._missing

    def hold(self, until: int | None, missing: tuple[int, ...] = ()) -> Position:
        """Begin no collective from number `until` on; None: no further one."""
        with self._lock:
            self._limit = self._begun if until is None else until
            self._missing = missing
            return Position(self._begun, self._ended)

    def release(self) -> None:
        """Begin collectives without a limit."""
        with self._lock:
            self._limit = None
            self._waiting_since_ns = None

    def move(self, admission: Admission) -> bool:
        """Let the next collective be the first of another epoch; returns whether all before the limit have ended."""
        with self._lock:
            if self._limit is None or self._ended != self._limit or self._begun != self._limit:
                return False
            self._next = admission
            self._limit = None
            self._waiting_since_ns = None
            return True

    def take_move(self) -> Admission | None:
        """Return the admission of the epoch to enter now, once."""
        with self._lock:
            admission, self._next = self._next, None
            return admission

    def begin(self, now_ns: int) -> bool:
        """Count the next collective as begun, unless it must wait."""
        with self._lock:
            if self._next is not None:
                return False  # The driver enters that epoch first.
            if self._limit is not None and self._begun >= self._limit:
                if self._waiting_since_ns is None:
                    self._waiting_since_ns = now_ns
                return False
            self._begun += 1
            self._waiting_since_ns = None
            return True

    def end(self) -> None:
        """Count a collective as ended."""
        with self._lock:
            self._ended += 1
            position = Position(self._begun, self._ended)
            reached = self._limit is not None and self._ended == self._limit
        if reached:
            self.on_reached(position)

    def waited_ns(self, now_ns: int) -> int:
        """Return for how long a collective has waited at the limit; 0 if none does."""
        with self._lock:
            return 0 if self._waiting_since_ns is None else now_ns - self._waiting_since_ns
