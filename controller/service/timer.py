"""A timer of the event loop."""

import asyncio
from collections.abc import Callable


class Timer:
    """Calls a function once after a delay, unless the timer is stopped or restarted first."""

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        """Whether the timer was started and has not been stopped since."""
        return self._handle is not None

    def start(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        """Schedule a call, which replaces an earlier one."""
        self.stop()
        self._handle = asyncio.get_running_loop().call_later(seconds, call, *arguments)

    def stop(self) -> None:
        """Cancel the call."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
