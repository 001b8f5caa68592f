"""Moving a running job to other slots: when its workers may change over, and how many slots it then has. No I/O, no clock.

The workers stop beginning collectives and say how many they have begun. The largest of these numbers is the boundary: those
that have begun fewer go on up to it. When all have ended the collectives before it, nothing of the old epoch is under way, and
the controller takes it off the switches before it writes the new one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto


class Step(Enum):
    """What follows from a worker's answer."""

    WAIT = auto()  # For the other workers.
    HOLD = auto()  # The boundary is known now: the workers hear of it.
    CARRY_OUT = auto()  # No worker has anything under way.


@dataclass
class Move:
    """A move that waits for a job's workers."""

    slots: int  # How many slots the job is to have on each of its switches.
    home: bool = False  # Whether it returns from an aggregator host to its switches.
    # begun, ended: collectives, by rank, as far as the workers have said.
    begun: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    # The boundary; None while workers have not said how many collectives they have begun.
    until: int | None = None

    def missing(self, ranks: Iterable[int]) -> list[int]:
        """Return those of a job's ranks that the move waits for."""
        if self.until is None:
            return [rank for rank in ranks if rank not in self.begun]
        return [rank for rank in ranks if self.ended.get(rank, -1) < self.until]

    def take(self, ranks: Iterable[int], rank: int, begun: int, ended: int) -> Step:
        """Process how many collectives a worker has begun and ended; `ranks` are all of the job."""
        self.begun[rank], self.ended[rank] = begun, ended
        ranks = list(ranks)
        found = self.until is None and not self.missing(ranks)
        if found:
            self.until = max(self.begun.values())
        if self.missing(ranks):
            return Step.HOLD if found else Step.WAIT
        return Step.CARRY_OUT

    @property
    def last(self) -> bool:
        """Whether a worker has ended all: the others have then contributed to all, and end soon, or never."""
        return self.until is not None and any(ended >= self.until for ended in self.ended.values())


def next_count(held: int, share: int, waiting: bool, most: Callable[[int], int]) -> int:
    """Return how many slots a job is to have now.

    `waiting`: whether a job waits for slots; then no other gets more. `most`: how many it could get of the number that it is
    called with.
    """
    if share <= held:
        return share
    return held if waiting else most(share)
