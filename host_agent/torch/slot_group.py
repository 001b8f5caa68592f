"""A process group's membership in a job: its communicator, and what becomes of it when others leave."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import numpy.typing as npt

from host_agent.collectives import Op
from host_agent.communicator import Communicator
from host_agent.errors import BrokenCommunicatorError, ClosedCommunicatorError
from host_agent.joining import Seat
from host_agent.torch.failures import LEAVING_GRACE_S, Failures
from host_agent.wire import Admission

Array = npt.NDArray[Any]

LONGEST_S: Final = 1e6
"""A communicator's longest timeout, eleven days; people who want none ask torch for more."""


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
    failures : Failures
        Is told who leaves.
    """

    def __init__(self, seat: Seat, timeout_s: float, failures: Failures) -> None:
        self._seat = seat
        self._failures = failures
        self._closing = False
        try:
            self._communicator = seat.communicator(min(timeout_s, LONGEST_S))
        except BaseException:
            seat.close()
            raise
        seat.watch(self._on_left, self._on_end, self._on_restarted)

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

    def barrier(self, label: str) -> Future[Any]:
        """Meet all workers."""
        return _begun(lambda: self._communicator.barrier_async(label=label))

    def close(self) -> None:
        """Leave the job; what is under way fails."""
        self._failures.note_destroyed()
        self._seat.close()
        self._communicator.close()

    def _on_left(self, worker_id: int, reason: str) -> None:
        del reason
        self._failures.note_left(worker_id)
        self._close_soon()

    def _on_end(self, reason: str) -> None:
        self._failures.note_end(reason)
        self._close_soon()

    def _on_restarted(self, admission: Admission, reason: str) -> None:
        del admission  # A group has one epoch: torch has no way to begin its collectives again.
        self._failures.note_restart(reason)
        self._close_soon()

    def _close_soon(self) -> None:
        if self._closing:
            return
        self._closing = True
        timer = threading.Timer(LEAVING_GRACE_S, self._communicator.close)
        timer.daemon = True
        timer.start()


def _begun(begin: Callable[[], Future[Any]]) -> Future[Any]:
    """Return the future of a collective; one that failed if nothing can be begun any more."""
    try:
        return begin()
    except (BrokenCommunicatorError, ClosedCommunicatorError) as error:
        failed: Future[Any] = Future()
        failed.set_exception(error)
        return failed
