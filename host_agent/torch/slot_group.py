"""A process group's membership in a job: its communicator, and what becomes of it when others leave."""

from __future__ import annotations

import binascii
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from host_agent.collectives import Collective, Op, plan_allreduce, plan_barrier, plan_broadcast
from host_agent.collectives_int64 import plan_allreduce_int64
from host_agent.communicator import Communicator
from host_agent.errors import BrokenCommunicatorError, ClosedCommunicatorError, PeerError
from host_agent.torch.joining import Seat
from host_agent.wire import Admission

Array = npt.NDArray[Any]

LEAVING_GRACE_S: Final = 2.0
"""How long a collective may go on after a worker has left: one that all took part in still ends well."""


class _SubmittingCommunicator(Communicator):
    """A communicator whose collectives are made by the caller, several threads at a time."""

    def __init__(self, admission: Admission, bind: tuple[str, int], timeout_s: float) -> None:
        super().__init__(admission, bind=bind, timeout_s=timeout_s)
        self._order = threading.Lock()
        self._progress.start_thread()

    def submit(self, plan: Callable[[Admission, int], Collective], label: str) -> Future[Any]:
        """Begin the collective that `plan` makes for its place in the order.

        Workers whose labels differ get `MismatchError`.
        """
        with self._order:
            sequence = self._sequence
            collective = plan(self.admission, sequence)
            # What netsum's own mark does not cover: shapes, types that travel as others, which call it was.
            collective.first.fingerprint ^= binascii.crc_hqx(label.encode(), 0xFFFF)
            collective.what = f"{label}, number {sequence}"
            return self._submit(collective)


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
            self._communicator = _SubmittingCommunicator(seat.admission, seat.bind, timeout_s)
        except BaseException:
            seat.close()
            raise
        seat.watch(self._on_left, self._on_end)

    @property
    def communicator(self) -> Communicator:
        """The communicator, for its statistics."""
        return self._communicator

    def allreduce(self, array: Array, op: Op, out: Array, label: str) -> Future[Any]:
        """Reduce an array of a type that `Communicator.allreduce` takes, or int64 ("sum", "min", "max")."""
        if array.dtype == np.int64:
            return self._submit(
                lambda admission, sequence: plan_allreduce_int64(
                    admission, sequence, array, cast(Any, op), out
                ),
                label,
            )
        return self._submit(
            lambda admission, sequence: plan_allreduce(admission, sequence, array, op, out, "raise"), label
        )

    def broadcast(self, array: Array, root: int, label: str) -> Future[Any]:
        """Overwrite a contiguous array with that of the worker `root`."""
        return self._submit(
            lambda admission, sequence: plan_broadcast(admission, sequence, array, root, array), label
        )

    def barrier(self) -> Future[Any]:
        """Meet all workers."""
        return self._submit(plan_barrier, "barrier")

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

    def _submit(self, plan: Callable[[Admission, int], Collective], label: str) -> Future[Any]:
        try:
            return self._communicator.submit(plan, label)
        except (BrokenCommunicatorError, ClosedCommunicatorError) as error:
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

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
