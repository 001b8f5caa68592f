"""Calls of the job API without gRPC: messages take time, readers are slow, streams break at either end."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from tests.controller.world.simulation import Loop, Simulation


class AbortedError(Exception):
    """The service has ended a call with a status."""


class Caller(Protocol):
    """The client's side of a call."""

    def heard(self, call: "Call", message: Any) -> None:
        """A message has come."""

    def over(self, call: "Call", code: str, sentence: str) -> None:
        """The call has ended with a status; "UNAVAILABLE": the connection broke."""


class Call:
    """One call, which is the `context` of the service's handler too.

    `delays`: how long a message may travel, in seconds. `window`: how many messages the service can send before the caller
    has read the first. `reads_in`: how long the caller takes to read a message, in seconds.
    """

    def __init__(
        self,
        simulation: Simulation,
        loop: Loop,
        caller: Caller,
        name: str,
        delays: tuple[float, ...] = (0.0001,),
        window: int = 16,
        reads_in: float = 0.0,
    ) -> None:
        self.simulation, self.loop, self.caller, self.name = simulation, loop, caller, name
        self._chance = simulation.chance(f"call {name} {simulation.now}")
        self._delays, self._window, self.reads_in = delays, window, reads_in
        self._inbox: deque[Any] = deque()  # For the service.
        self._reader: asyncio.Future[None] | None = None
        self._unread = 0  # Messages to the caller that it has not read.
        self._writer: asyncio.Future[None] | None = None
        self._last_in = self._last_out = simulation.now
        self._status: tuple[str, str] | None = None
        self.open = True  # Whether the caller has the call.
        self.task: asyncio.Task[Any] | None = None
        self.peer = name

    def begin(self, handler: Callable[[Any], Any]) -> None:
        """Let the service serve the call once it has come there."""
        self._to_service(self._begin, handler)

    def _begin(self, handler: Callable[[Any], Any]) -> None:
        if self.loop.is_closed():
            self.break_at_caller()
            return
        self.task = self.loop.create_task(handler(self))
        self.task.remove_done_callback(self.loop._done)  # An aborted call ends so.
        self.task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.loop.tasks.pop(task, None)
        status, error = ("OK", ""), None if task.cancelled() else task.exception()
        if task.cancelled():
            status = ("CANCELLED", "")
        elif isinstance(error, AbortedError):
            status = (error.args[0].name, error.args[1])
        elif error is not None:
            self.simulation.faults.append(f"the call of {self.name} ended with {error!r}")
            status = ("UNKNOWN", repr(error))
        result = None if error is not None or task.cancelled() else task.result()
        if result is not None:  # The call is no stream.
            self._to_caller(self._hear, result)
        self._to_caller(self._end, *status)

    # The caller's side

    def say(self, message: Any) -> None:
        """Send a message to the service."""
        if self.open:
            self._to_service(self._arrive, message)

    def close(self) -> None:
        """Say that no more messages come."""
        self.say(grpc.aio.EOF)

    def break_off(self, seconds: float = 0.0) -> None:
        """Break the connection; the service notices after some time."""
        self.open = False
        self.simulation.at(seconds, self._cancel)

    def break_at_caller(self) -> None:
        """Let the caller notice that the connection is broken."""
        if self.open:
            self.open = False
            self.caller.over(self, "UNAVAILABLE", "the connection broke")

    # The service's side

    async def read(self) -> Any:
        while not self._inbox:
            self._reader = self.loop.create_future()
            await self._reader
        return self._inbox.popleft()

    async def write(self, message: Any) -> None:
        while self._unread >= self._window:
            self._writer = self.loop.create_future()
            await self._writer
        self._unread += 1
        self._to_caller(self._hear, message)

    async def abort(self, code: Any, details: str) -> None:
        raise AbortedError(code, details)

    # On the way

    def _to_service(self, call: Callable[..., object], *arguments: Any) -> None:
        self._last_in = max(self._last_in, self.simulation.now + self._chance.choice(self._delays))
        self.simulation.at(self._last_in - self.simulation.now, call, *arguments)

    def _to_caller(self, call: Callable[..., object], *arguments: Any) -> None:
        takes = self._chance.choice(self._delays) + self.reads_in
        self._last_out = max(self._last_out, self.simulation.now) + takes
        self.simulation.at(self._last_out - self.simulation.now, call, *arguments)

    def _arrive(self, message: Any) -> None:
        if self.loop.is_closed():
            return
        self._inbox.append(message)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _hear(self, message: Any) -> None:
        self._unread -= 1
        if self._writer is not None and not self._writer.done() and not self.loop.is_closed():
            self._writer.set_result(None)
        if self.open:
            self.simulation.say(f"{self.name} hears {_words(message)}")
            self.caller.heard(self, message)

    def _end(self, code: str, sentence: str) -> None:
        if self.open:
            self.open = False
            self.simulation.say(f"{self.name} is told {code} {sentence}".rstrip())
            self.caller.over(self, code, sentence)

    def _cancel(self) -> None:
        if self.task is not None and not self.task.done() and not self.loop.is_closed():
            self.task.cancel()


def _words(message: Any) -> str:
    kind = message.WhichOneof("message") if hasattr(message, "WhichOneof") and _has_kinds(message) else None
    if kind is None:
        return type(message).__name__
    inner = " ".join(str(getattr(message, kind)).split())
    return f"{kind} {_without_secrets(inner)}".rstrip()


def _has_kinds(message: Any) -> bool:
    return "message" in message.DESCRIPTOR.oneofs_by_name


def _without_secrets(words: str) -> str:
    """Leave out what differs from run to run: leases and tokens."""
    parts, skip = [], False
    for part in words.split(" "):
        if skip:
            skip = False
        elif part in ("lease:", "token:", "attempt:"):
            skip = True
        else:
            parts.append(part)
    return " ".join(parts)
