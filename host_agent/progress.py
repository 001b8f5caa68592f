"""Progress of collectives, by the caller's thread while it waits or by a thread of its own."""

import atexit
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from host_agent.boundary import Boundary, Position
from host_agent.collectives import Collective
from host_agent.durations import Durations
from host_agent.errors import (
    ClosedCommunicatorError,
    MissingWorkersError,
    MisuseError,
    NetsumError,
    PeerError,
)
from host_agent.lifecycle import Lifecycle, LifecycleEvent, LifecycleState
from host_agent.protocol.core import WorkerCore
from host_agent.protocol.records import COUNTERS
from host_agent.schedule import Outcome, Schedule
from host_agent.statistics import Statistics
from host_agent.transport.link import Link
from host_agent.wire import Admission

T = TypeVar("T")

_WAITING_SLICE_S: Final = 0.1
"""How long the caller's thread may be away from Python, where Ctrl-C is noticed."""
_BACKGROUND_SLICE_S: Final = 1.0


class Progress:
    """Runs the collectives of one communicator. `link`: its way to the switch; closed by `close`."""

    def __init__(self, core: WorkerCore, link: Link) -> None:
        self.core = core
        self.boundary = Boundary()  # Stops between two collectives, to resume in another epoch.
        self._link = link
        self._changed = (
            threading.Condition()
        )  # guards submitted collectives, the lifecycle and the statistics
        self._driving = threading.Lock()  # held by the one thread that touches schedule, core and link
        self.lifecycle = Lifecycle()
        self._schedule = Schedule(core, in_slices=True, boundary=self.boundary)
        self._thread: threading.Thread | None = None
        self._claimant = 0  # Id of the thread that drives in place of the one above; 0: none does.
        self.last = Statistics()
        self.total = Statistics()
        self.durations = Durations(core.admission.epoch)
        self.restarted = ""  # Why the job has another epoch by now, for the error of what fails in this one.

    @property
    def state(self) -> LifecycleState:
        """State of the communicator."""
        return self.lifecycle.state

    def submit(self, collective: Collective[T]) -> Future[T]:
        """Queue a collective; its future is resolved by whichever thread drives.

        Raises BrokenCommunicatorError, ClosedCommunicatorError if nothing can be run any more.
        """
        with self._changed:
            self.lifecycle.on(LifecycleEvent.SUBMIT)
            # The other workers count on a submitted collective: it cannot be cancelled.
            collective.future.set_running_or_notify_cancel()
            self._schedule.add(collective)
            if self._thread is not None and self._claimant != threading.get_ident():
                self._changed.notify_all()
                self._link.wake()
        return collective.future

    @contextmanager
    def driven_by_caller(self) -> Iterator[None]:
        """Let the caller's thread drive what it submits in the block, where it waits, unless something is under way.

        That saves two changes of threads. Collectives that are not done at the end of the block are left to the thread that
        `start_thread` has started.
        """
        with self._changed:
            claims = self.state is LifecycleState.IDLE and self._claimant == 0
            if claims:
                self._claimant = threading.get_ident()
        try:
            yield
        finally:
            if claims:
                with self._changed:
                    self._claimant = 0
                    if self.state is LifecycleState.RUNNING:
                        self._changed.notify_all()

    def wake(self) -> None:
        """Let the thread that drives wake at the schedule: a contribution to a quorum chunk has come."""
        with self._changed:
            if self.state is not LifecycleState.CLOSED:
                self._link.wake()

    def wait(self, future: Future[T]) -> T:
        """Return the future's result, driving the collectives if no thread does.

        Raises MisuseError if called from a callback of a future, which would wait for itself.
        """
        if self._thread is threading.current_thread():
            raise MisuseError(
                "a callback of a future cannot wait for a collective: use allreduce_async there"
            )
        self.drive(future)
        return future.result()

    def drive(self, future: Future[Any]) -> None:
        """Drive until a future is done, if the caller's thread is the one to do so; else return at once."""
        claims = self._claimant == threading.get_ident()
        while (claims or self._thread is None) and not future.done():
            try:
                interrupt = self._step(_WAITING_SLICE_S)
            except BaseException as defect:
                self._break(defect)
                raise
            if interrupt is not None:
                # Ctrl-C: without a thread the others have contributions that this process will not follow up.
                if self._thread is None:
                    self._break(interrupt)
                raise interrupt

    def release(self) -> None:
        """Begin collectives again that a hold has stopped."""
        with self._changed:
            self.boundary.release()
            if self.state is not LifecycleState.CLOSED:
                self._link.wake()

    def hold(self, until: int | None, missing: tuple[int, ...]) -> Position:
        """Begin no collective from number `until` on; see `Boundary.hold`."""
        with self._changed:
            position = self.boundary.hold(until, missing)
            if self.state is not LifecycleState.CLOSED:
                self._link.wake()  # The limit may have grown.
            return position

    def move(self, admission: Admission) -> bool:
        """Let the next collective be the first of another epoch; returns whether that is possible now."""
        with self._changed:
            if self.state not in (LifecycleState.IDLE, LifecycleState.RUNNING) or not self.boundary.move(
                admission
            ):
                return False
            self._link.wake()
            return True

    def start_thread(self) -> None:
        """Let a thread of its own drive from now on."""
        with self._changed:
            if self._thread is not None or self.state is LifecycleState.CLOSED:
                return
            self._thread = threading.Thread(target=self._run, name="netsum-progress", daemon=True)
            self._thread.start()
        # Compiled code must not be running when the interpreter takes its arrays away.
        atexit.register(self.close)

    def close(self) -> None:
        """Fail all pending collectives, stop the thread, close the socket. Can be called again."""
        with self._changed:
            if self.state is LifecycleState.CLOSED:
                return
            self.lifecycle.on(LifecycleEvent.CLOSE)
            self._changed.notify_all()
            self._link.wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        atexit.unregister(self.close)
        with self._driving:
            outcomes = self._schedule.drop(
                ClosedCommunicatorError("the communicator was closed before the collective was done")
            )
            self._link.close()
        _resolve(outcomes)

    def close_in_child(self) -> None:
        """Release, in a forked child, the parent's thread and locks."""
        self._changed, self._driving = threading.Condition(), threading.Lock()
        self._thread, self._claimant = None, 0
        atexit.unregister(self.close)

    def _run(self) -> None:
        while True:
            with self._changed:
                while self.state is not LifecycleState.CLOSED and (
                    self.state is not LifecycleState.RUNNING or self._claimant
                ):
                    self._changed.wait()
                if self.state is LifecycleState.CLOSED:
                    return
            try:
                interrupt = self._step(_BACKGROUND_SLICE_S)
            except BaseException as defect:
                interrupt = defect
            if interrupt is not None:  # the waiting caller must receive it
                self._break(interrupt)

    def _step(self, seconds: float) -> BaseException | None:
        """Drive for at most that long, or until something has ended; return what interrupted the exchange.

        A signal's handler raises there, where nearly all of the time is spent: the step is completed nevertheless, so that
        another thread can go on.
        """
        interrupt = None
        with self._driving:
            if self.state is LifecycleState.CLOSED:
                return None
            self._link.clear_wake()
            admission = self.boundary.take_move()
            if admission is not None:
                self._enter(admission)
            if self.core.passes_under_way == 0:
                self._link.clear_trouble()
            self._schedule.begin(time.monotonic_ns())
            try:
                self._link.exchange(0.0 if self._schedule.busy else seconds)
            except BaseException as error:
                interrupt = error
            outcomes = self._schedule.take_ended(time.monotonic_ns(), self._link.trouble(), self.restarted)
            late = self._held_too_long()
            with self._changed:
                for outcome in outcomes:
                    if outcome.statistics.collectives == 0:
                        continue  # it did not run to its end
                    self.last = outcome.statistics
                    self.total.add(outcome.statistics)
                    self.durations.add(outcome.statistics.duration_ns)
                failure = self._schedule.failure or late
                if failure is not None and self.state is LifecycleState.RUNNING:
                    self.lifecycle.on(LifecycleEvent.FAIL, failure)
                elif self.state is LifecycleState.RUNNING and not self._schedule:
                    self.lifecycle.on(LifecycleEvent.DRAIN)
            if failure is not None:
                outcomes += self._schedule.drop(failure)
        _resolve(outcomes)
        return interrupt

    def _enter(self, admission: Admission) -> None:
        """Continue in another epoch; the counters keep their values."""
        before = self.core.state[0]
        core = WorkerCore(admission, int(before["timeout_ns"]))
        for name in COUNTERS:
            core.state[name] = before[name]
        self._link.enter(core)
        self._schedule.enter(core)
        self.core = core

    def _held_too_long(self) -> PeerError | None:
        """Return the error for a collective that has waited for a move of the job beyond its deadline."""
        timeout_ns = int(self.core.state["timeout_ns"][0])
        if self.boundary.waited_ns(time.monotonic_ns()) < timeout_ns:
            return None
        missing = self.boundary.missing
        failure = f"a collective waited {timeout_ns / 1e9:g} s for the job to move to other slots"
        if missing:
            names = ", ".join(map(str, missing))
            return MissingWorkersError(
                f"{failure}: the controller waits for worker{'s' if len(missing) > 1 else ''} {names}",
                missing,
            )
        return PeerError(f"{failure}, and the controller has not said whom it waits for: check that it runs")

    def _break(self, cause: BaseException) -> None:
        """End everything because of an error outside the core."""
        interrupted = f"the communicator was interrupted in the middle of a collective by {cause!r}"
        error = cause if isinstance(cause, NetsumError) else NetsumError(interrupted)
        with self._driving:
            with self._changed:
                if self.state in (LifecycleState.IDLE, LifecycleState.RUNNING):
                    self.lifecycle.on(LifecycleEvent.FAIL, error)
            outcomes = self._schedule.drop(error)
        _resolve(outcomes)


def _resolve(outcomes: list[Outcome]) -> None:
    """Resolve futures. Under no lock: their callbacks may submit the next collective, or close the communicator."""
    for outcome in outcomes:
        outcome.resolve()
