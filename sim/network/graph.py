"""The graph of a network: its hosts, switches and links, and where packets go in it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from controller.jobs import WorkerEndpoint
from host_agent.words import plural
from sim.errors import SimulationError
from sim.network.engine.dice import chance_of
from sim.network.engine.packets import HEADERS_BYTES
from sim.network.engine.records import LINK, NEVER, NODE, PS_PER_NS, PS_PER_S, SWITCH
from sim.network.engine.switches import HOST_NODE, SWITCH_NODE
from sim.network.engine.ways import link_towards
from sim.network.frames import FIRST_UDP_PORT
from sim.network.memory import Memory, Rows
from sim.network.parameters import HostCost, LinkParameters, SwitchCost
from sim.network.programming import ProgrammedSwitch
from sim.network.routes import find_routes
from topologies.addresses import ipv4_int

ENDPOINTS_PER_NODE: Final = 16  # Workers of a host at a time.
NAMED_WORKERS: Final = 4  # How many workers an error names.
_HEADER_ONLY_BYTES: Final = HEADERS_BYTES + 28
"""No frame without lanes is longer: headers, the protocol's header, a STATUS."""


class NetworkError(SimulationError):
    """A network cannot be built or run as asked; the message says why."""


class UnfinishedError(NetworkError):
    """A run was over, and not all was done.

    `workers`: the job's name and the rank of each that was waited for. `messages`: how many were not delivered. `limit_ns`: the
    virtual time at which the run was over; None: nothing was left to happen.
    """

    def __init__(self, workers: Iterable[tuple[str, int]], messages: int, limit_ns: int | None) -> None:
        self.workers, self.messages, self.limit_ns = sorted(workers), messages, limit_ns
        names = [f"worker {rank} of job {job}" for job, rank in self.workers[:NAMED_WORKERS]]
        if (rest := len(self.workers) - NAMED_WORKERS) > 0:
            names.append(plural(rest, "other worker"))
        if messages:
            names.append(plural(messages, "message"))
        when = (
            "nothing is left to happen" if limit_ns is None else f"{limit_ns:,} ns of virtual time are over"
        )
        super().__init__(f"{when}, and the run waits for {', '.join(names)}")


@dataclass(frozen=True)
class Node:
    """A host or switch of a network."""

    name: str
    number: int
    ip: str
    mac: str
    is_switch: bool


