"""The agent of an aggregator host: registers with a controller, and runs a switch when the controller requests it.

The switch is the embedded one, or with an `interface` the one in the kernel.

As a process of its own, ``python -m netsum.aggregator``, it is the leaf that ranks of one host start for themselves
(`host_agent.joining.leaf`): its switch runs at once, and it ends with the last rank.
"""

import argparse
import contextlib
import json
import logging
import queue
import selectors
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from host_agent.errors import NetsumError
from host_agent.job_api import jobs_pb2, jobs_pb2_grpc
from host_agent.joining.addresses import interface_addresses
from host_agent.joining.leaf import READY
from host_agent.wire.constants import UDP_PORT
from netsum_common.channel import (
    KEEPALIVE,
    PLAINTEXT,
    TlsFiles,
    connection_fault,
    open_channel,
    split_host_port,
    what_to_do,
)
from netsum_common.closing import Closing
from netsum_common.programs import command_of
from netsum_common.rings import is_trusted
from netsum_common.switch_options import ServeError, ServeOptions
from sim.switch.serve import check
from topologies.announcing import START_TIMEOUT_S, start_announced
from topologies.children import Child, TestbedError, ending_in_order, uninterrupted

log = logging.getLogger(__name__)

DEVICE_ID: Final = 1
HOST_PORT: Final = 0  # The only port of its switch.
MAX_FAILURE: Final = 1000  # Characters of a failure to start that the controller accepts.
RETRY_S: Final = 1.0  # How long after a broken connection the agent registers again.
POLL_S: Final = 0.2  # How often a leaf checks whether its switch still runs.
FIRST_RANK_S: Final = 30.0  # How long a leaf waits for the rank that started it.
LINGER_S: Final = 2.0  # How long a leaf outlives its last rank: the next job may be of the same processes.
_BROKEN: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.ALREADY_EXISTS,  # The controller has not noticed yet that the last stream broke.
)


class AggregatorError(NetsumError):
    """The agent cannot go on; the message says why."""


@dataclass(frozen=True)
class AgentPlan:
    """Description of an agent and its switch."""

    controller: str  # "HOST:PORT" or "unix:PATH".
    # name, ip: the host's name, and the address at which workers reach it.
    name: str
    ip: str
    # Address at which the switch takes table entries, "HOST:PORT" or "unix:PATH"; the controller must reach it.
    p4runtime: str
    folder: Path  # Folder of the switch's log.
    udp_port: int = UDP_PORT  # Port at which the switch takes contributions; 0 lets the system choose.
    tls: TlsFiles = PLAINTEXT
    allow_remote: bool = False  # Whether `p4runtime` may be an address that other machines reach without TLS.
    # Whether it adds below another switch, for workers with addresses in the network `workers`, or if that is empty for the
    # ranks of this host; its switch is started before it registers.
    leaf: bool = False
    workers: str = ""
    # Network interface, which has the address `ip`, at which the switch runs in the kernel; empty: it is the embedded one.
    interface: str = ""


