"""Discrete-event scheduler for host activities: computing, messages, waits.

An event is a list that begins with its kind, so that a recording can be kept as JSON:

========================================  ===========================================================
``["compute", seconds]``                  the activity computes
``["meet", [rank, …], op, bytes]``        a collective of some hosts; each contributes this many bytes
``["round", n, [rank, …], bytes, ahead]``  wait until round n has ended, which reduces arrays of some hosts; no
                                          host is `ahead` results behind when it begins
``["offer", n, [rank, …], bytes, ahead]``  hand in an array for round n, and go on
``["send", rank, tag, bytes]``            a message; the activity goes on when its link has taken it
``["receive", rank, tag]``                wait for a message
``["wait", condition, count]``            wait until a condition was notified `count` times
``["notify", condition]``                 notify a condition
``["start", activity]``                   start another activity of the same host
``["join", activity]``                    wait for its end
``["mark", number]``                      note the time
========================================  ===========================================================
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from host_agent.errors import NetsumError
from tests.virtual.round_clock import RoundClock

Event = list[Any]


class DeadlockError(NetsumError):
    """All activities wait; the message says for what."""


class Links(Protocol):
    """How long communication takes."""

    def collective(self, op: str, size: int, workers: int) -> float:
        """Return how long a collective takes once all are there, in seconds. `size`: bytes that a worker contributes."""

    def round(self, size: int, workers: int, quorum: int) -> float:
        """Return how long a round takes once its contributors are ready: its quorum chunk and its reduction, in seconds."""

    def message(self, sender: int, receiver: int, size: int, now: float) -> tuple[float, float]:
        """Return when the sender's link has taken a message that is sent now, and when the receiver has it, in seconds."""


class Timeline:
    """A clock for each activity, and the wait of each.

    An activity is in turn when `turn` returns it; then it submits its next event. Events are so submitted in the order of time.

    `hosts`: how many; activities 0, 1, … are theirs, one each.
    """

    def __init__(self, links: Links, hosts: int) -> None:
        self._links = links
        self.now: list[float] = []  # Time of each activity, in seconds.
        self.marks: dict[int, float] = {}  # Time at which each mark was passed first.
        self.rounds = RoundClock(links.round, hosts)  # Ends of rounds with a quorum.
        self._host: list[int] = []
        self._ready: list[tuple[float, int, int]] = []
        self._order = 0
        self._meetings: dict[tuple[int, ...], list[tuple[int, Event]]] = defaultdict(list)
        self._messages: dict[tuple[int, int, Any], deque[float]] = defaultdict(deque)
        self._waits: dict[Any, tuple[int, Event]] = {}
        self._notified: dict[Any, int] = defaultdict(int)
        self._ended: dict[int, float] = {}
        for host in range(hosts):
            self.add(host, 0.0)

    def add(self, host: int, now: float) -> int:
        """Add an activity of a host, and return its number."""
        self.now.append(now)
        self._host.append(host)
        self._resume(len(self.now) - 1, now)
        return len(self.now) - 1

    def host_of(self, activity: int) -> int:
        """Return the host of an activity."""
        return self._host[activity]

    def notified(self, condition: Any) -> int:
        """Return how often a condition was notified."""
        return self._notified[condition]

    def turn(self) -> int | None:
        """Return the activity whose turn it is; None when all have ended.

        Raises DeadlockError if all that have not ended wait.
        """
        if self._ready:
            now, _, activity = heapq.heappop(self._ready)
            self.now[activity] = now
            return activity
        waiting = [f"host {self._host[who]}: {event}" for who, event in self._waits.values()]
        waiting += [
            f"host {self._host[who]}: {event}" for each in self._meetings.values() for who, event in each
        ]
        waiting += [f"host {self._host[who]}: {event}" for who, event in self.rounds.waiting]
        if waiting:
            raise DeadlockError(f"every activity waits for another: {'; '.join(waiting)}")
        return None

    def end(self, activity: int) -> None:
        """Note that the activity whose turn it is has ended."""
        self._ended[activity] = self.now[activity]
        self._wake(("join", activity), self.now[activity])

    def submit(self, activity: int, event: Event) -> None:
        """Take the next event of the activity whose turn it is."""
        now, host = self.now[activity], self._host[activity]
        match event:
            case ["compute", seconds]:
                self._resume(activity, now + seconds)
            case ["meet", members, op, size]:
                self._meet(activity, event, tuple(members), op, size)
            case ["round", _, _, _, _]:
                for other, when in self.rounds.enter(activity, host, event, now):
                    self._resume(other, when)
            case ["offer", *_]:
                self._resume(activity, now)
                for other, when in self.rounds.offer(host, event, now):
                    self._resume(other, when)
            case ["send", receiver, tag, size]:
                departed, arrived = self._links.message(host, receiver, size, now)
                self._messages[host, receiver, tag].append(arrived)
                self._resume(activity, departed)
                self._deliver((host, receiver, tag))
            case ["receive", sender, tag]:
                self._waits["receive", sender, host, tag] = (activity, event)
                self._deliver((sender, host, tag))
            case ["wait", condition, _]:
                self._waits["wait", condition, activity] = (activity, event)
                self._wake_notified(condition, now)
            case ["notify", condition]:
                self._notified[condition] += 1
                self._resume(activity, now)
                self._wake_notified(condition, now)
            case ["start", other]:
                self._resume(activity, now)
                assert other == self.add(host, now), "activities are started in the order of their numbers"
            case ["join", other]:
                self._waits["join", other] = (activity, event)
                if other in self._ended:
                    self._wake(("join", other), self._ended[other])
            case ["mark", number]:
                self.marks.setdefault(number, now)
                self._resume(activity, now)
            case _:
                raise AssertionError(f"unknown event {event}")

    def _resume(self, activity: int, when: float) -> None:
        self._order += 1
        heapq.heappush(self._ready, (when, self._order, activity))

    def _wake(self, key: Any, when: float) -> None:
        if key in self._waits:
            activity, _ = self._waits.pop(key)
            self._resume(activity, max(self.now[activity], when))

    def _meet(self, activity: int, event: Event, members: tuple[int, ...], op: str, size: int) -> None:
        meeting = self._meetings[members]
        meeting.append((activity, event))
        if len(meeting) < len(members):
            return
        if any(each[2] != op for _, each in meeting):
            raise DeadlockError(f"the workers disagree about a collective: {[each for _, each in meeting]}")
        size = max(each[3] for _, each in meeting)
        end = self.now[activity] + self._links.collective(op, size, len(members))
        for who, _ in meeting:
            self._resume(who, end)
        del self._meetings[members]

    def _deliver(self, key: tuple[int, int, Any]) -> None:
        sender, receiver, tag = key
        if self._messages[key] and ("receive", sender, receiver, tag) in self._waits:
            self._wake(("receive", sender, receiver, tag), self._messages[key].popleft())

    def _wake_notified(self, condition: Any, now: float) -> None:
        for key, (_, event) in list(self._waits.items()):
            if key[:2] == ("wait", condition) and self._notified[condition] >= event[2]:
                self._wake(key, now)


def replay(events: Sequence[Sequence[Event]], hosts: int, links: Links) -> Mapping[int, float]:
    """Return the time of each mark if recorded activities run on other links.

    `events`: of each activity; those of the hosts come first.
    """
    timeline = Timeline(links, hosts)
    places = [0] * len(events)
    while (activity := timeline.turn()) is not None:
        place = places[activity]
        places[activity] += 1
        if place < len(events[activity]):
            timeline.submit(activity, events[activity][place])
        else:
            timeline.end(activity)
    return timeline.marks
