"""The stream between a worker and the controller, begun again whenever it breaks.

A thread reads the stream and calls back with each message. A restart of the controller does not disturb a running
job, so a broken stream is no error; only a refusal by the controller is.
"""

import ipaddress
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

os.environ.setdefault(
    "GRPC_VERBOSITY", "NONE"
)  # Else it writes of every lost connection to a trainer's terminal.

import grpc

from host_agent.job_api import jobs_pb2_grpc
from host_agent.job_api.jobs_pb2 import FromWorker, Leave, ToWorker
from netsum_common.channel import KEEPALIVE, TlsFiles, open_channel

FIRST_BACKOFF_S: Final = 0.05
LAST_BACKOFF_S: Final = 1.0
CLOSING_S: Final = 2.0

_BROKEN: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.CANCELLED,
)
"""Statuses of a broken connection, not of a refusal."""


class JoinStream:
    """One worker's stream.

    `controller`: "HOST:PORT" or "unix:PATH". `opening`: returns the first message of a stream. `on_refusal`: takes the sentence
    of a controller that ends the stream for good; returns whether to begin again all the same. Its first argument is the
    status. `on_unreachable`: called before every new attempt with the reason why the last one broke; returns whether to go
    on.
    """

    def __init__(
        self,
        controller: str,
        tls: TlsFiles,
        opening: Callable[[], FromWorker],
        on_message: Callable[[ToWorker], None],
        on_refusal: Callable[[grpc.StatusCode, str], bool],
        on_unreachable: Callable[[str], bool],
    ) -> None:
        self._controller = controller
        self._peers = _resolved(controller)
        self._channel: Any = open_channel(controller, tls, KEEPALIVE)
        self._opening = opening
        self._on_message = on_message
        self._on_refusal = on_refusal
        self._on_unreachable = on_unreachable
        self._outgoing: queue.SimpleQueue[FromWorker | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._call: Any = None
        self._thread = threading.Thread(target=self._run, name="netsum-membership", daemon=True)

    def start(self) -> None:
        """Begin; the callbacks are called from here on."""
        self._thread.start()

    def send(self, message: FromWorker) -> None:
        """Send something on the present stream."""
        self._outgoing.put(message)

    def close(self) -> None:
        """End the stream in order, which is how a worker leaves."""
        self._closing.set()
        self._outgoing.put(FromWorker(leave=Leave()))
        self._outgoing.put(None)
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSING_S)
        if self._call is not None:
            self._call.cancel()
        self._channel.close()

    def close_in_child(self) -> None:
        """Close, in a forked child, the parent's connection, so that it ends with the parent."""
        for name in os.listdir("/proc/self/fd"):
            descriptor = int(name)
            try:
                known = socket.socket(fileno=descriptor)
            except OSError:
                continue
            try:
                ours = _end(known.family, known.getpeername()) in self._peers
            except OSError:
                ours = False
            known.detach()
            if ours:
                os.close(descriptor)

    def _run(self) -> None:
        backoff_s = FIRST_BACKOFF_S
        while not self._closing.is_set():
            heard, going_on = self._run_stream()
            if not going_on:
                return
            backoff_s = FIRST_BACKOFF_S if heard else min(2 * backoff_s, LAST_BACKOFF_S)
            self._closing.wait(backoff_s)

    def _run_stream(self) -> tuple[bool, bool]:
        """Handle one stream until it ends; return whether any message came on it, and whether to begin another."""
        outgoing: queue.SimpleQueue[FromWorker | None] = queue.SimpleQueue()
        self._outgoing = outgoing
        if self._closing.is_set():
            return False, False
        heard = False
        stub = jobs_pb2_grpc.WorkersStub(self._channel)  # type: ignore[no-untyped-call]
        self._call = stub.Join(_sent(self._opening(), outgoing))
        try:
            for message in self._call:
                heard = True
                self._on_message(message)
            return heard, not self._closing.is_set() and self._on_unreachable("it ended the stream")
        except grpc.RpcError as error:
            sentence = " ".join(str(error.details()).split())
            code = error.code()
            if self._closing.is_set():
                return heard, False
            if code in _BROKEN:
                return heard, self._on_unreachable(sentence)
            return heard, self._on_refusal(code, sentence)
        finally:
            outgoing.put(None)


def _sent(first: FromWorker, rest: queue.SimpleQueue[FromWorker | None]) -> Iterator[FromWorker]:
    yield first
    yield from iter(rest.get, None)


def _resolved(controller: str) -> set[Any]:
    """Return the ends, as `_end` does, of connections to a controller."""
    if controller.startswith("unix:"):
        return {_end(socket.AF_UNIX, controller.removeprefix("unix:"))}
    host, _, port = controller.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return set()
    return {_end(family, name) for family, *_, name in found}


def _end(family: int, name: Any) -> Any:
    """Return the end of a connection in one form, of the many that gRPC and the resolver give an address."""
    if family == socket.AF_UNIX:
        return os.fsencode(name)
    if family not in (socket.AF_INET, socket.AF_INET6):
        return None
    ip: Any = ipaddress.ip_address(name[0])
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return "loopback" if ip.is_loopback else ip, name[1]  # "localhost" is two addresses.
