"""Processes of a job, with which lines of JSON are exchanged over their standard input and output."""

import contextlib
import json
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from topologies.children import Child, stop_all, uninterrupted

ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""A process is one of several on the machine; more threads would only get in each other's way."""


class Conversation(ABC):
    """Processes for as long as the ``with`` block; `start_all` starts them."""

    def __init__(self) -> None:
        self.children: list[Child] = []  # In the order in which they were started.
        self._heard: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()

    @abstractmethod
    def start_all(self) -> None:
        """Start each process, by `start`."""

    def __enter__(self) -> Self:
        try:
            self.start_all()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        with uninterrupted():
            stop_all(self.children)

    def start(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Start a process of one thread; the environment is added to ours."""
        child = Child(name, command, log, pipes=True, environment={**ONE_THREAD, **(environment or {})})
        self.children.append(child)
        arguments = (len(self.children) - 1, child)
        threading.Thread(target=self._listen, args=arguments, name=f"listen to {name}", daemon=True).start()
        return child

    def send(self, number: int, **message: object) -> None:
        """Send a message to a process; without effect if it has ended, which `receive` reports."""
        with contextlib.suppress(OSError):
            write_line(self.children[number].stdin, **message)

    def receive(self, timeout_s: float) -> tuple[int, dict[str, Any] | None]:
        """Return which process has sent the next message, and the message; None when it will send no more.

        Raises queue.Empty if none came in time.
        """
        return self._heard.get(timeout=timeout_s)

    def _listen(self, number: int, child: Child) -> None:
        with contextlib.suppress(OSError, ValueError):  # The pipe is closed when the child is stopped.
            while (message := read_line(child.stdout)) is not None:
                self._heard.put((number, message))
        self._heard.put((number, None))


def write_line(stream: IO[bytes], **message: object) -> None:
    """Send one message: a JSON object on a line of its own."""
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def read_line(stream: IO[bytes]) -> dict[str, Any] | None:
    """Return the next message, or None when the other side has closed the stream."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    message = json.loads(line)
    assert isinstance(message, dict)
    return message
