"""Ends of rounds with a quorum, and the activities that wait for them."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

Event = list[Any]


class RoundClock:
    """Ends of rounds, and the activities that resume then.

    A round begins when the arrays of all its contributors are there and no host is `ahead` results behind; it ends for all at
    once.
    """

    def __init__(self, duration: Callable[[int, int, int], float], hosts: int) -> None:
        self.ends: dict[int, float] = {}  # End of each round that has begun, in seconds.
        self._duration = duration
        self._taken = [0] * hosts
        self._there: dict[int, set[int]] = defaultdict(set)  # Hosts whose arrays for a round are there.
        self._open: dict[int, Event] = {}  # Rounds that have not begun.
        self._waiting: dict[int, list[tuple[int, int, Event]]] = defaultdict(list)

    @property
    def waiting(self) -> list[tuple[int, Event]]:
        """Activities that wait for the end of a round that has not begun, each with its event."""
        return [(activity, event) for entered in self._waiting.values() for activity, _, event in entered]

    def enter(self, activity: int, host: int, event: Event, now: float) -> list[tuple[int, float]]:
        """Let an activity wait for the end of a round, of which its host may be a contributor.

        `event`: ``["round", …]``, see `tests.virtual.timeline`. `now`: in seconds. Returns activities that go on, and when.
        """
        number = event[1]
        if number in self.ends:
            return self._take([(activity, host, event)], number, max(now, self.ends[number]))
        self._waiting[number].append((activity, host, event))
        return self.offer(host, event, now)

    def offer(self, host: int, event: Event, now: float) -> list[tuple[int, float]]:
        """Note that a host's array for a round is there; return activities that go on, and when."""
        number = event[1]
        if number not in self.ends:
            self._there[number].add(host)
            self._open[number] = event
        return self._begin(now)

    def _begin(self, now: float) -> list[tuple[int, float]]:
        for number, (_, _, contributors, size, ahead) in self._open.items():
            there = contributors and self._there[number].issuperset(contributors)
            if there and min(self._taken) + ahead > number:
                del self._open[number]
                self.ends[number] = now + self._duration(size, len(self._taken), len(contributors))
                return self._take(self._waiting.pop(number, []), number, self.ends[number])
        return []

    def _take(
        self, takers: list[tuple[int, int, Event]], number: int, when: float
    ) -> list[tuple[int, float]]:
        for _, host, _ in takers:
            self._taken[host] = number + 1
        # Another round may have waited for a host that was behind.
        return [(activity, when) for activity, _, _ in takers] + self._begin(when)
