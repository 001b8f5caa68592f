"""The description of a network: hosts, switches and the links between them.

Testbeds, the controller, the simulator and the explorer use it. `topologies.topology_file` reads a topology from JSON,
`topologies.generated` makes one from a few numbers, and the controller reads one from its network file.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from netsum_common.names import check_name
from topologies.children import TestbedError
from topologies.fields import FieldError
from topologies.paths import shortest_paths

MAX_PORT = 509
"""Highest port of a link; 510 is the controller's port unless the topology says otherwise, 511 the drop port."""

CPU_PORT = 510

DEFAULT_MTU = 1500
NODE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,7}")
"""Names of hosts and switches: at most eight characters, so that `NAME-eth509` fits the 15 of an interface's name."""


class TopologyError(TestbedError):
    """A topology is wrong; the message names the place and the expected value."""


@dataclass(frozen=True, slots=True)
class HostSpec:
    """A host."""

    name: str
    ip: str  # IPv4 address, ``10.0.0.1``.
    mac: str  # Ethernet address, ``02:00:0a:00:00:01``.
    prefix_length: int = 24  # Bits of the address that its subnet has in common.
    commands: tuple[str, ...] = ()  # Shell commands that it runs when it comes up, such as routes.


@dataclass(frozen=True)
class SwitchSpec:
    """A switch."""

    name: str
    # ip, mac: the address at which workers reach it, if it runs netsum's program.
    ip: str
    mac: str
    device_id: int  # Device id of P4Runtime.
    cpu_port: int = CPU_PORT  # The port by which its program reaches the controller.
    # program, p4info, runtime_json: files of a P4 program of the user's own, as the topology's file writes them: compiled
    # for BMv2, its P4Info, its table entries. Empty: none.
    program: str = ""
    p4info: str = ""
    runtime_json: str = ""


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """An end of a link: a switch's port, or a host (whose port is None)."""

    node: str
    port: int | None = None

    def __str__(self) -> str:
        return self.node if self.port is None else f"{self.node}-p{self.port}"

    @classmethod
    def of(cls, text: str) -> "LinkEnd":
        """Read the text that `str` writes."""
        node, _, port = text.partition("-p")
        return cls(node, int(port) if port else None)


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """A link; its properties apply to each direction separately."""

    ends: tuple[LinkEnd, LinkEnd]  # A host's end comes first.
    latency_ns: int = 0  # One-way delay of a bit.
    # Bits per second, counting frames from the destination address to the end of the payload; None: as fast as the machine.
    rate_bps: int | None = None
    loss_ppm: int = 0  # Packets per million that are lost at random.
    # Length of the queue, in packets, before a link with a rate; None: `DEFAULT_QUEUE_PKTS`.
    queue_pkts: int | None = None

    def __str__(self) -> str:
        return f"{self.ends[0]} to {self.ends[1]}"

    @classmethod
    def between(cls, one: str, other: str) -> "LinkSpec":
        """Return a link between ends as `LinkEnd` writes them."""
        return cls((LinkEnd.of(one), LinkEnd.of(other)))

    @property
    def names(self) -> tuple[str, str]:
        """The names of both directions: ``h1>s1`` and ``s1>h1``."""
        one, other = self.ends
        return f"{one.node}>{other.node}", f"{other.node}>{one.node}"

    @property
    def between_switches(self) -> bool:
        """Whether no end is a host."""
        return self.ends[0].port is not None


@dataclass(frozen=True)
class JobSpec:
    """The hosts of a job, in the order of their ranks, and the switch that adds for them.

    If `switch` is empty, a tree of switches adds, each for the hosts and switches below it.
    """

    name: str
    hosts: tuple[str, ...]
    switch: str


@dataclass(frozen=True)
class FlowSpec:
    """Cross traffic: UDP from a host to another at a rate."""

    source: str
    target: str
    rate_bps: int


