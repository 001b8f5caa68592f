"""A lock that is handed over in the order it was asked for.

The data path takes the switch thousands of times a second. With an ordinary lock it would take it again
before a waiting control request had even woken up.
"""

import threading
from collections import deque
from types import TracebackType

WAIT_S = 60.0
"""Longest wait. Whoever holds the switch holds it for one batch of packets or one batch of updates."""


class Turns:
    """A first come, first served lock; a context manager, not reentrant."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._guard:
            if not self._held:
                self._held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        if turn.acquire(timeout=WAIT_S):
            return
        with self._guard:
            if turn in self._waiting:
                self._waiting.remove(turn)
                raise TimeoutError(f"the switch was busy for {WAIT_S:.0f} s; it hangs or is far too slow")

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False
