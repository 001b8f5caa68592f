"""Moves of a running job to other slots: when its workers may change over, and the new number of slots. No I/O, no clock.

The workers stop beginning collectives and report how many they have begun. The largest number is the boundary: workers that
have begun fewer collectives continue up to the boundary. When all workers have ended the collectives before the boundary, no
collective of the old epoch is in progress, and the controller deletes the old epoch from the switches before it writes the new.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto


class MoveStep(Enum):
    """The next step of a move after a worker's answer."""

    WAIT = auto()  # Wait for the other workers.
    HOLD = auto()  # Send the workers the boundary, which is known now.
    CARRY_OUT = auto()  # Carry out the move, as no worker has a collective in progress.


@dataclass
class Move:
    """A move that waits for a job's workers."""

    slots: int  # How many slots the job is to have on each of its switches.
    home: bool = False  # Whether the job returns from an aggregator host to its switches.
    # begun, ended: numbers of collectives by rank, as the workers last reported them.
    begun: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    # The boundary; None until all workers have reported how many collectives they have begun.
    until: int | None = None

    def missing(self, ranks: Iterable[int]) -> list[int]:
        """Return the ranks that the move waits for; `ranks`: all ranks of the job."""
        if self.until is None:
            return [rank for rank in ranks if rank not in self.begun]
        return [rank for rank in ranks if self.ended.get(rank, -1) < self.until]

    def update(self, ranks: Iterable[int], rank: int, begun: int, ended: int) -> MoveStep:
        """Process how many collectives a worker has begun and ended; `ranks`: all ranks of the job."""
        self.begun[rank], self.ended[rank] = begun, ended
        ranks = list(ranks)
        found = self.until is None and not self.missing(ranks)
        if found:
            self.until = max(self.begun.values())
        if self.missing(ranks):
            return MoveStep.HOLD if found else MoveStep.WAIT
        return MoveStep.CARRY_OUT

    @property
    def last(self) -> bool:
        """Whether a worker has ended all collectives before the boundary: all have contributed, and end soon or never."""
        return self.until is not None and any(ended >= self.until for ended in self.ended.values())


def next_count(held: int, share: int, waiting: bool, most: Callable[[int], int]) -> int:
    """Return how many slots a job is to have now.

    `waiting`: whether some job waits for slots; if so, no other job gets more. `most`: returns how many of a number of slots
    the job could get.
    """
    if share <= held:
        return share
    return held if waiting else most(share)