@dataclass(frozen=True)
class Topology:
    """A network of hosts on switches."""

    name: str  # The name for people: the file's name without its suffix.
    # hosts, switches: by name, in the order of the file.
    hosts: Mapping[str, HostSpec]
    switches: Mapping[str, SwitchSpec]
    links: tuple[LinkSpec, ...]  # In the order of the file.
    # Jobs by name; if the file names none, one job of all hosts that send no cross traffic.
    jobs: Mapping[str, JobSpec] = field(default_factory=dict)
    traffic: tuple[FlowSpec, ...] = ()  # Cross traffic that runs as long as the testbed is up.
    mtu: int = DEFAULT_MTU  # MTU of all interfaces, bytes of an IP packet.
    description: str = ""

    @property
    def aggregator(self) -> str:
        """The switch that adds for jobs without one: the first job's switch or, if that is empty, the first switch."""
        return next((job.switch for job in self.jobs.values()), "") or next(iter(self.switches))

    def place(self, host: str) -> tuple[str, int]:
        """Return a host's switch and the port of that switch; raise `KeyError` if there is no such host."""
        return self._places[host]

    def ports(self, switch: str) -> dict[int, LinkEnd]:
        """Return the far end of each port of a switch."""
        return {port: far for port, far, _ in sorted(self._ends[switch], key=lambda end: end[0])}

    def neighbours(self, switch: str) -> dict[str, int]:
        """Return the port that leads to each neighbouring switch; of parallel links, both ends use the first in `links`."""
        first: dict[str, int] = {}
        for port, far, _ in self._ends[switch]:
            if far.port is not None:
                first.setdefault(far.node, port)
        return first

    def forwarding(self, switch: str) -> dict[str, int]:
        """Return the port by which a switch reaches every host and every other switch, by Ethernet address.

        Paths follow the spanning tree, as on bridged Ethernet, so there is one path between any two nodes.
        """
        ports = self._ports_towards(switch, self._tree)
        return {self.switches[name].mac: port for name, port in ports.items()} | self._to_hosts(switch, ports)

    def shortest(self, switch: str) -> dict[str, int]:
        """Return the port by which a switch reaches each host over the fewest links, by the host's Ethernet address."""
        return self._to_hosts(switch, self._ports_towards(switch, frozenset(range(len(self.links)))))

    def spare_ports(self, switch: str) -> list[int]:
        """Return the ports of a switch whose links are not in the spanning tree: flooded packets must not leave there."""
        return sorted(
            port
            for port, far, number in self._ends[switch]
            if far.port is not None and number not in self._tree
        )

    def with_links(
        self, *, rate_bps: int | None = None, loss_ppm: int | None = None, queue_pkts: int | None = None
    ) -> "Topology":
        """Return the same network with all links changed; None keeps each link's value."""
        changes = {
            name: value
            for name, value in (("rate_bps", rate_bps), ("loss_ppm", loss_ppm), ("queue_pkts", queue_pkts))
            if value is not None
        }
        return replace(self, links=tuple(replace(link, **changes) for link in self.links))  # type: ignore[arg-type]  # each of its field's type

    @cached_property
    def _ends(self) -> dict[str, list[tuple[int, LinkEnd, int]]]:
        """The links of each switch, in their order: its port, the far end, the number of the link."""
        found: dict[str, list[tuple[int, LinkEnd, int]]] = {switch: [] for switch in self.switches}
        for number, link in enumerate(self.links):
            for near, far in (link.ends, link.ends[::-1]):
                if near.port is not None:
                    found[near.node].append((near.port, far, number))
        return found

    @cached_property
    def _places(self) -> dict[str, tuple[str, int]]:
        found: dict[str, tuple[str, int]] = {}
        for link in self.links:
            host, end = link.ends
            if host.port is None and end.port is not None:
                found.setdefault(host.node, (end.node, end.port))
        return found

    @cached_property
    def _tree(self) -> frozenset[int]:
        """The links of spanning trees: one from the first switch and, while switches are left, from the first of those."""
        chosen: dict[str, tuple[str, int] | None] = {}
        for switch in self.switches:
            if switch not in chosen:
                chosen |= shortest_paths([switch], lambda here: self._beside(here, self._ends[here]))
        return frozenset(before[1] for before in chosen.values() if before is not None)

    def _ports_towards(self, switch: str, links: frozenset[int]) -> dict[str, int]:
        """Return the port of a switch by which the shortest path over some links leaves to each other switch."""

        def beside(here: str) -> Iterable[tuple[str, int]]:
            ends = (end for end in self._ends[here] if end[2] in links)
            return self._beside(here, sorted(ends, key=lambda end: end[0]))

        found: dict[str, int] = {}
        for name, before in shortest_paths([switch], beside).items():
            if before is not None:
                found[name] = found[before[0]] if before[0] != switch else self._port_at(switch, before[1])
        return found

    def _port_at(self, switch: str, number: int) -> int:
        return next(port for port, _, each in self._ends[switch] if each == number)

    @staticmethod
    def _beside(here: str, ends: Iterable[tuple[int, LinkEnd, int]]) -> Iterable[tuple[str, int]]:
        return ((far.node, number) for _, far, number in ends if far.port is not None and far.node != here)

    def _to_hosts(self, switch: str, ports: Mapping[str, int]) -> dict[str, int]:
        """Return the port towards each host, by its Ethernet address, given those towards the other switches."""
        found = {}
        for name, (at, port) in self._places.items():
            if at == switch or at in ports:
                found[self.hosts[name].mac] = port if at == switch else ports[at]
        return found


