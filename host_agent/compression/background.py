"""A thread that runs one task after the other."""

import queue
import threading
from collections.abc import Callable


class Background:
    """Runs tasks in the order in which they are submitted, in a daemon thread that the first one starts.

    `name`: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, task: Callable[[], None]) -> None:
        """Run a task after those before it; it reports its own errors."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._tasks.put(task)

    def _run(self) -> None:
        while True:
            self._tasks.get()()
