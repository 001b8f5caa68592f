"""Aggregators on hosts: embedded switches that add for jobs without a switch, or as leaves below another switch.

An agent on the host registers with the controller and keeps a stream to it. When the first job needs an aggregator, the
controller has an agent start the embedded switch, and then treats it as a switch with one port, to which all workers send over
their network. A leaf's switch already runs when its agent registers. A leaf adds below another switch, for the workers of a
network that the agent names, or for the ranks on its own host, which have started it (`leaves`).
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from controller.service.jobs import Kind, RefusalError
from controller.service.network import ControlledNetwork, SwitchSite
from controller.service.requests import check_new_name, check_udp_port
from controller.service.timer import Timer
from host_agent.job_api import jobs_pb2
from host_agent.job_api.jobs_pb2 import ToAggregator
from netsum_common.channel import PLAINTEXT, ChannelError, TlsFiles, check_target
from topologies.addresses import ipv4_int, ipv4_prefix, mac_int, mac_of

log = logging.getLogger(__name__)

START_S = 120.0  # Time limit for an agent to start its switch, in seconds; a first start compiles.


class HostState(Enum):
    """Lifecycle state of an aggregator host."""

    REGISTERED = "registered"
    STARTING = "starting"
    RUNNING = "running"


@dataclass(eq=False)
class AggregatorHost:
    """A host whose agent has registered."""

    # name, ip: the host's name in messages; the address to which workers send.
    name: str
    ip: str
    # The messages to the host's agent; None or a refusal ends the stream.
    outbox: asyncio.Queue[ToAggregator | RefusalError | None] = field(default_factory=asyncio.Queue)
    state: HostState = HostState.REGISTERED
    udp_port: int = 0  # The UDP port at which the switch takes contributions; 0 until the switch runs.
    leaf: bool = False  # Whether the host adds below a switch or another host.
    # With `leaf`, the network of the workers that the host adds for; empty: the ranks of jobs on the host itself.
    workers: str = ""
    p4runtime: str = ""  # gRPC address of the switch's P4Runtime server; empty until the switch runs.
    device_id: int = 0
    tls: bool = False  # Whether the P4Runtime server speaks TLS.
    # MAC address of the interface at which the switch runs in the kernel; empty: the switch is a process.
    mac: str = ""
    failure: str = ""  # Why the last start failed; empty if it did not, or there was none.
    # Whether the agent has a stream; after a restart of the controller, the agent may come back.
    attached: bool = True
    timer: Timer = field(default_factory=Timer)


class Aggregators:
    """The aggregator hosts of a controller.

    `start_s`: how long an agent may take to start its switch, in seconds. `tls`: certificates for the hosts' P4Runtime
    servers that speak TLS.
    """

    def __init__(
        self, network: ControlledNetwork, start_s: float = START_S, tls: TlsFiles = PLAINTEXT
    ) -> None:
        self._tls = tls
        self.hosts: dict[str, AggregatorHost] = {}  # The hosts, by name.
        # Called when a job that waits for a host may proceed.
        self.on_changed: Callable[[], None] = lambda: None
        self._network = network
        self._start_s = start_s

    def register(self, offer: jobs_pb2.Offer) -> AggregatorHost:
        """Register a host; `RefusalError` if its name or address cannot be used."""
        held = self.hosts.get(offer.name)
        if held is not None and not held.attached and held.p4runtime == offer.running.p4runtime:
            held.timer.stop()
            held.attached = True
            return held
        check_new_name(offer.name, "aggregator")
        if offer.name in self.hosts.keys() | self._network.switches.keys() | self._network.hosts.keys():
            raise RefusalError(
                Kind.TAKEN, f"there is a switch or aggregator named {offer.name} already: choose another name"
            )
        try:
            ipv4_int(offer.ip)
            if offer.workers:
                ipv4_prefix(offer.workers)
        except ValueError as error:
            raise RefusalError(Kind.WRONG, f"aggregator {offer.name}: {error}") from None
        host = self.hosts[offer.name] = AggregatorHost(
            offer.name, offer.ip, leaf=offer.leaf, workers=offer.workers
        )
        log.info("aggregator registered: workers reach it at %s", host.ip, extra={"host": host.name})
        self.on_changed()
        return host

    def start_one(self) -> str:
        """Have a host start its switch, unless one is starting; return a sentence on the start, empty if no host can start."""
        starting = [host for host in self.hosts.values() if host.state is HostState.STARTING]
        if not starting:
            idle = [
                host
                for host in self.hosts.values()
                if host.state is HostState.REGISTERED and not host.failure and not host.leaf
            ]
            if not idle:
                return ""
            starting = [idle[0]]
            idle[0].state = HostState.STARTING
            idle[0].outbox.put_nowait(ToAggregator(start=jobs_pb2.Start()))
            idle[0].timer.start(self._start_s, self._too_late, idle[0])
        return f"the aggregator on host {starting[0].name} starts"

    @property
    def failures(self) -> str:
        """The reasons why hosts do not run their switch, as clauses; empty if no start has failed."""
        return "; ".join(host.failure for host in self.hosts.values() if host.failure)

    def started(self, host: AggregatorHost, message: jobs_pb2.Started) -> SwitchSite | None:
        """Process an agent's answer to a start; return the switch that runs, None if the start failed.

        Raises RefusalError if the controller did not ask for a start, or an address is invalid.
        """
        if host.state is not HostState.STARTING:
            raise RefusalError(Kind.WRONG, f"aggregator {host.name} was not asked to start")
        return self.runs(host, message)

    def runs(self, host: AggregatorHost, message: jobs_pb2.Started) -> SwitchSite | None:
        """Process a switch that may already have run when its agent registered, as `started` does."""
        host.timer.stop()
        if message.failure:
            self._fail(host, f"aggregator {host.name} cannot start: {message.failure}")
            return None
        try:
            check_target(message.p4runtime)
            if message.mac:
                mac_int(message.mac)
        except (ChannelError, ValueError) as error:
            raise RefusalError(Kind.WRONG, f"aggregator {host.name}: {error}") from None
        check_udp_port(message.udp_port)
        if message.device_id >= 1 << 63:  # SQLite's integers are signed.
            raise RefusalError(Kind.WRONG, f"aggregator {host.name}: a device id is below 2**63")
        host.state, host.udp_port = HostState.RUNNING, message.udp_port
        host.p4runtime, host.device_id, host.tls = message.p4runtime, message.device_id, message.tls
        host.mac = message.mac
        return self.site(host)

    def site(self, host: AggregatorHost) -> SwitchSite:
        """Return the site of a switch that runs on a host."""
        mac = host.mac or mac_of(host.ip)
        tls = self._tls if host.tls else PLAINTEXT
        return SwitchSite(host.name, host.p4runtime, host.device_id, host.ip, mac, {}, tls=tls)

    def lost(self, host: AggregatorHost) -> None:
        """Remove a host whose agent is gone."""
        host.timer.stop()
        self.hosts.pop(host.name, None)
        log.warning("aggregator is gone", extra={"host": host.name})

    def close(self) -> None:
        """End the streams."""
        for host in self.hosts.values():
            host.timer.stop()
            host.outbox.put_nowait(None)

    def _too_late(self, host: AggregatorHost) -> None:
        self._fail(host, f"aggregator {host.name} at {host.ip} did not start within {self._start_s:g} s")

    def _fail(self, host: AggregatorHost, failure: str) -> None:
        log.warning("%s", failure, extra={"host": host.name})
        host.state, host.failure = HostState.REGISTERED, failure
        self.on_changed()
