"""The event log: every transition of jobs, members and switch connections, with its time and reason.

All transitions go through the `EventLog`, which alone keeps history: the process's log, the metrics, `netsum job watch` and
`netsum job events` read it. The log keeps the last `EVENTS_KEPT` transitions, in memory and in the store.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from controller.errors import JobStoreError
from controller.service.states import JobState
from controller.service.store import JobStore
from netsum_common.states import Event, State, next_state

log = logging.getLogger(__name__)

EVENTS_KEPT: Final = 10_000
NO_RANK: Final = -1


class Subject(NamedTuple):
    """The subject of a transition: a job, one of its members, or the connection to a switch."""

    job: str  # The job's name; empty for a connection.
    rank: int = NO_RANK  # The worker's rank; `NO_RANK` for a job or a connection.
    switch: str = ""  # The switch's name; empty for a job or a member.

    @property
    def kind(self) -> str:
        """The name of the subject's transition table: job, member or link."""
        return "link" if self.switch else "job" if self.rank == NO_RANK else "member"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that name the subject in a log record."""
        return {"switch": self.switch, "job": self.job, "worker": "" if self.rank == NO_RANK else self.rank}

    def __str__(self) -> str:
        if self.switch:
            return f"the connection to {self.switch}"
        return (
            f"job {self.job}"
            if self.rank == NO_RANK
            else f"the membership of worker {self.rank} of job {self.job}"
        )


class Transition(NamedTuple):
    """A transition as the log and the store keep it."""

    at: float  # Unix time in seconds.
    # job, rank, switch: the `Subject`.
    job: str
    rank: int
    switch: str
    # before, event, after: the states' and the event's values; `before` is empty for a subject's first state.
    before: str
    event: str
    after: str
    reason: str  # A sentence; empty if the event needs no reason.

    @property
    def subject(self) -> Subject:
        """The subject of the transition."""
        return Subject(self.job, self.rank, self.switch)


@dataclass
class EventLog:
    """The transitions of one controller."""

    store: JobStore | None = None  # Keeps the transitions across restarts; None: they are lost.

    def __post_init__(self) -> None:
        earlier = self.store.transitions() if self.store is not None else []
        self._kept = deque((Transition(*each) for each in earlier), maxlen=EVENTS_KEPT)
        self._unsaved: list[Transition] = []
        self._saving: asyncio.Handle | None = None
        self._behind = False  # Whether the store has failed to take the last transitions.
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

        `last_reason`: the reason of the subject's last transition; if it is given, a transition that changes neither state nor
        reason is not recorded.

        Raises TransitionError if the event is not possible in the present state.
        """
        after = next_state(table, state, event, str(subject))
        if after is not state or reason != last_reason:
            self._record(subject, state.value, event.value, after.value, reason)
        return after

    def begin(self, subject: Subject, event: str, state: Enum, reason: str) -> None:
        """Record the first state of a subject."""
        self._record(subject, "", event, state.value, reason)

    def note(self, subject: Subject, event: str, state: Enum, reason: str) -> None:
        """Record an event that changes no state."""
        self._record(subject, state.value, event, state.value, reason)

    def of_job(self, name: str) -> list[Transition]:
        """Return the transitions of a job, its workers and, while the job lived, switch connections, the oldest first."""
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
        """Write new transitions to the store; if the store fails, they follow with the next transitions."""
        self._saving = None
        added, self._unsaved = self._unsaved, []
        if self.store is None or not added:
            return
        try:
            self.store.add_transitions(added, EVENTS_KEPT)
        except JobStoreError as error:
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
            # All transitions of one turn of the event loop are saved in one transaction.
            self._saving = asyncio.get_running_loop().call_soon(self.save)
