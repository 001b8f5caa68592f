"""A process group's membership in a job: its communicator, and what becomes of it when others leave."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import numpy.typing as npt

from host_agent.collectives import Op
from host_agent.communicator import Communicator
from host_agent.errors import BrokenCommunicatorError, ClosedCommunicatorError, PeerError
from host_agent.torch.joining import Seat

Array = npt.NDArray[Any]

LEAVING_GRACE_S: Final = 2.0
"""How long a collective may go on after a worker has left: one that all took part in still ends well."""


class SlotGroup:
    """The collectives that the switch does for one process group.

    All methods return at once with a future; what they begin is done in the order of the calls. The arrays must be left
    alone until then.

    Parameters
    ----------
    seat : Seat
        In the job; closed with the group.
    timeout_s : float
        A collective fails if none of its chunks completes for that long.
    """

    def __init__(self, seat: Seat, timeout_s: float) -> None:
        self._seat = seat
        self._left: list[int] = []
        self._first_left_at = math.inf
        self._end_of_service = ""
        self._closing = self._closed = False
        try:
            self._communicator = Communicator(seat.admission, bind=seat.bind, timeout_s=timeout_s)
        except BaseException:
            seat.close()
            raise
        seat.watch(self._on_left, self._on_end)

    @property
    def communicator(self) -> Communicator:
        """The communicator, for its statistics."""
        return self._communicator

    def allreduce(self, array: Array, op: Op, out: Array, label: str) -> Future[Any]:
        """Reduce an array; as `Communicator.allreduce` does."""
        return _begun(lambda: self._communicator.allreduce_async(array, op, out=out, label=label))

    def broadcast(self, array: Array, root: int, label: str) -> Future[Any]:
        """Overwrite a contiguous array with that of the worker `root`."""
        return _begun(lambda: self._communicator.broadcast_async(array, root, out=array, label=label))

    def barrier(self) -> Future[Any]:
        """Meet all workers."""
        return _begun(lambda: self._communicator.barrier_async(label="barrier"))

    def explain(self, error: BaseException) -> BaseException:
        """Return what lies behind an error of a collective."""
        if isinstance(error, ClosedCommunicatorError) and self._closing and not self._closed:
            return self._departure()
        return error

    def close(self) -> None:
        """Leave the job; what is under way fails."""
        self._closed = True
        self._seat.close()
        self._communicator.close()

    def _on_left(self, worker_id: int) -> None:
        # Who leaves much later than the first most likely leaves because of that.
        now = time.monotonic()
        self._first_left_at = min(self._first_left_at, now)
        if now - self._first_left_at < LEAVING_GRACE_S / 2:
            self._left.append(worker_id)
        self._close_soon()

    def _on_end(self, reason: str) -> None:
        self._end_of_service = reason
        self._close_soon()

    def _close_soon(self) -> None:
        if self._closing:
            return
        self._closing = True
        timer = threading.Timer(LEAVING_GRACE_S, self._communicator.close)
        timer.daemon = True
        timer.start()

    def _departure(self) -> PeerError:
        if self._end_of_service:
            return PeerError(f"the service that has the switch ended: {self._end_of_service}")
        ranks = sorted(set(self._left))
        named = f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))
        return PeerError(f"{named} of the group left before this was done")


def _begun(begin: Callable[[], Future[Any]]) -> Future[Any]:
    """Return the future of a collective; one that failed if nothing can be begun any more."""
    try:
        return begin()
    except (BrokenCommunicatorError, ClosedCommunicatorError) as error:
        failed: Future[Any] = Future()
        failed.set_exception(error)
        return failed
