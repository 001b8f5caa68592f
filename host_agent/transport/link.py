"""A worker core's way to its switch, of whichever kind."""

import contextlib
import os
import time
from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from host_agent.errors import MisuseError
from host_agent.forks import INHERITED, OfOneProcess
from host_agent.protocol.core import WorkerCore
from host_agent.transport.exchange import exchange


class Link(OfOneProcess):
    """Carries a worker core's datagrams to its switch and back."""

    # The link as compiled code sees it: a named tuple of a class in `exchange.LINKS`, with the same `wake`.
    ends: Any

    def __init__(self, core: WorkerCore) -> None:
        self._core = core
        self._wake: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        super().__init__()

    @property
    @abstractmethod
    def address(self) -> tuple[str, int]:
        """The IPv4 address and UDP port by which the switch knows this worker."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The way that datagrams take: a value of NETSUM_LINK."""

    @abstractmethod
    def enter(self, core: WorkerCore) -> None:
        """Carry the datagrams of another core from now on: that of the next epoch, maybe at another switch.

        Raises MisuseError if the switch cannot be reached at all.
        """

    @abstractmethod
    def trouble(self) -> str:
        """Return the error that the system reported about the path to the switch; empty if none."""

    @abstractmethod
    def clear_trouble(self) -> None:
        """Start `trouble` anew."""

    def exchange(self, seconds: float) -> int:
        """Send and receive for at most that long; see `exchange.exchange` for when it returns earlier and what."""
        reason: int = exchange(*self._core.records, self.ends, time.monotonic_ns() + int(seconds * 1e9))
        return reason

    def wake(self) -> None:
        """Make `exchange`, running in another thread, return soon. Callable from any thread."""
        self._wake[0] = 1
        if self._wake_fd >= 0:
            with contextlib.suppress(BlockingIOError):  # full: it is awake already
                os.eventfd_write(self._wake_fd, 1)

    def clear_wake(self) -> None:
        """Make `exchange` run again after `wake`. Raises MisuseError in a forked child."""
        if self._wake_fd < 0:
            raise MisuseError(INHERITED)
        self._wake[0] = 0
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)

    def close(self) -> None:
        """Close it; `exchange` must not be running."""
        if self._wake_fd >= 0:
            os.close(self._wake_fd)
            self._wake_fd = -1

    def close_in_child(self) -> None:
        """Close it in a forked child, without a sign to the switch, and refuse to exchange anything."""
        self.close()
