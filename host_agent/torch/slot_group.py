"""A process group's membership in a job: its communicator, and what happens when other ranks leave."""

import contextlib
import functools
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, Final

import numpy.typing as npt

from host_agent.codecs.accumulator import Accumulator
from host_agent.collectives.exact import Exact
from host_agent.collectives.rows import Rows
from host_agent.communicator import Communicator
from host_agent.errors import BrokenCommunicatorError, ClosedCommunicatorError, MisuseError
from host_agent.forks import INHERITED, OfOneProcess
from host_agent.joining import JoinError, Membership, NoSlotsError
from host_agent.torch.failures import LEAVING_GRACE_S, Failures
from host_agent.torch.gloo_reductions import GlooReductions
from host_agent.torch.options import Options
from host_agent.torch.reductions import Reduction
from host_agent.wire import Admission
from netsum_common.states import next_state

Array = npt.NDArray[Any]
Collectives = Communicator | GlooReductions  # Either runs a group's collectives.
Begin = Callable[[Any], Future[Any]]  # Begins a collective, given the `Collectives`.

GONE_S: Final = 2.0
"""How long a collective may wait for a switch that refuses packets, while its controller does not answer either."""
UNREACHABLE_S: Final = 10.0
"""How long a group that starts waits for a controller that was there before and does not answer."""
LONGEST_S: Final = 1e6
"""A communicator's longest timeout, eleven days; a caller that wants none gives torch a longer one."""


class StartState(Enum):
    """Whether a group has what does its collectives."""

    IDLE = "idle"  # No collective was begun yet.
    STARTING = "starting"  # Collectives wait for the start.
    STARTED = "started"
    FAILED = "failed"  # The start failed, or the group was closed before its end.


class StartEvent(Enum):
    """Events of a group's start."""

    BEGIN = "begin"  # A collective.
    START = "start"
    FAIL = "fail"


_S, _E = StartState, StartEvent
START_TRANSITIONS: Final = {
    (_S.IDLE, _E.BEGIN): _S.STARTING,
    (_S.IDLE, _E.START): _S.STARTED,
    (_S.IDLE, _E.FAIL): _S.FAILED,
    (_S.STARTING, _E.BEGIN): _S.STARTING,
    (_S.STARTING, _E.START): _S.STARTED,
    (_S.STARTING, _E.FAIL): _S.FAILED,
    (_S.STARTED, _E.BEGIN): _S.STARTED,
    (_S.FAILED, _E.BEGIN): _S.FAILED,
    (_S.FAILED, _E.START): _S.FAILED,  # The group was closed meanwhile.
    (_S.FAILED, _E.FAIL): _S.FAILED,
}