class Graph:
    """Hosts, switches and the links between them."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.nodes: list[Node] = []  # All of them, by number.
        # The program of each switch, in the order of `switch_records`; None: it only forwards.
        self.programmed: list[ProgrammedSwitch | None] = []
        self._links = Rows(memory.world, "links", LINK)
        self._node_rows = Rows(memory.world, "nodes", NODE)
        self._switch_rows = Rows(memory.world, "switches", SWITCH)
        self._ports: list[dict[int, int]] = []
        self._by_name: dict[str, Node] = {}
        self._first_switches: dict[
            int, Node
        ] = {}  # The switch that each host was connected to first, by the host's number.
        self._is_built = False

    # Building.

    def add_host(self, name: str, ip: str, mac: str, cost: HostCost | None = None) -> Node:
        """Add a host; `cost` is that of peers and flows on it, workers have their own."""
        cost = cost or HostCost()
        return self._add_node(
            Node(name, len(self.nodes), ip, mac, False),
            kind=HOST_NODE,
            packet_ps=round((cost.send_ns + cost.receive_ns) / 2 * PS_PER_NS),
            byte_ps=round(cost.byte_ns * PS_PER_NS),
            slower=round(cost.slower * 100),
        )

    def add_switch(
        self,
        name: str,
        ip: str,
        mac: str,
        *,
        programmed: ProgrammedSwitch | None = None,
        cost: SwitchCost | None = None,
        added_bytes: int = 0,
    ) -> Node:
        """Add a switch.

        `programmed`: what runs in it; None: it only forwards. `added_bytes`: on the wire, of each packet with lanes: lanes
        that are not simulated.
        """
        cost = cost or SwitchCost()
        service_ps = round(cost.service_ns * PS_PER_NS)
        number = self._switch_rows.add(
            node=len(self.nodes),
            latency_ps=round(cost.latency_ns * PS_PER_NS),
            service_ps=service_ps,
            queue_ps=NEVER if cost.queue_pkts is None or not service_ps else cost.queue_pkts * service_ps,
            alive=1,
            added_bytes=added_bytes,
            header_only_bytes=_HEADER_ONLY_BYTES,
        )
        self.programmed.append(programmed)
        self._ports.append({})
        return self._add_node(Node(name, len(self.nodes), ip, mac, True), kind=SWITCH_NODE, index=number)

    def connect(
        self,
        one: Node,
        other: Node,
        parameters: LinkParameters,
        *,
        one_port: int | None = None,
        other_port: int | None = None,
    ) -> tuple[int, int]:
        """Connect two nodes; returns the numbers of the links from the one to the other and back.

        Ports that are not given are the next free ones of a switch, from 1 on.
        """
        if self._is_built:
            raise NetworkError("connect everything before the first run")
        ports = [self._free_port(node, port) for node, port in ((one, one_port), (other, other_port))]
        numbers = []
        for source, target, port in ((one, other, ports[1]), (other, one, ports[0])):
            number = self._links.add(from_node=source.number, to_node=target.number, to_port=port)
            self.set_link(number, parameters)
            numbers.append(number)
        for node, port, number in ((one, ports[0], numbers[0]), (other, ports[1], numbers[1])):
            if node.is_switch:
                self._ports[self._switch_number(node)][port] = number
        for node, neighbour in ((one, other), (other, one)):
            if neighbour.is_switch:
                self._first_switches.setdefault(node.number, neighbour)
        return numbers[0], numbers[1]

    def set_link(self, number: int, parameters: LinkParameters) -> None:
        """Apply parameters to one direction of a link from now on."""
        link, faults = self._links[number], parameters.faults
        rate = parameters.rate_bps or 0

        def queue_ps(size: int | None) -> int:
            return NEVER if size is None or not rate else size * 8 * PS_PER_S // rate

        link["rate_bps"] = rate
        link["latency_ps"] = parameters.latency_ns * PS_PER_NS
        link["framing_bytes"] = parameters.framing_bytes
        link["mtu"] = parameters.mtu
        link["queue_ps"] = queue_ps(parameters.queue_bytes)
        link["mark_ps"] = queue_ps(parameters.mark_bytes)
        link["up"] = 1
        link["loss"] = chance_of(faults.loss)
        link["duplicate"] = chance_of(faults.duplicate)
        link["jitter_ps"] = faults.jitter_ns * PS_PER_NS
        link["straggle"] = chance_of(faults.straggle)
        link["straggle_ps"] = faults.straggle_ns * PS_PER_NS
        link["bursts"] = int(faults.bursts is not None)
        if faults.bursts is not None:
            link["to_bad"] = chance_of(faults.bursts.to_bad)
            link["to_good"] = chance_of(faults.bursts.to_good)
            link["loss_bad"] = chance_of(faults.bursts.loss_bad)
        link["faulty"] = int(faults.any or bool(link["scripted"]))

    def set_link_up(self, number: int, up: bool) -> None:
        """Take one direction of a link down, which loses the packets on it, or up."""
        self._links[number]["up"] = int(up)

    def set_switch_alive(self, switch: Node, alive: bool) -> None:
        """Let a switch handle packets, or lose them all."""
        self._switch_rows[self._switch_number(switch)]["alive"] = int(alive)

    def build(self) -> None:
        """Lay out routes, ports and addresses for compiled code, once; nothing can be added to the graph afterwards."""
        if self._is_built:
            return
        self._is_built = True
        memory, count = self._memory, len(self.nodes)
        world = memory.world[0]
        world["node_count"] = count
        links = self._links.rows
        routes = find_routes(count, links["from_node"], links["to_node"])
        rows = self._node_rows.rows
        rows["router"], rows["out_link"], rows["in_link"] = routes.router, routes.out_link, routes.in_link
        world["router_count"] = len(memory.keep("ways", routes.ways))
        memory.keep("way_choices", routes.choices)
        memory.keep("way_links", routes.links)
        self._endpoints = memory.keep("endpoints", np.full((count, ENDPOINTS_PER_NODE), -1, np.int32))
        world["endpoints_per_node"] = ENDPOINTS_PER_NODE
        addresses = sorted((ipv4_int(node.ip), node.number) for node in self.nodes)
        memory.keep("addresses", np.array(addresses, np.int64).reshape(-1, 2))
        world["address_count"] = count
        port_links: list[int] = []
        for number, ports in enumerate(self._ports):
            size = max(ports, default=0) + 1
            self._switch_rows[number]["port_links"] = len(port_links)
            self._switch_rows[number]["port_count"] = size
            port_links += [ports.get(port, -1) for port in range(size)]
            memory.need(4 * size + 1024)
        memory.keep("port_links", np.array(port_links or [-1], np.int32))

    # Finding.

    def node(self, name: str) -> Node:
        """Return a node by its name; `KeyError` if there is none."""
        return self._by_name[name]

    def switch_of(self, host: Node) -> Node:
        """Return the switch that a host is connected to; the first, if there are several."""
        if host.number not in self._first_switches:
            raise NetworkError(f"host {host.name} is not connected to a switch")
        return self._first_switches[host.number]

    def link_towards(self, node: Node, target: Node) -> int:
        """Return the link that packets take from a node towards another; −1 if there is none."""
        self.build()
        return int(link_towards(self._memory.world[0], node.number, target.number))

    def way(self, source: Node, target: Node) -> list[Node]:
        """Return the nodes that packets pass from one node to another, both included; without a way, the first alone."""
        self.build()
        nodes = [source]
        while nodes[-1] != target:
            link = self.link_towards(nodes[-1], target)
            if link < 0:
                break
            nodes.append(self.nodes[self._links[link]["to_node"]])
        return nodes

    def there_and_back(self, host: Node, switch: Node) -> tuple[list[Node], list[Node]]:
        """Return the nodes that a worker's packets pass to the switch that adds, and those that its RESULTs pass.

        RESULTs leave the switch by the port that the worker's packets come in by, whichever way is chosen behind that.
        """
        there = self.way(host, switch)
        return there, [switch, *self.way(there[-2], host)] if len(there) > 1 else [switch]

    def neighbours(self, switch: Node) -> dict[str, int]:
        """Return the port that leads to each neighbouring switch, by that switch's name."""
        found: dict[str, int] = {}
        for port, number in sorted(self._ports[self._switch_number(switch)].items()):
            other = self.nodes[self._links[number]["to_node"]]
            if other.is_switch:
                found.setdefault(other.name, port)
        return found

    def endpoints(self, hosts: Sequence[Node], switch: Node, place: int = 0) -> list[WorkerEndpoint]:
        """Return where workers on these hosts are, as the switch sees them.

        `place`: which of the workers of each host, 0 and up.
        """
        self.build()
        return [
            WorkerEndpoint(self._port_from(host, switch), host.ip, host.mac, FIRST_UDP_PORT + place)
            for host in hosts
        ]

    def port_towards(self, switch: Node, target: Node) -> int:
        """Return the port by which a switch's packets leave towards a node."""
        link = self.link_towards(switch, target)
        return next(port for port, each in self._ports[self._switch_number(switch)].items() if each == link)

    def link_name(self, number: int) -> str:
        """Return a name of one direction of a link: ``h1>s1``."""
        link = self._links[number]
        return f"{self.nodes[link['from_node']].name}>{self.nodes[link['to_node']].name}"

    @property
    def lost_packets(self) -> int:
        """Packets that links have lost, for whatever reason."""
        reasons = ("lost", "lost_in_queue", "lost_while_down", "lost_too_long")
        return sum(int(self.link_records[name].sum()) for name in reasons)

    @property
    def link_records(self) -> npt.NDArray[Any]:
        """The records of the links' directions (`records.LINK`)."""
        return self._links.rows

    @property
    def switch_records(self) -> npt.NDArray[Any]:
        """The records of the switches (`records.SWITCH`)."""
        return self._switch_rows.rows

    @property
    def node_records(self) -> npt.NDArray[Any]:
        """The records of the nodes (`records.NODE`)."""
        return self._node_rows.rows

    def _add_node(self, node: Node, **values: int) -> Node:
        if self._is_built:
            raise NetworkError("add all hosts and switches before the first run")
        self._node_rows.add(**values)
        self.nodes.append(node)
        self._by_name[node.name] = node
        return node

    def _switch_number(self, node: Node) -> int:
        return int(self._node_rows[node.number]["index"])

    def _free_port(self, node: Node, port: int | None) -> int:
        if not node.is_switch:
            return 0
        taken = self._ports[self._switch_number(node)]
        chosen = port if port is not None else next(each for each in range(1, 512) if each not in taken)
        if chosen in taken:
            raise NetworkError(f"port {chosen} of {node.name} has a link already")
        return chosen

    def _port_from(self, host: Node, switch: Node) -> int:
        """Return the port of a switch by which the packets of a host come in."""
        there = self.way(host, switch)
        if there[-1] != switch:
            raise NetworkError(f"host {host.name} is not connected to {switch.name}")
        return int(self._links[self.link_towards(there[-2], switch)]["to_port"])
