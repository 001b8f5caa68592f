"""Child processes that never outlive this process, and clean-up that no signal interrupts."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from netsum_common.errors import NetsumError
from topologies.interruptions import Unwinding

DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
STOP_GRACE_S = 3.0
_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_living: set["Child"] = set()  # Children that were started and not yet waited for; see `ending_in_order`.


class TestbedError(NetsumError):
    """A testbed could not be brought up, or a part of it ended; the message says what to do."""

    __test__ = False  # Despite the name, pytest must not collect the class.


class Child:
    """A child process that the kernel kills when the thread that started it ends, even if SIGKILL ended that thread.

    The child runs in a session of its own. So Ctrl-C reaches only this process, which then ends its children in order.

    `log`: the file for the child's standard error and, unless `pipes`, its standard output. `pipes`: whether standard input and
    output are pipes to this process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        pipes: bool = False,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.log = log
        bound = [sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid()), *command]
        # An interruption between the fork and the assignment would leave a child that is never stopped.
        with log.open("ab") as log_file, uninterrupted():
            self._popen = subprocess.Popen(
                bound,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else log_file,
                stderr=log_file,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                pass_fds=pass_fds,
            )
            _living.add(self)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    @property
    def stdin(self) -> IO[bytes]:
        """The pipe to its standard input."""
        assert self._popen.stdin is not None, f"{self.name} was started without pipes"
        return self._popen.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """The pipe from its standard output."""
        assert self._popen.stdout is not None, f"{self.name} was started without pipes"
        return self._popen.stdout

    @property
    def status(self) -> int | None:
        """The exit status, or minus the number of the signal that ended the process; None while it runs."""
        return self._popen.poll()

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self.status is None

    @property
    def succeeded(self) -> bool:
        """Whether the process has ended with status 0."""
        return self.status == 0

    def how_it_ended(self) -> str:
        """Describe for a message how the process ended; add its last log line unless SIGTERM or SIGKILL ended it."""
        code = self.status
        if code is None:
            return f"{self.name} is running"
        if code in (-signal.SIGKILL, -signal.SIGTERM):
            return f"{self.name} was killed by {signal.Signals(-code).name}"
        end = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        last = self.last_words()
        return f"{self.name} {end}" + (f" ({last})" if last else "")

    def last_words(self) -> str:
        """Return the last line of the process's log that is not empty."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def kill(self) -> None:
        """SIGKILL the process, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.kill()
        self._close()

    def stop(self) -> None:
        """End the process by SIGTERM, or by SIGKILL after a grace period; wait until it is gone."""
        stop_all([self])

    def terminate(self) -> None:
        """Send the process SIGTERM, without waiting."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.terminate()

    def wait_until(self, deadline: float) -> None:
        """Wait for the end of the process until a time of `time.monotonic`, then SIGKILL it."""
        try:
            self._popen.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._popen.kill()
        self._close()

    def _close(self) -> None:
        self._popen.wait()
        _living.discard(self)
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def stop_all(children: Sequence[Child]) -> None:
    """End children together: SIGTERM to all, one grace period, SIGKILL to those still running."""
    for child in children:
        child.terminate()
    deadline = time.monotonic() + STOP_GRACE_S
    for child in children:
        child.wait_until(deadline)


@contextlib.contextmanager
def uninterrupted() -> Iterator[list[int]]:
    """Hold back Ctrl-C, SIGTERM and SIGHUP until the block is done, so that no second Ctrl-C stops the clean-up.

    Yields the list of signals that have arrived, which grows during the block. Handlers hold the signals back: a signal mask
    covers only one thread, so gRPC's threads would take the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    arrived: list[int] = []
    heeded = [number for number in _INTERRUPTIONS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda got, _: arrived.append(got)) for number in heeded}
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for got in dict.fromkeys(arrived):
            signal.raise_signal(got)


@contextlib.contextmanager
def held_signals(signals: Sequence[signal.Signals] = _INTERRUPTIONS) -> Iterator[None]:
    """Mask signals in this thread until the end of the block; threads and programs started in it inherit the mask.

    If `os.fork` is called in the block, parent and child each restore their mask at its end. Without the mask, Python would
    lose a signal that reaches the child before `os.fork` returns there.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Make SIGTERM, SIGHUP and Ctrl-C unwind the stack, so that every ``with`` block cleans up; see `Unwinding`.

    Children started in the block are stopped at its end: a signal may arrive before a ``with`` block owns its child.
    """
    before = _living.copy()
    with Unwinding():
        try:
            yield
        finally:
            with uninterrupted():
                stop_all(list(_living - before))
