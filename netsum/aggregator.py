"""The agent of an aggregator host: registers with a controller, and runs the embedded switch when the controller asks for it."""

import json
import queue
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import grpc

from host_agent.errors import NetsumError
from host_agent.job_api import jobs_pb2, jobs_pb2_grpc
from host_agent.wire.constants import UDP_PORT
from netsum_common.channel import KEEPALIVE, TlsFiles, connection_fault, open_channel
from netsum_common.closing import Closing
from sim.switch.serve import ServeError, ServeOptions, check
from topologies.announcing import START_TIMEOUT_S, start_announced
from topologies.children import Child, TestbedError, uninterrupted

DEVICE_ID: Final = 1
MAX_FAILURE: Final = 1000  # Characters of a failure to start that the controller accepts.


class AggregatorError(NetsumError):
    """The agent cannot go on; the message says why."""


class Agent(Closing):
    """An agent; a context manager that stops its switch.

    `controller`: "HOST:PORT" or "unix:PATH". `name`, `ip`: the host's name, and the address at which workers reach it.
    `p4runtime`: where its switch takes table entries: "HOST:PORT" or "unix:PATH", which the controller must reach.
    `udp_port`: where its switch takes contributions; 0 lets the system choose. `allow_remote`: whether `p4runtime` may be an
    address that other machines reach.
    """

    def __init__(
        self,
        controller: str,
        name: str,
        ip: str,
        p4runtime: str,
        folder: Path,
        *,
        udp_port: int = UDP_PORT,
        tls: TlsFiles | None = None,
        allow_remote: bool = False,
    ) -> None:
        self._controller = controller
        self._offer = jobs_pb2.Offer(name=name, ip=ip)
        self._p4runtime = p4runtime
        self._folder = folder
        self._udp_port = udp_port
        self._allow_remote = allow_remote
        self._channel: Any = open_channel(controller, tls or TlsFiles(), KEEPALIVE)
        self._outgoing: queue.SimpleQueue[jobs_pb2.FromAggregator | None] = queue.SimpleQueue()
        self._switch: Child | None = None
        self._call: Any = None

    def close(self) -> None:
        """Leave the controller, and stop the switch; `serve`, in another thread, returns."""
        self._outgoing.put(None)
        if self._call is not None:
            self._call.cancel()
        self._channel.close()
        with uninterrupted():
            if self._switch is not None:
                self._switch.stop()
                self._switch = None

    def serve(self, registered: Callable[[], None] = lambda: None) -> None:
        """Serve until the controller ends the stream.

        Raises AggregatorError if the controller does not answer, or refuses; or the switch could not be started here.
        """
        try:
            check(
                ServeOptions(
                    p4runtime=self._p4runtime,
                    allow_remote=self._allow_remote,
                    udp_ports=(self._udp_port,),
                    udp_host=self._offer.ip,
                )
            )
        except ServeError as error:
            raise AggregatorError(f"the switch cannot be started on this host: {error}") from None
        stub = jobs_pb2_grpc.AggregatorsStub(self._channel)  # type: ignore[no-untyped-call]
        self._outgoing.put(jobs_pb2.FromAggregator(offer=self._offer))
        self._call = stub.Register(_sent(self._outgoing))
        try:
            for message in self._call:
                if message.WhichOneof("message") == "start":
                    self._outgoing.put(jobs_pb2.FromAggregator(started=self._started()))
                else:
                    registered()
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.CANCELLED:
                return
            sentence = " ".join(str(error.details()).split())
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN):
                raise AggregatorError(
                    f"no controller answers at {self._controller} ({connection_fault(sentence) or 'it went away'}): "
                    "start one with `netsum controller serve`, and this agent again"
                ) from None
            raise AggregatorError(sentence) from None

    def _started(self) -> jobs_pb2.Started:
        """Start the switch, and say where it listens or why it does not."""

        def start(ready_fd: int) -> Child:
            command = [
                *(sys.executable, "-P", "-m", "sim.switch.serve"),
                *("--p4runtime", self._p4runtime, "--device-id", str(DEVICE_ID)),
                *(
                    "--udp-host",
                    self._offer.ip,
                    "--udp-ports",
                    str(self._udp_port),
                    "--ready-fd",
                    str(ready_fd),
                ),
            ]
            if self._allow_remote:
                command.append("--allow-remote")
            return Child("the embedded switch", command, self._folder / "switch.log", pass_fds=(ready_fd,))

        try:
            self._switch, line = start_announced(start, START_TIMEOUT_S)
        except TestbedError as error:
            return jobs_pb2.Started(failure=" ".join(str(error).split())[:MAX_FAILURE])
        listening = json.loads(line)
        return jobs_pb2.Started(
            p4runtime=listening["p4runtime"], device_id=DEVICE_ID, udp_port=listening["ports"]["0"][1]
        )


def _sent(
    outgoing: queue.SimpleQueue[jobs_pb2.FromAggregator | None],
) -> Iterator[jobs_pb2.FromAggregator]:
    yield from iter(outgoing.get, None)
