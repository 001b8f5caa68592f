"""Lines on standard error while machine code is compiled."""

import contextlib
import os
import sys
import threading
import time
from typing import Final

from host_agent.words import plural
from netsum_common.machine_code import watchers

_NEWS_S: Final = 10.0


class CompilationNews:
    """Lines on standard error that say why a first run takes long.

    Of the processes that torchrun starts on a machine, the first one writes them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = 0.0
        self._printed = 0.0
        self._functions = 0

    def begin(self, folder: str) -> None:
        """Note that a function was not found in a cache."""
        with self._lock:
            if self._began:
                return
            self._began = self._printed = time.monotonic()
        self.print(f"compiling for this machine, once, which takes about a minute; kept in {folder}")

    def note_function(self) -> None:
        """Note that a function was compiled."""
        with self._lock:
            self._functions += 1
            now = time.monotonic()
            if now - self._printed < _NEWS_S:
                return
            self._printed = now
            line = f"still compiling: {plural(self._functions, 'function')} in {now - self._began:.0f} s"
        self.print(line)

    def end(self) -> None:
        """Note that all that is needed for now is there."""
        with self._lock:
            if not self._began:
                return
            seconds, self._began = time.monotonic() - self._began, 0.0
            line = f"compiled {plural(self._functions, 'function')} in {seconds:.0f} s"
            self._functions = 0
        self.print(line)

    def print(self, line: str) -> None:
        """Write a line."""
        if os.environ.get("LOCAL_RANK", "0") == "0":
            with contextlib.suppress(OSError, ValueError):  # closed
                print(f"netsum: {line}", file=sys.stderr, flush=True)


news = CompilationNews()

watchers.append(news)
