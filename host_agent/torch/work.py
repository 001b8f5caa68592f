"""The `Work` that a collective returns; it completes in the background."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from host_agent.torch.callbacks import call_back
from host_agent.torch.tracing import untraced_methods
from host_agent.torch.typed_future import called_by_engine, typed_future

LOOK_S: Final = 1.0
"""How long a work that others may have refused is waited for before one looks whether they have."""


def tensors_in(outputs: Sequence[Any]) -> list[Tensor]:
    """Return the tensors of a list of tensors or of lists of them."""
    return [each for item in outputs for each in ([item] if isinstance(item, Tensor) else item)]


@untraced_methods
class NetsumWork(dist._Work):
    """Handle of collectives under way.

    `outputs`: the tensors that the collective writes; the value of its future. `parts`: futures that must be done first.
    Collectives end in the order they began in, or all fail together. `finish`: runs once after the parts, for example to round
    into the tensors, in the thread that progresses collectives: the caller's, if it waits at once. `explain`: takes `what` and
    an error, returns the error that `wait` raises. `patience`: timeout of a `wait` without one; 0 or less: the group's timeout.
    `ended`: called once with the error of `wait`, or None, before waiters resume. `refused`: polled by waiters; returns the error
    of a work in which another rank does not take part.
    """

    def __init__(
        self,
        what: str,
        outputs: Sequence[Tensor],
        parts: Sequence[Future[Any]],
        finish: Callable[[], None] = lambda: None,
        explain: Callable[[str, BaseException], BaseException] = lambda what, error: error,
        patience: timedelta = timedelta(0),
        ended: Callable[[BaseException | None], None] = lambda error: None,
        refused: Callable[[], BaseException | None] = lambda: None,
    ) -> None:
        super().__init__()
        self._what = what
        self._outputs = list(outputs)
        self._finish = finish
        self._explain = explain
        self._patience = patience
        self._ended = ended
        self._refused = refused
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._over = False
        self._lock = threading.Lock()
        self._future: torch.futures.Future[Any] | None = None
        self._parts = list(parts)
        self._open_parts = len(parts)
        for part in parts:
            part.add_done_callback(self._part_done)
        if not parts:
            self._complete(None)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until the tensors hold the result.

        `timeout`: how long at most; 0 for as long as the call, or else the group's own timeout, allows. Raises
        torch.distributed.DistBackendError if the collective failed; `__cause__` is netsum's own error, which says why.
        """
        seconds = (timeout if timeout > timedelta(0) else self._patience).total_seconds()
        until = time.monotonic() + seconds if seconds > 0 else math.inf
        while not self._done.wait(min(LOOK_S, until - time.monotonic())):
            if time.monotonic() >= until:
                raise dist.DistBackendError(f"{self._what} was not done within {seconds:g} s; it goes on")
            refusal = self._refused()
            if refusal is not None:
                self._complete(refusal)
        if self._error is not None:
            raise self._error
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of the output tensors."""
        with self._lock:
            if self._future is None:
                # Tensors that are not on the CPU need a future that knows their devices.
                devices = {each.device for each in tensors_in(self._outputs) if each.device.type != "cpu"}
                self._future = torch.futures.Future(devices=list(devices))
                if self._done.is_set():
                    self._resolve(self._future)  # it has no callbacks yet
            source = self._future

        # DDP's reducer reads this future from C++, where the error of a Python future is but another value. One
        # that a callback raises is an error there too.
        def value(done: torch.futures.Future[Any]) -> Any:
            outcome = done.value()
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        done = source.then(value)
        if called_by_engine() and all(isinstance(each, Tensor) and each.is_cpu for each in self._outputs):
            # At the end of the backward pass and before DDP's own wait, which would put TorchScript's words before the reason.
            torch.autograd.Variable._execution_engine.queue_callback(self.wait)
            return typed_future(done, self._outputs)
        return done

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        return self._done.is_set()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self._done.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """Return the error it ended with."""
        return self._error

    def result(self) -> list[Tensor]:
        """Return the output tensors, once it is done."""
        self.wait()
        return self._outputs

    def synchronize(self) -> None:
        """Wait, as on the CPU there is no stream to wait for."""
        self.wait()

    def _part_done(self, part: Future[Any]) -> None:
        with self._lock:
            self._open_parts -= 1
            if self._open_parts:
                return
        error = next((done.exception() for done in self._parts if done.exception() is not None), None)
        if error is None:
            try:
                self._finish()
            except BaseException as defect:
                error = defect
        self._complete(error)

    def _complete(self, error: BaseException | None) -> None:
        with self._lock:
            if self._over:
                return  # The work was refused before.
            self._over = True
        self._error = None if error is None else self._explain(self._what, error)
        self._ended(self._error)
        # The closure holds buffers that are not needed any more.
        self._finish = lambda: None
        self._parts.clear()
        with self._lock:
            self._done.set()
            future = self._future
        if future is not None:
            call_back(lambda: self._resolve(future))

    def _resolve(self, future: torch.futures.Future[Any]) -> None:
        future.set_result(self._outputs if self._error is None else self._error)
