"""Threads for the callbacks of futures.

Not the thread that progresses collectives: a callback may wait for one, and those of PyTorch's PowerSGD hook do. There is
one thread more than there are callbacks that wait.
"""

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

Call = Callable[[], None]


class CallbackThreads:
    """Run what they are given, each as soon as it comes, in a thread that is idle or a new one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: SimpleQueue[Call] = SimpleQueue()
        self._idle = 0

    def call(self, what: Call) -> None:
        """Call it soon; what it raises is shown as of any thread."""
        with self._lock:
            # Not counted by the threads: one that was given something may not have taken it yet.
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._run, name="netsum-callbacks", daemon=True).start()
        self._calls.put(what)

    def _run(self) -> None:
        while True:
            self._calls.get()()
            with self._lock:
                self._idle += 1


_threads = CallbackThreads()


def call_back(what: Call) -> None:
    """Call something soon, in a thread of this module."""
    _threads.call(what)


def _begin_anew() -> None:
    """Forget, in a forked child, threads that are the parent's."""
    global _threads
    _threads = CallbackThreads()


os.register_at_fork(after_in_child=_begin_anew)