class Agent(Closing):
    """An agent; a context manager that stops its switch."""

    def __init__(self, plan: AgentPlan) -> None:
        self._plan = plan
        self._held: socket.socket | None = None
        self._offer = jobs_pb2.Offer(name=plan.name, ip=plan.ip, leaf=plan.leaf, workers=plan.workers)
        self._switch_tls = PLAINTEXT if plan.p4runtime.startswith("unix:") or not plan.tls.cert else plan.tls
        # A later start of the switch has the addresses of the first.
        self._p4runtime, self._udp_port = plan.p4runtime, plan.udp_port
        self._channel: Any = open_channel(plan.controller, plan.tls, KEEPALIVE)
        self._outgoing: queue.SimpleQueue[jobs_pb2.FromAggregator | None] = queue.SimpleQueue()
        self._switch: Child | None = None
        self._call: Any = None
        self._closing = threading.Event()

    @property
    def switch_ended(self) -> bool:
        """Whether its switch was started and has ended."""
        return self._switch is not None and not self._switch.running

    def close(self) -> None:
        """Leave the controller, and stop the switch; `serve`, in another thread, returns."""
        self._closing.set()
        self._outgoing.put(None)
        if self._call is not None:
            self._call.cancel()
        self._channel.close()
        with uninterrupted():
            if self._switch is not None:
                self._switch.stop()
                self._switch = None
        if self._held is not None:
            self._held.close()

    def serve(self, registered: Callable[[], None] = lambda: None) -> None:
        """Serve until `close`. After a connection that broke, it registers again, with the switch that it runs.

        A switch that ends is started again where it was, unless it is for the ranks of this host; the controller connects to it
        as to any switch that was restarted.

        Raises AggregatorError if the controller does not answer at first, or refuses; or the switch could not be started here.
        """
        try:
            check(
                ServeOptions(
                    p4runtime=self._p4runtime,
                    allow_remote=self._plan.allow_remote,
                    udp_ports=None if self._plan.interface else (self._udp_port,),
                    udp_host=self._plan.ip,
                    tls_ca=self._switch_tls.ca,
                    tls_cert=self._switch_tls.cert,
                    tls_key=self._switch_tls.key,
                    engine="xdp" if self._plan.interface else "embedded",
                    interface=((HOST_PORT, self._plan.interface),) if self._plan.interface else (),
                )
            )
            if self._plan.interface:
                self._hold_port()
        except (ServeError, OSError) as error:
            raise AggregatorError(f"the switch cannot be started on this host: {error}") from None
        if self._plan.leaf:
            self._offer.running.CopyFrom(self._started())
        if self._plan.workers or not self._plan.leaf:
            threading.Thread(target=self._keep_switch, name="netsum-keep-switch", daemon=True).start()
        known = False
        while not self._closing.is_set():
            try:
                for message in self._registered():
                    if message.WhichOneof("message") == "start":
                        started = self._started()
                        if not started.failure:
                            self._offer.running.CopyFrom(started)
                        self._outgoing.put(jobs_pb2.FromAggregator(started=started))
                    else:
                        known = True
                        registered()
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.CANCELLED:
                    return
                if not (known and error.code() in _BROKEN):
                    raise self._refusal(error) from None
            self._closing.wait(RETRY_S)

    def _keep_switch(self) -> None:
        """Start the switch again whenever it has ended."""
        while not self._closing.wait(RETRY_S):
            ended = self._switch
            if ended is not None and not ended.running and not self._closing.is_set():
                log.warning("%s; it is started again", ended.how_it_ended())
                if failure := self._started().failure:
                    log.warning("the switch cannot be started: %s", failure)

    def _hold_port(self) -> None:
        """Keep the UDP port from others, unread: the host's stack answers no packet that the switch leaves to it.

        Raises OSError: the interface does not have the address, or the port is in use.
        """
        if interface_addresses().get(self._plan.interface, ("",))[0] != self._plan.ip:
            raise OSError(f"the interface {self._plan.interface} does not have the address {self._plan.ip}")
        self._held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
        self._held.bind((self._plan.ip, UDP_PORT))

    def _registered(self) -> Any:
        """Register; return the stream of the controller's messages."""
        stub = jobs_pb2_grpc.AggregatorsStub(self._channel)  # type: ignore[no-untyped-call]
        outgoing = self._outgoing = queue.SimpleQueue()
        outgoing.put(jobs_pb2.FromAggregator(offer=self._offer))
        self._call = stub.Register(_sent(outgoing))
        return self._call

    def _refusal(self, error: grpc.RpcError) -> AggregatorError:
        sentence = " ".join(str(error.details()).split())
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN):
            sentence = (
                f"no controller answers at {self._plan.controller} ({connection_fault(sentence) or 'it went away'}): "
                + what_to_do(
                    "start one with `netsum controller serve`, and this agent again", sentence, self._plan.tls
                )
            )
        return AggregatorError(sentence)

    def _started(self) -> jobs_pb2.Started:
        """Start the switch; return where it listens, or why it does not."""

        def start(ready_fd: int) -> Child:
            command = [
                *command_of("switch"),
                *("--p4runtime", self._p4runtime, "--device-id", str(DEVICE_ID), "--ready-fd", str(ready_fd)),
            ]
            if self._plan.interface:
                command += ["--engine", "xdp", "--interface", f"{HOST_PORT}@{self._plan.interface}"]
                command.append("--pass-dropped")
            else:
                command += ["--udp-host", self._plan.ip, "--udp-ports", str(self._udp_port), "--memory"]
            if self._plan.allow_remote:
                command.append("--allow-remote")
            for part in ("ca", "cert", "key"):
                if (path := getattr(self._switch_tls, part)) is not None:
                    command += [f"--tls-{part}", str(path)]
            return Child("the switch", command, self._plan.folder / "switch.log", pass_fds=(ready_fd,))

        try:
            self._switch, line = start_announced(start, START_TIMEOUT_S)
        except TestbedError as error:
            return jobs_pb2.Started(failure=" ".join(str(error).split())[:MAX_FAILURE])
        listening = json.loads(line)
        self._p4runtime = listening["p4runtime"]
        if not self._plan.interface:
            self._udp_port = listening["ports"][str(HOST_PORT)][1]
        return jobs_pb2.Started(
            p4runtime=self._p4runtime,
            device_id=DEVICE_ID,
            udp_port=UDP_PORT if self._plan.interface else self._udp_port,
            tls=bool(self._switch_tls),
            mac=interface_addresses()[self._plan.interface][1] if self._plan.interface else "",
        )


