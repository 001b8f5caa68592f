"""Graphs of hosts and switches: generated, or read from a testbed's topology."""

import itertools
from dataclasses import dataclass, replace
from typing import Final

from sim.errors import SimulationError
from sim.network.parameters import LinkParameters
from topologies.topology import Topology

MAX_HOSTS: Final = 1 << 17
MAX_SWITCHES: Final = (1 << 16) - 1
MAX_SWITCH_PORTS: Final = 509
MAX_FAT_TREE_PORTS: Final = 80  # More hosts than MAX_HOSTS beyond.
HOST_LINK, CORE_LINK = "host", "core"


class ShapeError(SimulationError, ValueError):
    """No graph has this number of hosts, switches or links; the message names the possible numbers."""


@dataclass(frozen=True)
class Place:
    """A host or switch and its addresses."""

    name: str
    ip: str
    mac: str


@dataclass(frozen=True)
class Edge:
    """A link; `kind` is "host" or "core" (between switches).

    `own` holds the parameters that a topology file gives; None: those of the experiment.
    """

    one: str
    other: str
    kind: str
    one_port: int | None = None
    other_port: int | None = None
    own: LinkParameters | None = None


@dataclass(frozen=True)
class Shape:
    """A graph of hosts and switches."""

    name: str
    hosts: tuple[Place, ...]
    switches: tuple[Place, ...]
    edges: tuple[Edge, ...]
    aggregator: str  # The switch that adds, unless a job says otherwise.


def _hosts(count: int) -> tuple[Place, ...]:
    if not 1 <= count <= MAX_HOSTS:
        raise ShapeError(f"hosts: expected 1 to {MAX_HOSTS}, found {count}")
    return tuple(_place(f"h{number}", 0x0A000000 + number) for number in range(1, count + 1))


def _switch(name: str, number: int) -> Place:
    return _place(name, 0x0AFF0000 + number)


def _place(name: str, address: int) -> Place:
    parts = address.to_bytes(4, "big")
    return Place(name, ".".join(map(str, parts)), "02:00:" + parts.hex(":"))


def _check_ports(name: str, ports: int) -> None:
    if ports > MAX_SWITCH_PORTS:
        raise ShapeError(f"{name}: expected at most {MAX_SWITCH_PORTS} links at a switch, found {ports}")


def star(hosts: int) -> Shape:
    """Return hosts ``h1`` … on ports 1 … of one switch ``s1``."""
    _check_ports("hosts", hosts)
    places = _hosts(hosts)
    edges = tuple(
        Edge(host.name, "s1", HOST_LINK, other_port=port) for port, host in enumerate(places, start=1)
    )
    return Shape(f"star-{hosts}", places, (_switch("s1", 1),), edges, "s1")


def dumbbell(hosts: int) -> Shape:
    """Return two switches with a link between them; odd hosts are on the left one, ``s1``, even ones on ``s2``."""
    _check_ports("hosts", hosts)
    places = _hosts(hosts)
    edges = [Edge("s1", "s2", CORE_LINK)]
    edges += [Edge(host.name, "s2" if number % 2 else "s1", HOST_LINK) for number, host in enumerate(places)]
    return Shape(f"dumbbell-{hosts}", places, (_switch("s1", 1), _switch("s2", 2)), tuple(edges), "s1")


