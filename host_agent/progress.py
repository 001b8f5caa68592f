"""What makes collectives progress: the caller's thread while it waits, or a thread of its own."""

from __future__ import annotations

import atexit
import threading
import time
from concurrent.futures import Future
from typing import Any, Final

from host_agent.collectives import Collective
from host_agent.errors import ClosedCommunicatorError, MisuseError, NetsumError
from host_agent.lifecycle import Event, Lifecycle, State
from host_agent.protocol.core import WorkerCore
from host_agent.schedule import Outcome, Schedule
from host_agent.statistics import Statistics
from host_agent.transport.udp import UdpLink

_WAITING_SLICE_S: Final = 0.1
"""How long the caller's thread may be away from Python, where Ctrl-C is noticed."""
_BACKGROUND_SLICE_S: Final = 1.0


class Progress:
    """Runs the collectives of one communicator.

    Parameters
    ----------
    core : WorkerCore
        The worker's protocol state.
    link : UdpLink
        Its socket; closed by `close`.
    """

    def __init__(self, core: WorkerCore, link: UdpLink) -> None:
        self._core = core
        self._link = link
        self._changed = threading.Condition()  # guards what was submitted, the lifecycle and the statistics
        self._driving = threading.Lock()  # held by the one thread that touches schedule, core and link
        self.lifecycle = Lifecycle()
        self._schedule = Schedule(core, in_slices=True)
        self._thread: threading.Thread | None = None
        self.last = Statistics()
        self.total = Statistics()

    @property
    def state(self) -> State:
        """Where the communicator stands."""
        return self.lifecycle.state

    def submit(self, collective: Collective) -> Future[Any]:
        """Queue a collective; its future is resolved by whichever thread drives.

        Raises
        ------
        BrokenCommunicatorError, ClosedCommunicatorError
            If nothing can be run any more.
        """
        with self._changed:
            self.lifecycle.on(Event.SUBMIT)
            # The other workers count on what was submitted: it cannot be cancelled.
            collective.future.set_running_or_notify_cancel()
            self._schedule.add(collective)
            self._changed.notify_all()
            if self._thread is not None:
                self._link.wake()
        return collective.future

    def wait(self, future: Future[Any]) -> Any:
        """Return the future's result, driving the collectives if no thread does.

        Raises
        ------
        MisuseError
            If called from a callback of a future, which would wait for itself.
        """
        if self._thread is threading.current_thread():
            raise MisuseError(
                "a callback of a future cannot wait for a collective: use allreduce_async there"
            )
        while self._thread is None and not future.done():
            try:
                self._step(_WAITING_SLICE_S)
            except BaseException as interrupt:
                # Ctrl-C in the middle: the others have contributions that this process will not follow up.
                self._break(interrupt)
                raise
        return future.result()

    def start_thread(self) -> None:
        """Let a thread of its own drive from now on."""
        with self._changed:
            if self._thread is not None or self.state is State.CLOSED:
                return
            self._thread = threading.Thread(target=self._run, name="netsum-progress", daemon=True)
            self._thread.start()
        # Compiled code must not be running when the interpreter takes its arrays away.
        atexit.register(self.close)

    def close(self) -> None:
        """Fail what is not done, stop the thread, close the socket. Can be called again."""
        with self._changed:
            if self.state is State.CLOSED:
                return
            self.lifecycle.on(Event.CLOSE)
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

    def _run(self) -> None:
        while True:
            with self._changed:
                while self.state not in (State.RUNNING, State.CLOSED):
                    self._changed.wait()
                if self.state is State.CLOSED:
                    return
            try:
                self._step(_BACKGROUND_SLICE_S)
            except BaseException as defect:  # the waiting caller must receive it
                self._break(defect)

    def _step(self, seconds: float) -> None:
        """Drive for at most that long, or until something has ended."""
        with self._driving:
            if self.state is State.CLOSED:
                return
            self._link.clear_wake()
            if self._core.passes_under_way == 0:
                self._link.forget_trouble()
            self._schedule.begin(time.monotonic_ns())
            self._link.exchange(0.0 if self._schedule.busy else seconds)
            outcomes = self._schedule.take_ended(time.monotonic_ns(), self._link.trouble())
            with self._changed:
                for outcome in outcomes:
                    if outcome.statistics.collectives == 0:
                        continue  # it did not run to its end
                    self.last = outcome.statistics
                    self.total.add(outcome.statistics)
                failure = self._schedule.failure
                if failure is not None and self.state is State.RUNNING:
                    self.lifecycle.on(Event.FAIL, failure)
                elif self.state is State.RUNNING and not self._schedule:
                    self.lifecycle.on(Event.DRAIN)
            if failure is not None:
                outcomes += self._schedule.drop(failure)
        _resolve(outcomes)

    def _break(self, cause: BaseException) -> None:
        """End everything because of what is no failure of the core."""
        error = NetsumError(f"the communicator was interrupted in the middle of a collective by {cause!r}")
        with self._driving:
            with self._changed:
                if self.state in (State.IDLE, State.RUNNING):
                    self.lifecycle.on(Event.FAIL, error)
            outcomes = self._schedule.drop(error)
        _resolve(outcomes)


def _resolve(outcomes: list[Outcome]) -> None:
    """Resolve futures. Under no lock: their callbacks may submit the next collective, or close the communicator."""
    for outcome in outcomes:
        outcome.resolve()
