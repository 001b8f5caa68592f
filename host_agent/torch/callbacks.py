"""Threads for the callbacks of futures.

Not the thread that progresses collectives: a callback may wait for one, and those of PyTorch's PowerSGD hook do. There is
one thread more than there are callbacks that wait.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from host_agent.forks import OfOneProcess

Call = Callable[[], None]


class CallbackThreads(OfOneProcess):
    """Threads that run functions at once: each in an idle thread, or in a new one."""

    def __init__(self) -> None:
        super().__init__()
        self.close_in_child()

    def close_in_child(self) -> None:
        """Begin without a thread."""
        self._lock = threading.Lock()
        self._calls: SimpleQueue[Call] = SimpleQueue()
        self._idle = 0

    def call(self, what: Call) -> None:
        """Call a function soon; an exception is reported as that of any thread."""
        with self._lock:
            # The threads do not count this: a thread that was given a call may not have taken it yet.
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
