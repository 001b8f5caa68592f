"""The collectives of a worker: which ones the core works on, in which order, and their outcomes. No I/O, no clock, no thread.

Collectives are begun in the order in which they were submitted, several at once as long as the core has room, so the next
one's first chunks follow the last ones of the one before without waiting for their results.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from host_agent.boundary import Boundary
from host_agent.collectives import Collective
from host_agent.collectives.collective import BUSY
from host_agent.errors import PeerError
from host_agent.protocol.core import WorkerCore
from host_agent.protocol.outcome import failure_of
from host_agent.protocol.passes import Pass
from host_agent.protocol.records import COUNTERS
from host_agent.statistics import Statistics

_OF_THE_CORE = tuple(name for name in COUNTERS if name not in ("chunks", "retransmissions", "statuses"))


@dataclass(frozen=True)
class Outcome:
    """How a collective ended: with a result (None for a barrier) or an error."""

    collective: Collective[Any]
    statistics: Statistics
    result: npt.NDArray[Any] | None
    error: Exception | None

    def resolve(self) -> None:
        """Resolve the collective's future."""
        if self.error is None:
            self.collective.future.set_result(self.result)
        else:
            self.collective.future.set_exception(self.error)


class _Running:
    """A collective that the core works on."""

    def __init__(self, collective: Collective[Any], now_ns: int) -> None:
        self.collective = collective
        self.exhausted = False  # all its passes were begun
        self.busy = False  # it has more to compute before it waits
        self._next: Pass | None = None  # taken from the iterator, for which the core had no room yet
        self._quorum_chunk: Pass | None = None  # a quorum chunk that began without this worker's contribution
        self._under_way = 0
        self._statistics = Statistics(collectives=1, elements=collective.elements)
        self._started_ns = now_ns

    @property
    def done(self) -> bool:
        """Whether all RESULTs of all passes are there."""
        return self.exhausted and self._under_way == 0

    def begin_passes(self, core: WorkerCore, now_ns: int, in_slices: bool) -> None:
        """Begin what passes there are, as far as the core has room, and until there is something to compute if `in_slices`."""
        self.busy = False
        self._offer(core)
        while not self.exhausted:
            if self._next is None:
                try:
                    step = next(self.collective.passes)
                except StopIteration:
                    self.exhausted = True
                    return
                if step is BUSY:
                    self.busy = in_slices
                    if self.busy:
                        return
                    continue
                self._next = step
            if self._next is None or core.failed or not core.has_room:
                return
            self._next.fingerprint ^= self.collective.label_mark
            core.begin(self._next, now_ns)
            if self._next.offered is False:
                self._quorum_chunk = self._next
                self._offer(core)
            self._next = None
            self._under_way += 1

    def _offer(self, core: WorkerCore) -> None:
        """Contribute to the quorum chunk, if this worker's contribution has come since that began."""
        if self._quorum_chunk is not None and self.collective.may_offer():
            core.offer(self._quorum_chunk)
            self._quorum_chunk = None

    def end_pass(self, done: Pass) -> None:
        """Take the counts of a pass that is done."""
        record = done.record[0]
        self._statistics.chunks += int(record["results"])
        self._statistics.retransmissions += int(record["retransmissions"])
        self._statistics.overflowed += int(record["payload"]["overflowed"])
        self._statistics.non_finite += int(record["payload"]["non_finite"])
        self._under_way -= 1

    def end(self, core: WorkerCore, now_ns: int, before: dict[str, int], after: dict[str, int]) -> Outcome:
        statistics = self._statistics
        statistics.duration_ns = now_ns - self._started_ns
        for name in _OF_THE_CORE:
            setattr(statistics, name, after[name] - before[name])
        state = core.state[0]
        for name in ("srtt_ns", "result_ns", "max_result_ns"):
            setattr(statistics, name, int(state[name]))
        statistics.window_bytes = core.window_bytes
        statistics.min_result_ns = min(int(state["min_result_ns"]), statistics.max_result_ns)
        try:
            return Outcome(self.collective, statistics, self.collective.finish(statistics), None)
        except Exception as error:
            return Outcome(self.collective, statistics, None, error)