def check(topology: Topology) -> Topology:
    """Return a topology whose parts fit together; `FieldError` if they do not."""
    if not topology.switches:
        raise FieldError("switches", "expected at least one switch")
    _check_unique(topology)
    _check_links(topology)
    _check_connected(topology)
    _check_jobs(topology)
    for at, flow in enumerate(topology.traffic):
        for key, host in (("from", flow.source), ("to", flow.target)):
            if host not in topology.hosts:
                raise FieldError(f"traffic[{at}].{key}", f"expected the name of a host, found {host!r}")
        if flow.source == flow.target:
            raise FieldError(f"traffic[{at}].to", f"expected another host than {flow.source}, which sends")
    return topology


def _check_unique(topology: Topology) -> None:
    seen: dict[object, str] = {}
    nodes = [
        *((f"hosts.{host.name}", host.name, host.ip, host.mac) for host in topology.hosts.values()),
        *(
            (f"switches.{switch.name}", switch.name, switch.ip, switch.mac)
            for switch in topology.switches.values()
        ),
    ]
    for place, name, ip, mac in nodes:
        if not NODE_NAME.fullmatch(name):
            raise FieldError(place, "expected a name of at most eight letters and digits, a letter first")
        for key, value in (("name", name), ("ip", ip), ("mac", mac)):
            if value in seen:
                raise FieldError(f"{place}.{key}", f"{value} is used by {seen[value]} already")
            seen[value] = place
    ids: dict[int, str] = {}
    for switch in topology.switches.values():
        if switch.device_id in ids:
            raise FieldError(
                f"switches.{switch.name}.device_id",
                f"{switch.device_id} is used by switches.{ids[switch.device_id]} already",
            )
        ids[switch.device_id] = switch.name


def _check_links(topology: Topology) -> None:
    taken: dict[LinkEnd, int] = {}
    for at, link in enumerate(topology.links):
        for end in link.ends:
            if end in taken:
                what = f"host {end.node}" if end.port is None else f"port {end.port} of switch {end.node}"
                raise FieldError(f"links[{at}]", f"{what} is on links[{taken[end]}] already")
            taken[end] = at
    for switch in topology.switches.values():
        if LinkEnd(switch.name, switch.cpu_port) in taken:
            at = taken[LinkEnd(switch.name, switch.cpu_port)]
            raise FieldError(
                f"switches.{switch.name}.cpu_port", f"port {switch.cpu_port} is on links[{at}] already"
            )
    for host in topology.hosts:
        if LinkEnd(host) not in taken:
            raise FieldError("links", f"expected a link from host {host} to a switch, found none")


def _check_connected(topology: Topology) -> None:
    first = next(iter(topology.switches.values()))
    reached = topology.forwarding(first.name)
    for switch in topology.switches.values():
        if switch is not first and switch.mac not in reached:
            raise FieldError(
                "links", f"expected a path from every switch to every other, found none to {switch.name}"
            )


def _check_jobs(topology: Topology) -> None:
    for name, job in topology.jobs.items():
        try:
            check_name(name)
        except ValueError as expected:
            raise FieldError(f"jobs.{name}", str(expected)) from None
        for rank, host in enumerate(job.hosts):
            if host not in topology.hosts:
                raise FieldError(f"jobs.{name}.hosts[{rank}]", f"expected the name of a host, found {host!r}")
        if len(set(job.hosts)) != len(job.hosts):
            raise FieldError(f"jobs.{name}.hosts", "expected each host once")
        if job.switch and job.switch not in topology.switches:
            raise FieldError(f"jobs.{name}.switch", f"expected the name of a switch, found {job.switch!r}")