def _sent(
    outgoing: queue.SimpleQueue[jobs_pb2.FromAggregator | None],
) -> Iterator[jobs_pb2.FromAggregator]:
    yield from iter(outgoing.get, None)


def _p4runtime_of_leaf(controller: str, folder: Path) -> str:
    """Return where a leaf's switch takes table entries: where its controller reaches it, which runs wherever it is."""
    if controller.startswith("unix:"):
        return f"unix:{folder}/p4runtime.sock"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
        towards.connect(split_host_port(controller))
        return f"{towards.getsockname()[0]}:0"


def _await_last_rank(listener: socket.socket, ready: threading.Event, goes_on: Callable[[], bool]) -> None:
    """Return when the last rank's connection has ended for some time, or the switch does not go on; say when it is ready."""
    connections: set[socket.socket] = set()
    notified: set[socket.socket] = set()
    give_up_at = time.monotonic() + FIRST_RANK_S
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while goes_on() and (connections or time.monotonic() < give_up_at):
            for connection in connections - notified if ready.is_set() else ():
                notified.add(connection)
                with contextlib.suppress(OSError):  # The end of the connection shows below.
                    connection.send(READY)
            for key, _ in selector.select(POLL_S):
                opened = key.fileobj
                assert isinstance(opened, socket.socket)
                if opened is listener:
                    connection, _ = listener.accept()
                    if not is_trusted(connection):
                        connection.close()
                        continue
                    connections.add(connection)
                    selector.register(connection, selectors.EVENT_READ)
                else:  # Ranks send nothing: the connection has ended.
                    selector.unregister(opened)
                    connections.remove(opened)
                    notified.discard(opened)
                    opened.close()
                    give_up_at = time.monotonic() + LINGER_S
    for connection in connections:
        connection.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a leaf until the last rank that keeps it has ended."""
    parser = argparse.ArgumentParser(
        prog="python -m netsum.aggregator", description="A leaf for ranks of one host."
    )
    parser.add_argument("--controller", required=True, metavar="ADDRESS", help="HOST:PORT or unix:PATH")
    parser.add_argument("--name", required=True, help="as the controller says")
    parser.add_argument("--ip", required=True, help="this host's address on the data network")
    parser.add_argument(
        "--listener", type=int, required=True, help="descriptor of the socket that ranks connect to"
    )
    options = parser.parse_args(arguments)
    faults: list[NetsumError] = []
    with (
        ending_in_order(),
        socket.socket(fileno=options.listener) as listener,
        tempfile.TemporaryDirectory(prefix="netsum-leaf-") as folder,
        Agent(
            AgentPlan(
                controller=options.controller,
                name=options.name,
                ip=options.ip,
                p4runtime=_p4runtime_of_leaf(options.controller, Path(folder)),
                folder=Path(folder),
                udp_port=0,
                tls=TlsFiles.from_environment(),
                allow_remote=True,
                leaf=True,
            )
        ) as agent,
    ):
        registered = threading.Event()

        def serve() -> None:
            try:
                agent.serve(registered.set)
            except NetsumError as fault:
                faults.append(fault)

        serving = threading.Thread(target=serve, name="agent", daemon=True)
        serving.start()
        _await_last_rank(listener, registered, lambda: serving.is_alive() and not agent.switch_ended)
    for fault in faults:
        print(f"netsum.aggregator: {fault}", file=sys.stderr)
    return len(faults)


if __name__ == "__main__":
    sys.exit(main())