def leaf_spine(hosts: int, leaves: int, spines: int) -> Shape:
    """Return leaves with an equal number of hosts, each with a link to each spine; ``spine1`` adds."""
    if leaves < 1 or spines < 1 or hosts % leaves:
        raise ShapeError(
            f"hosts: expected a multiple of the {leaves} leaves, and leaves and spines of 1 or more, found {hosts}"
        )
    _check_ports("hosts", hosts // leaves + spines)
    places = _hosts(hosts)
    leaf = [_switch(f"leaf{number}", number) for number in range(1, leaves + 1)]
    spine = [_switch(f"spine{number}", leaves + number) for number in range(1, spines + 1)]
    per_leaf = hosts // leaves
    edges = [Edge(host.name, leaf[number // per_leaf].name, HOST_LINK) for number, host in enumerate(places)]
    edges += [Edge(low.name, high.name, CORE_LINK) for low in leaf for high in spine]
    return Shape(f"leaf-spine-{hosts}", places, (*leaf, *spine), tuple(edges), "spine1")


def fat_tree(ports: int) -> Shape:
    """Return the fat tree of switches with this many ports, an even number: ports³ / 4 hosts; ``core1`` adds.

    Al-Fares, Loukissas, Vahdat: "A scalable, commodity data center network architecture", SIGCOMM 2008.
    """
    if ports < 2 or ports % 2 or ports > MAX_FAT_TREE_PORTS:
        raise ShapeError(f"ports: expected an even number from 2 to {MAX_FAT_TREE_PORTS}, found {ports}")
    half = ports // 2
    return replace(pods(ports, half, half, half, half), name=f"fat-tree-{ports}")


def pods(count: int, leaves: int, spines: int, rack: int, cores: int) -> Shape:
    """Return three levels of switches; ``core1`` adds.

    `count`: pods of `leaves` leaves with `rack` hosts each, and of `spines` spines that each have a link to each leaf. `cores`:
    links of a spine upwards. Core switches are in as many groups as a pod has spines; spine k has a link to each of group k.
    """
    _check_ports("rack", rack + spines)
    _check_ports("leaves", leaves + cores)
    _check_ports("pods", count)
    if spines * cores + count * (leaves + spines) > MAX_SWITCHES:
        raise ShapeError(f"pods: expected at most {MAX_SWITCHES:,} switches in all of them")
    places = _hosts(count * leaves * rack)
    numbers = itertools.count(1)
    core = [_switch(f"core{number + 1}", next(numbers)) for number in range(spines * cores)]
    switches, edges = list(core), []
    for pod in range(count):
        upper = [_switch(f"agg{pod}x{at}", next(numbers)) for at in range(spines)]
        lower = [_switch(f"edge{pod}x{at}", next(numbers)) for at in range(leaves)]
        switches += upper + lower
        edges += [Edge(low.name, high.name, CORE_LINK) for low in lower for high in upper]
        for at, high in enumerate(upper):
            edges += [Edge(high.name, core[at * cores + each].name, CORE_LINK) for each in range(cores)]
        for at, low in enumerate(lower):
            first = (pod * leaves + at) * rack
            edges += [Edge(host.name, low.name, HOST_LINK) for host in places[first : first + rack]]
    return Shape(f"pods-{len(places)}", places, tuple(switches), tuple(edges), "core1")


def of_topology(topology: Topology, base: LinkParameters) -> Shape:
    """Return the graph of a testbed's topology, with its links' rates, latencies, losses and queues.

    `topology`: as the testbeds bring it up. `base`: parameters of links that the file does not give, such as framing.
    """
    edges = []
    for link in topology.links:
        one, other = link.ends
        own = replace(
            base,
            rate_bps=link.rate_bps if link.rate_bps is not None else base.rate_bps,
            latency_ns=link.latency_ns or base.latency_ns,
            mtu=topology.mtu,
            queue_bytes=base.queue_bytes
            if link.queue_pkts is None
            else link.queue_pkts * (topology.mtu + 14),
        )
        if link.loss_ppm:
            own = own.with_faults(loss=link.loss_ppm / 1e6)
        kind = HOST_LINK if one.node in topology.hosts else CORE_LINK
        edges.append(Edge(one.node, other.node, kind, one.port, other.port, own))
    job = next(iter(topology.jobs.values()), None)
    return Shape(
        topology.name,
        tuple(Place(host.name, str(host.address.ip), host.mac) for host in topology.hosts.values()),
        tuple(Place(switch.name, str(switch.ip), switch.mac) for switch in topology.switches.values()),
        tuple(edges),
        job.switch if job is not None and job.switch else next(iter(topology.switches)),
    )
