"""A lock that is handed over in the order it was asked for.

The data path keeps the switch until another thread requests it, and takes it again at once. With an ordinary lock it would
have it back before a waiting control request had even woken up.
"""

import threading
from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

WAIT_S = 60.0  # Longest wait. A thread holds the switch for one batch of packets or one batch of updates.


class Turns:
    """A first come, first served lock; a context manager, not reentrant."""

    def __init__(self) -> None:
        # int64[1]. 1 while a thread waits, for a holder in compiled code, which gives way soon.
        self.asked: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        # Called when a thread begins to wait; ends a wait of the holder for packets.
        self.interrupt: Callable[[], None] = lambda: None
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
            self.asked[0] = 1
            self.interrupt()
        if turn.acquire(timeout=WAIT_S):
            return
        with self._guard:
            if turn in self._waiting:
                self._waiting.remove(turn)
                self.asked[0] = bool(self._waiting)
                raise TimeoutError(f"the switch was busy for {WAIT_S:.0f} s; it hangs or is far too slow")

    def __exit__(self, *_: object) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
                self.asked[0] = bool(self._waiting)
            else:
                self._held = False
