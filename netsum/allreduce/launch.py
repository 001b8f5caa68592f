"""Runs a rank on each of several hosts and collects their messages."""

import contextlib
import json
import queue
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from host_agent.errors import NetsumError
from netsum.allreduce.plan import Plan
from netsum.allreduce.report import Message
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


START_TIMEOUT_S = 900.0
"""Compiling the worker's machine code on a busy machine, if that was not done before, with room to spare."""
SILENCE_S = 60.0
"""How long beyond the deadline of a collective the ranks may send nothing: they compute their numbers meanwhile."""


class RankError(NetsumError):
    """A rank failed; the message says which and why."""


@dataclass(frozen=True)
class Site:
    """The place where a rank runs."""

    name: str
    prefix: tuple[str, ...] = ()  # Beginning of a command line that runs there.
    environment: Mapping[str, str] = field(default_factory=dict)  # Added to ours.


class Ranks(Conversation):
    """A process for each rank; they are gone when the ``with`` block ends.

    `command`: a rank's command, given its number; it prints messages as lines of JSON, and stays after its last, ``done``,
    until its standard input ends.
    """

    def __init__(self, command: Callable[[int], Sequence[str]], sites: Sequence[Site], folder: Path) -> None:
        super().__init__()
        self._command = command
        self._sites = sites
        self._folder = folder

    def start_all(self) -> None:
        """Start the ranks."""
        for rank, site in enumerate(self._sites):
            self.start(
                self._name(rank),
                [*site.prefix, *self._command(rank)],
                self._folder / f"rank{rank}-{site.name}.log",
                site.environment,
            )

    def follow(self, silence_s: float, on_message: Callable[[int, Message], None]) -> None:
        """Take messages until every rank has sent ``done``.

        `silence_s`: how long all of them together may send nothing. Raises RankError if a rank failed or ended, or they were
        silent for too long.
        """
        waiting = set(range(len(self._sites)))
        joined = False
        while waiting:
            try:
                rank, message = self.receive(silence_s if joined else START_TIMEOUT_S + silence_s)
            except queue.Empty:
                silent = ", ".join(self._name(rank) for rank in sorted(waiting))
                raise RankError(
                    f"{silent} sent no report for {silence_s:g} s; their last output: {self._last_words()}"
                ) from None
            if message is None:
                if rank in waiting:
                    raise RankError(self.children[rank].how_it_ended())
                continue
            on_message(rank, message)
            if message["event"] == "failed":
                raise RankError(f"{self._name(rank)}: {message['error']}")
            joined = joined or message["event"] == "joined"
            if message["event"] == "done":
                waiting.discard(rank)

    def dismiss(self, timeout_s: float = 10.0) -> None:
        """Let ranks that are done leave, and wait for their end."""
        for child in self.children:
            with contextlib.suppress(OSError):
                child.stdin.close()
        deadline = time.monotonic() + timeout_s
        while any(child.running for child in self.children) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _name(self, rank: int) -> str:
        return f"rank {rank} on {self._sites[rank].name}"

    def _last_words(self) -> str:
        return "; ".join(words for child in self.children if (words := child.last_words())) or "nothing"


def rank_command(
    plan: Plan, job: str, world_size: int, *, controller: str, slots: str | None, rank: int
) -> list[str]:
    """Return the command line of one rank that adds in the network."""
    return [
        *(sys.executable, "-P", "-m", "netsum.allreduce.worker", "--stay", "--job", job, "--rank", str(rank)),
        *("--world-size", str(world_size), "--plan", plan.to_json(), "--controller", controller),
        *(() if slots is None else ("--slots", slots)),
    ]


def silence_of(plan: Plan) -> float:
    """Return how long ranks with a plan may send nothing, in seconds."""
    largest: int = max(exchange.elements for exchange in plan.exchanges)
    return plan.timeout_s + SILENCE_S + largest * 1e-6
