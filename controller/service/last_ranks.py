"""Detection of stragglers: the worker of a job that begins most collectives last, found from the reported durations."""

import statistics
from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

from host_agent.durations import MOST
from host_agent.job_api.jobs_pb2 import Durations

WINDOW: Final = 1000
"""Number of recent collectives that are evaluated."""
_PENDING: Final = 4096
"""Maximum number of collectives kept until all workers have reported them."""
LEAST_COLLECTIVES: Final = 20
LEAST_NS: Final = 100_000
LEAST_PART: Final = 0.01
"""Minimum delay for a worker to count as a straggler, as a share of a collective's duration."""


@dataclass(frozen=True)
class LastRank:
    """A worker that was the last to begin most of the newest collectives.

    `share`: the share of `collectives` that the worker began last. `late_ns`: how much later than the last other worker it began
    them (median).
    """

    rank: int
    share: float
    collectives: int
    late_ns: int


class LastRanks:
    """Compares the durations that the workers of one job report. `world_size`: how many workers report each collective."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._epoch = 0
        self._pending: dict[int, dict[int, int]] = {}
        self._judged: deque[tuple[int, int, int]] = deque(maxlen=WINDOW)

    def add(self, rank: int, reported: Durations) -> None:
        """Record the durations that a worker has reported."""
        if reported.epoch < self._epoch or self._world_size < 2:
            return
        if reported.epoch > self._epoch:
            self._epoch = reported.epoch
            self._pending.clear()
            self._judged.clear()
        for place, us in enumerate(reported.us[:MOST]):
            number = reported.first + place * reported.stride
            found = self._pending.setdefault(number, {})
            found[rank] = us
            if len(found) == self._world_size:
                self._judge(self._pending.pop(number))
        while len(self._pending) > _PENDING:
            del self._pending[next(iter(self._pending))]

    def _judge(self, found: dict[int, int]) -> None:
        (shortest, rank), (second, _), *_ = sorted((us, rank) for rank, us in found.items())
        self._judged.append((rank, second - shortest, max(found.values())))

    def shares(self) -> dict[int, float]:
        """Return the share of the newest collectives that each worker began last; workers that never did are left out."""
        counts = Counter(rank for rank, _, _ in self._judged)
        return {rank: count / len(self._judged) for rank, count in sorted(counts.items())}

    def slow(self) -> LastRank | None:
        """Return the worker that the others wait for; None if there is no such worker."""
        if len(self._judged) < LEAST_COLLECTIVES:
            return None
        rank, share = max(self.shares().items(), key=lambda item: item[1])
        late_ns = 1000 * round(statistics.median(late for last, late, _ in self._judged if last == rank))
        took_ns = 1000 * statistics.median(took for _, _, took in self._judged)
        halfway = (1 + 1 / self._world_size) / 2  # between the share expected by chance and 1
        if share < halfway or late_ns < max(LEAST_NS, LEAST_PART * took_ns):
            return None
        return LastRank(rank, share, len(self._judged), late_ns)