class SlotGroup(OfOneProcess):
    """The collectives of one process group on the switch.

    All methods return at once with a future; collectives run in the order of the calls. The caller must not touch the arrays
    until then. The job takes slots of the switch with the first collective, or with `start`.

    `membership`: in the job, not started; closed with the group. `timeout_s`: a collective fails if none of its chunks completes
    for that long. `without_slots`: connects the ranks through Gloo; called at all of them, with the switch's refusal, if it
    has no slots free.
    """

    def __init__(
        self,
        membership: Membership,
        timeout_s: float,
        failures: Failures,
        without_slots: Callable[[NoSlotsError], GlooReductions],
        options: Options | None = None,
        ranks: int = 1,
    ) -> None:
        self.options = options or Options()
        self._ranks = ranks
        self._membership = membership
        self._timeout_s = min(timeout_s, LONGEST_S)
        self._failures = failures
        self._without_slots = without_slots
        self._lock = threading.RLock()  # guards all below, and keeps collectives in order
        self._collectives: Collectives | None = None
        self._start_error: BaseException | None = None
        self._waiting: list[tuple[Begin, Future[Any]]] = []
        self._state = StartState.IDLE
        self._ending = False
        self._handed_over = False  # The membership is another group's.
        self._closer: threading.Timer | None = None
        self._unreachable_since = self._unreachable_last = -math.inf
        super().__init__()
        membership.watch(self._on_left, self._on_end, self._on_restarted, self._on_unreachable)

    @property
    def communicator(self) -> Communicator:
        """The communicator, for its statistics."""
        if isinstance(self._collectives, Communicator):
            return self._collectives
        raise MisuseError(
            "this process group has no slots of a switch"
            + ("" if self._collectives else " yet: it takes them with its first collective")
        )

    @property
    def newcomers(self) -> int:
        """How many workers wait to be added to the job."""
        return self._membership.newcomers

    def start(self) -> None:
        """Take slots now; without free ones, go through Gloo.

        Raises JoinError if the job did not start. The membership is closed then.
        """
        if self._state is StartState.STARTED:
            return
        try:
            collectives = self._started()
        except BaseException as error:
            self._membership.close()
            self._set_started(None, error)
            raise
        self._set_started(collectives, None)

    def allreduce(self, plan: Reduction, label: str, root: int | None = None) -> Future[Any]:
        """Reduce an array; as `Communicator.allreduce_async` does."""
        how = self.options.of(plan.array, plan.op, plan.rounds_to, self._ranks) | {"root": root}
        return self._begin(
            lambda doing: doing.allreduce_async(plan.array, plan.op, out=plan.out, label=label, **how)
        )

    def exact_mean(self, total: Accumulator, out: Array, exact: Exact, label: str) -> Future[Any]:
        """Take the mean of all ranks' accumulators; as `Communicator.allreduce` does."""
        return self._begin(
            lambda doing: doing.allreduce_async(total, "mean", out=out, exact=exact, label=label)
        )

    def allreduce_rows(self, rows: Rows, row_count: int, label: str) -> Future[Any]:
        """Add arrays of which each rank has some rows; as `Communicator.allreduce_rows` does."""
        return self._begin(lambda doing: doing.allreduce_rows_async(rows, row_count, label=label))

    def all_gather(self, array: Array, out: Array, label: str) -> Future[Any]:
        """Gather flat arrays of all workers in the rows of `out`."""
        return self._begin(lambda doing: doing.all_gather_async(array, out=out, label=label))

    def broadcast(self, array: Array, root: int, label: str) -> Future[Any]:
        """Overwrite a contiguous array with that of the worker `root`."""
        return self._begin(lambda doing: doing.broadcast_async(array, root, out=array, label=label))

    def barrier(self, label: str) -> Future[Any]:
        """Meet all workers."""
        return self._begin(lambda doing: doing.barrier_async(label=label))

    def driven_by_caller(self) -> AbstractContextManager[None]:
        """Let the caller's thread progress the collectives of a ``with`` block, in which it calls `drive`."""
        doing = self._collectives
        return (
            doing.control.driven_by_caller() if isinstance(doing, Communicator) else contextlib.nullcontext()
        )

    def drive(self, future: Future[Any]) -> None:
        """Return when a future is done, or at once where not the caller's thread makes it progress."""
        if isinstance(self._collectives, Communicator):
            self._collectives.control.drive(future)

    def close(self) -> None:
        """Leave the job; collectives under way fail."""
        self._failures.note_destroyed()
        with self._lock:
            collectives = self._collectives
            if collectives is None:
                # First, so that the starting thread cannot report the closed membership in its place.
                self._set_started(None, ClosedCommunicatorError("the process group was destroyed"))
        if not self._handed_over:
            self._membership.close()
        if collectives is not None:
            collectives.close()

    def close_in_child(self) -> None:
        """Fail every collective that a forked child begins."""
        self._lock = threading.RLock()
        self._collectives, self._start_error = None, JoinError(INHERITED)
        self._state, self._waiting = StartState.FAILED, []

    def hand_over(self) -> Membership:
        """End the collectives, and return the membership, which stays in the job."""
        with self._lock:
            collectives = self._collectives
            if not isinstance(collectives, Communicator):
                raise MisuseError("a process group without slots of a switch cannot be resized")
            self._handed_over = True
        self._failures.note_destroyed()
        collectives.close()
        return self._membership

    def _begin(self, begin: Begin) -> Future[Any]:
        """Begin a collective, or queue it until the job has started."""
        with self._lock:
            before = self._state
            self._pass_to(StartEvent.BEGIN)
            if self._collectives is not None:
                return _begun(begin, self._collectives)
            if self._start_error is not None:
                return failed(self._start_error)
            queued: Future[Any] = Future()
            self._waiting.append((begin, queued))
            if before is StartState.IDLE:
                threading.Thread(target=self._start_in_background, name="netsum-start", daemon=True).start()
            return queued

    def _pass_to(self, event: StartEvent) -> None:
        self._state = next_state(START_TRANSITIONS, self._state, event, "the process group")

    def _start_in_background(self) -> None:
        try:
            self._set_started(self._started(), None)
        except BaseException as error:
            self._set_started(None, error)

    def _started(self) -> Collectives:
        try:
            self._membership.start(self._timeout_s)
        except NoSlotsError as refusal:
            self._membership.close()
            if self.options.secret is not None:
                raise JoinError(
                    f"{refusal}; with a secret the group does not go through Gloo, which checks nothing: free slots, or leave "
                    "out the secret"
                ) from refusal
            return self._without_slots(refusal)
        return self._membership.communicator(self._timeout_s, trust=self.options.trust)

    def _set_started(self, collectives: Collectives | None, error: BaseException | None) -> None:
        """Keep how the start ended, and begin or fail what waits for it."""
        with self._lock:
            before = self._state
            self._pass_to(StartEvent.FAIL if collectives is None else StartEvent.START)
            if before is StartState.FAILED:
                if collectives is not None:
                    collectives.close()
                return
            self._collectives, self._start_error = collectives, error
            waiting, self._waiting = self._waiting, []
            for begin, queued in waiting:
                try:
                    begun = failed(error) if collectives is None else _begun(begin, collectives)
                except BaseException as misuse:
                    begun = failed(misuse)
                begun.add_done_callback(functools.partial(_copy_outcome, queued))
            if self._ending:
                self._close_soon()

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

    def _on_unreachable(self, reason: str) -> None:
        # A restart of the controller does not disturb the group. One that is gone together with its switch does not come back.
        now = time.monotonic()
        if now - self._unreachable_last > UNREACHABLE_S / 2:  # it was reached in between
            self._unreachable_since = now
        self._unreachable_last = now
        collectives = self._collectives
        if isinstance(collectives, Communicator):
            stuck = collectives.activity().stuck
            if stuck is not None and stuck.waiting_ns > GONE_S * 1e9 and collectives.path_errors:
                self._failures.note_end(f"{collectives.path_errors}, and {reason}")
                self._close_soon()
        elif self._state is StartState.STARTING and now - self._unreachable_since > UNREACHABLE_S:
            self._failures.note_end(reason)
            self._membership.close()  # which ends the start

    def _close_soon(self) -> None:
        with self._lock:
            self._ending = True
            if self._collectives is None or self._closer is not None:
                return
            self._closer = threading.Timer(LEAVING_GRACE_S, self._collectives.close)
            self._closer.daemon = True
            self._closer.start()


def _begun(begin: Begin, collectives: Collectives) -> Future[Any]:
    """Return the future of a collective; one that failed if nothing can be begun any more."""
    try:
        return begin(collectives)
    except (BrokenCommunicatorError, ClosedCommunicatorError) as error:
        return failed(error)


def failed(error: BaseException | None) -> Future[Any]:
    """Return a future that has ended with an error."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def _copy_outcome(queued: Future[Any], ended: Future[Any]) -> None:
    error = ended.exception()
    if error is None:
        queued.set_result(ended.result())
    else:
        queued.set_exception(error)
