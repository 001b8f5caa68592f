"""A network: hosts, switches and the links between them, checked to fit together.

Nothing here brings anything up. `topologies.topology_file` reads these from JSON; every testbed takes them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Interface

from netsum_common.names import check_name
from topologies.children import TestbedError
from topologies.json_fields import FieldError
from topologies.spanning_tree import spanning_tree

MAX_PORT = 509
"""510 is the controller's port on every switch unless its topology says otherwise, 511 the one for dropped packets."""

CPU_PORT = 510
DROP_PORT = 511

DEFAULT_MTU = 1500
NODE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,7}")
"""Names of hosts and switches: eight characters, so that `NAME-eth509` fits the 15 of an interface."""


class TopologyError(TestbedError):
    """A topology is wrong; the message names the place and the expected value."""


@dataclass(frozen=True)
class HostSpec:
    """A host."""

    name: str  # At most eight letters and digits.
    address: IPv4Interface  # IPv4 address and the length of its subnet's prefix.
    mac: str  # Ethernet address, ``02:00:0a:00:00:01``.
    commands: tuple[str, ...] = ()  # Shell commands that it runs when it comes up, such as routes.


@dataclass(frozen=True)
class SwitchSpec:
    """A switch."""

    name: str  # At most eight letters and digits.
    # ip, mac: the address at which workers reach it, if it runs netsum's program.
    ip: IPv4Address
    mac: str
    device_id: int  # Device id of P4Runtime.
    cpu_port: int = CPU_PORT  # The port by which its program reaches the controller.
    # program, p4info, runtime_json: files of a P4 program of the user's own, as the topology's file writes them: compiled
    # for BMv2, its P4Info, its table entries. Empty: none.
    program: str = ""
    p4info: str = ""
    runtime_json: str = ""


@dataclass(frozen=True)
class LinkEnd:
    """An end of a link: a switch's port, or a host (whose port is None)."""

    node: str
    port: int | None = None

    def __str__(self) -> str:
        return self.node if self.port is None else f"{self.node}-p{self.port}"


@dataclass(frozen=True)
class LinkSpec:
    """A link; its values hold for each direction by itself."""

    ends: tuple[LinkEnd, LinkEnd]  # A host's end comes first.
    latency_ns: int = 0  # One-way delay of a bit.
    # Bits per second, counting frames from the destination address to the end of the payload; None: as fast as the machine.
    rate_bps: int | None = None
    loss_ppm: int = 0  # How many of a million packets are lost at random.
    # Length of the queue, in packets, before a link with a rate; None: `DEFAULT_QUEUE_PKTS`.
    queue_pkts: int | None = None

    def __str__(self) -> str:
        return f"{self.ends[0]} to {self.ends[1]}"


@dataclass(frozen=True)
class JobSpec:
    """The hosts that are meant to form a job, in the order of their ranks, and the switch that adds for them.

    An empty `switch`: each switch adds for those below it, in a tree.
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

    def place(self, host: str) -> tuple[str, int]:
        """Return the switch that a host is on, and its port there; `KeyError` if there is no such host."""
        for link in self.links:
            if link.ends[0].node == host and link.ends[1].port is not None:
                return link.ends[1].node, link.ends[1].port
        raise KeyError(host)

    def ports(self, switch: str) -> dict[int, LinkEnd]:
        """Return the far end of each port of a switch."""
        return dict(sorted(self._ports(switch, self.links)))

    def forwarding(self, switch: str) -> dict[str, int]:
        """Return the port by which a switch reaches every host and every other switch, by Ethernet address.

        The ways are those of the spanning tree, as on an Ethernet with bridges: one from each node to each other.
        """
        macs = {name: host.mac for name, host in self.hosts.items()}
        macs |= {name: other.mac for name, other in self.switches.items()}
        tree = self._tree()
        return {
            macs[node]: port
            for port, end in self._ports(switch, tree)
            for node in self._beyond(end.node, switch, tree)
        }

    def spare_ports(self, switch: str) -> list[int]:
        """Return the ports of a switch whose links are not in the spanning tree: flooded packets must not leave there."""
        in_tree = {port for port, _ in self._ports(switch, self._tree())}
        return [port for port in self.ports(switch) if port not in in_tree]

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

    def _tree(self) -> tuple[LinkSpec, ...]:
        """Return the links of a spanning tree from the first switch."""
        ends = [(link.ends[0].node, link.ends[1].node) for link in self.links]
        chosen = spanning_tree([*self.switches, *self.hosts], ends)
        return tuple(link for number, link in enumerate(self.links) if number in chosen)

    @staticmethod
    def _ports(switch: str, links: Iterable[LinkSpec]) -> Iterator[tuple[int, LinkEnd]]:
        for link in links:
            for near, far in (link.ends, link.ends[::-1]):
                if near.node == switch and near.port is not None:
                    yield near.port, far

    def _beyond(self, node: str, before: str, tree: tuple[LinkSpec, ...]) -> Iterator[str]:
        yield node
        if node in self.switches:
            for _, end in self._ports(node, tree):
                if end.node != before:
                    yield from self._beyond(end.node, node, tree)


def star(hosts: int) -> Topology:
    """Return one switch with hosts ``h1`` … on its ports 1 …, with nothing limiting the links.

    Raises ValueError if there are fewer than 1 or more than 250 hosts.
    """
    if not 1 <= hosts <= 250:
        raise ValueError(f"expected 1 to 250 hosts, not {hosts}")
    names = [f"h{number}" for number in range(1, hosts + 1)]
    return check(
        Topology(
            name=f"star-{hosts}",
            hosts={
                name: HostSpec(name, IPv4Interface(f"10.0.0.{number}/24"), f"02:00:0a:00:00:{number:02x}")
                for number, name in enumerate(names, start=1)
            },
            switches={"s1": SwitchSpec("s1", IPv4Address("10.0.0.254"), "02:00:0a:00:00:fe", 1)},
            links=tuple(
                LinkSpec((LinkEnd(name), LinkEnd("s1", port))) for port, name in enumerate(names, start=1)
            ),
            jobs={"all": JobSpec("all", tuple(names), "s1")},
        )
    )


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
        *((f"hosts.{host.name}", host.name, host.address.ip, host.mac) for host in topology.hosts.values()),
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
                raise FieldError(f"{place}.{key}", f"{value} is that of {seen[value]} already")
            seen[value] = place
    ids: dict[int, str] = {}
    for switch in topology.switches.values():
        if switch.device_id in ids:
            raise FieldError(
                f"switches.{switch.name}.device_id",
                f"{switch.device_id} is that of switches.{ids[switch.device_id]} already",
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
                "links", f"expected a way from every switch to every other, found none to {switch.name}"
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
