"""Rounds of a job with a quorum: each reduces the arrays of the workers that are ready first."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

import numpy.typing as npt

from host_agent.collectives.quorum import Offer, Reduced
from host_agent.errors import MisuseError

__all__ = ["AHEAD", "Round", "Rounds"]

AHEAD: Final = 32
"""Default limit on kept results that a worker has not taken; at the limit the other workers wait."""


class Round:
    """A round under way; made by `Communicator.begin_round`."""

    def __init__(self, offer: Offer, future: Future[Reduced], wake: Callable[[], None]) -> None:
        self._offer = offer
        self.future = future  # The round's result.
        self._wake = wake

    @property
    def decided(self) -> bool:
        """Whether it is settled whose arrays are reduced: one that is offered now is not."""
        return self._offer.decided

    def offer(self, array: npt.ArrayLike) -> None:
        """Hand in this worker's array, which may not be changed until the round has ended.

        If the quorum is complete before the array reaches the switch, it is not added: see `Reduced.ranks`.

        Raises
        ------
        MisuseError
            It is of another shape or type than the round, or not the first one.
        """
        self._offer.make(array)
        if not self.decided:
            self._wake()

    def result(self, timeout: float | None = None) -> Reduced:
        """Wait for the end of the round.

        Raises
        ------
        PeerError
            As for `Communicator.allreduce`.
        TimeoutError
            It has not ended within `timeout` seconds.
        """
        return self.future.result(timeout)


class Rounds:
    """A number of rounds, each begun when the one before has ended; made by `Communicator.rounds`.

    A worker that is slow does not stop them. It takes the results that have come meanwhile, and goes on from there.

    Parameters
    ----------
    ahead : int
        Limit on kept results that were not taken.

    Raises
    ------
    MisuseError
        A number is less than 1.
    """

    def __init__(self, begin: Callable[[], Round], count: int, ahead: int) -> None:
        if count < 1 or ahead < 1:
            raise MisuseError(f"count and ahead must be 1 at least, got {count} and {ahead}")
        self._begin = begin
        self._count = count
        self._ahead = ahead
        self._changed = threading.Condition()  # guards all below; re-entered where a round ends at once
        self._begun = 0
        self._taken = 0
        self._results: deque[Reduced] = deque()
        self._error: BaseException | None = None
        with self._changed:
            self._begin_next()

    @property
    def number(self) -> int:
        """How many results have been taken: the number of the round that `offer` is for, counted from 0."""
        with self._changed:
            return self._taken

    @property
    def behind(self) -> int:
        """Number of ended rounds whose results were not taken: an array computed for the first of them is late."""
        with self._changed:
            return len(self._results)

    @property
    def done(self) -> bool:
        """Whether all results have been taken."""
        with self._changed:
            return self._taken == self._count

    def offer(self, array: npt.ArrayLike) -> None:
        """Hand in an array for round `number`; without effect if that has ended.

        Raises
        ------
        MisuseError
            All rounds have ended, or see `Round.offer`.
        """
        with self._changed:
            if self._taken == self._count:
                raise MisuseError(f"all {self._count} rounds have ended")
            if not self._results and self._error is None:
                self._current.offer(array)

    def take(self, timeout: float | None = None) -> list[Reduced]:
        """Return the results that have come, in order; at least one, for which it waits.

        Raises
        ------
        MisuseError
            All were taken.
        PeerError
            As for `Communicator.allreduce`.
        TimeoutError
            None came within `timeout` seconds.
        """
        with self._changed:
            if self._taken == self._count:
                raise MisuseError(f"all {self._count} rounds have ended")
            if not self._changed.wait_for(lambda: self._results or self._error, timeout):
                raise TimeoutError(f"round {self._taken} did not end within {timeout} s")
            results = list(self._results)
            if not results:
                assert self._error is not None
                raise self._error
            self._results.clear()
            self._taken += len(results)
            if self._begun == self._taken and self._begun < self._count:
                self._begin_next()  # The limit on kept results had stopped the rounds.
        return results

    def _begin_next(self) -> None:
        self._begun += 1
        self._current = self._begin()
        self._current.future.add_done_callback(self._on_end)

    def _on_end(self, future: Future[Reduced]) -> None:
        with self._changed:
            self._error = future.exception()
            if self._error is None:
                self._results.append(future.result())
                if self._begun < self._count and len(self._results) < self._ahead:
                    try:
                        self._begin_next()
                    except Exception as error:  # The communicator was closed or has failed.
                        self._error = error
            self._changed.notify_all()
