"""The event log: every transition of a job, a worker's seat and a switch's connection, with its time and reason.

All transitions are made by `EventLog.on`, and nothing else keeps history: the process's log, the metrics, `netsum job watch` and
`netsum job events` read it. It keeps the last `EVENTS_KEPT` transitions, in memory and in the store.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from controller.errors import StoreError
from controller.service.states import JobState
from controller.service.store import Store
from netsum_common.states import Event, State, next_state

log = logging.getLogger(__name__)

EVENTS_KEPT: Final = 10_000
NO_RANK: Final = -1


class Subject(NamedTuple):
    """What a transition is of: a job, the seat of one of its workers, or the connection to a switch."""

    job: str  # The job's name; empty for a connection.
    rank: int = NO_RANK  # The worker's rank; `NO_RANK` for a job or a connection.
    switch: str = ""  # The switch's name; empty for a job or a seat.

    @property
    def kind(self) -> str:
        """The table that its transitions are in: job, seat or link."""
        return "link" if self.switch else "job" if self.rank == NO_RANK else "seat"

    @property
    def fields(self) -> dict[str, Any]:
        """What a record of the log says of it."""
        return {"switch": self.switch, "job": self.job, "worker": "" if self.rank == NO_RANK else self.rank}

    def __str__(self) -> str:
        if self.switch:
            return f"the connection to {self.switch}"
        return (
            f"job {self.job}" if self.rank == NO_RANK else f"the seat of worker {self.rank} of job {self.job}"
        )


class Transition(NamedTuple):
    """A transition as the log and the store keep it."""

    at: float  # Unix time in seconds.
    # job, rank, switch: its `Subject`.
    job: str
    rank: int
    switch: str
    # before, event, after: the states' and the event's values; `before` is empty where a subject begins.
    before: str
    event: str
    after: str
    reason: str  # A sentence; empty where the event says it all.

    @property
    def subject(self) -> Subject:
        """What it is of."""
        return Subject(self.job, self.rank, self.switch)


@dataclass
class EventLog:
    """The transitions of one controller."""

    store: Store | None = None  # Where they outlive the process; None: nowhere.

    def __post_init__(self) -> None:
        earlier = self.store.transitions() if self.store is not None else []
        self._kept = deque((Transition(*each) for each in earlier), maxlen=EVENTS_KEPT)
        self._unsaved: list[Transition] = []
        self._saving: asyncio.Handle | None = None
        self._behind = False  # Whether the store has refused some.
        self.counts: Counter[tuple[str, str]] = Counter()
        """Transitions since the process began, by table and event."""

    def on(
        self,
        subject: Subject,
        table: Mapping[tuple[State, Event], State],
        state: State,
        event: Event,
        reason: str,
        last_reason: str | None = None,
    ) -> State:
        """Return the state after an event, and record the transition.

        Given the reason of the subject's last transition, one that changes neither the state nor the reason is not recorded.

        Raises TransitionError if the event is not possible in the present state.
        """
        after = next_state(table, state, event, str(subject))
        if after is not state or reason != last_reason:
            self._record(subject, state.value, event.value, after.value, reason)
        return after

    def begin(self, subject: Subject, event: str, state: Enum, reason: str) -> None:
        """Record that a subject begins, in a state."""
        self._record(subject, "", event, state.value, reason)

    def of_job(self, name: str) -> list[Transition]:
        """Return what happened to a job and its workers, and meanwhile to the connections to switches, the oldest first."""
        found, alive = [], False
        for each in self._kept:
            if each.job == name:
                alive = each.after != JobState.ENDED.value
            if each.job == name or (alive and each.switch):
                found.append(each)
        return found

    def last(self, count: int) -> list[Transition]:
        """Return the last transitions of all subjects, the oldest first."""
        return list(self._kept)[-count:]

    def save(self) -> None:
        """Write to the store what it does not have; what it does not take now follows with the next transitions."""
        self._saving = None
        added, self._unsaved = self._unsaved, []
        if self.store is None or not added:
            return
        try:
            self.store.add_transitions(added, EVENTS_KEPT)
        except StoreError as error:
            if not self._behind:
                log.error("transitions are not saved for now: %s", error)
            self._unsaved = added[-EVENTS_KEPT:]
        self._behind = bool(self._unsaved)

    def _record(self, subject: Subject, before: str, event: str, after: str, reason: str) -> None:
        self.counts[subject.kind, event] += 1
        line = f"{event}{f', {after}' if after != before else ''}{f': {reason}' if reason else ''}"
        log.info("%s", line, extra=subject.fields)
        transition = Transition(time.time(), *subject, before, event, after, reason)
        self._kept.append(transition)
        self._unsaved.append(transition)
        if self.store is not None and not self._saving:
            self._saving = asyncio.get_running_loop().call_soon(
                self.save
            )  # Those of one turn are one transaction.