class Schedule:
    """The collectives of one worker, in order. Used by one thread at a time, except for `add`.

    `core`: the core that works on them. Its driver calls `begin` before it looks at what to transmit, and `take_ended` after
    datagrams or time have come. `in_slices`: whether the driver looks at the network between parts of a long computation:
    where `busy`, it calls `begin` again as soon as it has sent and received what it can. Without, computations are made at
    once. `boundary`: how far it may go before the worker enters another epoch.
    """

    def __init__(
        self, core: WorkerCore, *, in_slices: bool = False, boundary: Boundary | None = None
    ) -> None:
        self._core = core
        self.boundary = boundary or Boundary()
        self._in_slices = in_slices
        self._waiting: deque[Collective[Any]] = deque()
        self._running: deque[_Running] = deque()
        self._counted = core.counters()  # when a collective ended last
        # Error of the collectives that ended because the core failed; set by `take_ended`.
        self.failure: PeerError | None = None

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    @property
    def busy(self) -> bool:
        """Whether `begin` has more to compute, or `take_ended` something to return: the driver must not wait."""
        return bool(self._running) and (self._running[-1].busy or self._running[0].done)

    @property
    def under_way(self) -> bool:
        """Whether a collective has begun that has not ended."""
        return bool(self._running)

    def enter(self, core: WorkerCore) -> None:
        """Continue with another core: that of the next epoch. No collective is under way."""
        self._core = core

    def add(self, collective: Collective[Any]) -> None:
        """Put a collective at the end. Callable from any thread."""
        self._waiting.append(collective)

    def begin(self, now_ns: int) -> None:
        """Begin as many passes as the core has room for.

        The next collective waits until all passes of the one before are begun: all workers number their chunks alike.
        """
        while not self._core.failed:
            if self._running:
                self._running[-1].begin_passes(self._core, now_ns, self._in_slices)
                if not self._running[-1].exhausted:
                    return
            if not self._waiting or not self._core.has_room or not self.boundary.begin(now_ns):
                return
            self._running.append(_Running(self._waiting.popleft(), now_ns))

    def take_ended(self, now_ns: int, trouble: str = "", restarted: str = "") -> list[Outcome]:
        """Return the outcomes since the last call; if the core has failed, those of all collectives.

        A core can fail behind the last collective: the MISMATCH of the next one may come in the same batch as the last
        RESULT. Nothing fails then until the next collective is added, and that one fails with the core's error.

        `trouble`: the driver's knowledge of the path to the switch, for the message of a failure. `restarted`: why the job
        has another epoch by now, for the same message.
        """
        ended = self._end_done(now_ns)
        for done in self._core.take_done():
            running = self._running[0]
            running.end_pass(done)
            running.begin_passes(self._core, now_ns, self._in_slices)
            ended += self._end_done(now_ns)
        if self._core.failed and len(self):
            first = self._running[0].collective if self._running else self._waiting[0]
            self.failure = failure_of(self._core, first.what, trouble, restarted)
            ended += self.drop(self.failure)
        return ended

    def _end_done(self, now_ns: int) -> list[Outcome]:
        """End the collectives that are done, which may be after their last pass was: they may have computed since."""
        ended = []
        while self._running and self._running[0].done:
            before, self._counted = self._counted, self._core.counters()
            ended.append(self._running.popleft().end(self._core, now_ns, before, self._counted))
            self.boundary.end()
        return ended

    def drop(self, error: Exception) -> list[Outcome]:
        """End everything with an error."""
        dropped = [running.collective for running in self._running]
        self._running.clear()
        while self._waiting:  # to which another thread may add
            dropped.append(self._waiting.popleft())
        return [Outcome(collective, Statistics(), None, error) for collective in dropped]
