"""The graph of a network: its hosts, switches and links, and the paths of packets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from controller.jobs import WorkerEndpoint
from host_agent.wire.constants import HEADER_BYTES, STATUS_BYTES
from host_agent.words import plural
from sim.errors import SimulationError
from sim.frames import FIRST_UDP_PORT, HEADERS_BYTES
from sim.network.engine.dice import chance_of
from sim.network.engine.engine_records import LINK, NEVER, NODE, PS_PER_NS, PS_PER_S, SWITCH
from sim.network.engine.switches import HOST_NODE, SWITCH_NODE
from sim.network.engine.ways import link_towards
from sim.network.network_memory import NetworkMemory, RecordRows
from sim.network.parameters import HostCost, LinkParameters, SwitchCost
from sim.network.programming import ProgrammedSwitch
from sim.network.routes import find_routes
from topologies.addresses import ipv4_int
from topologies.topology import HostSpec, LinkEnd, LinkSpec, SwitchSpec, Topology

ENDPOINTS_PER_NODE: Final = 16  # Workers of a host at a time.
NAMED_WORKERS: Final = 4  # How many workers an error names.
_HEADER_ONLY_BYTES: Final = HEADERS_BYTES + HEADER_BYTES + STATUS_BYTES
"""Size of the longest frame without lanes: headers, the protocol's header, a STATUS."""


class NetworkError(SimulationError):
    """A network cannot be built or run as asked; the message says why."""


class UnfinishedError(NetworkError):
    """A run ended before all workers and messages were done.

    `workers`: the job's name and the rank of each unfinished worker. `messages`: the number of undelivered messages. `limit_ns`:
    the limit of virtual time that the run reached; None: no event was left.
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

    def __init__(self, memory: NetworkMemory) -> None:
        self._memory = memory
        self.topology = Topology("empty", {}, {}, ())
        self.nodes: list[Node] = []  # All nodes, by number: the switches, then the hosts.
        self.hosts: list[Node] = []  # In the order of the topology.
        self.by_name: dict[str, Node] = {}
        # The program of each switch, in the order of `switch_records`; None: the switch only forwards.
        self.programmed: list[ProgrammedSwitch | None] = []
        # The two directions of each link of the topology, one after the other: their parameters, and their numbers by name.
        self.link_parameters: list[LinkParameters] = []
        self.link_numbers: dict[str, int] = {}
        self._links = RecordRows(memory.world, "links", LINK)
        self._node_rows = RecordRows(memory.world, "nodes", NODE)
        self._switch_rows = RecordRows(memory.world, "switches", SWITCH)
        self._is_built = False

    # Building.

    def add_topology(
        self,
        topology: Topology,
        link: Callable[[LinkSpec], LinkParameters] | LinkParameters,
        *,
        programmed: Mapping[str, ProgrammedSwitch] = MappingProxyType({}),
        switch_costs: Mapping[str, SwitchCost] = MappingProxyType({}),
        host_cost: HostCost | None = None,
        added_bytes: int = 0,
    ) -> None:
        """Add all hosts, switches and links of a network; a network has one topology.

        `programmed`, `switch_costs`: programs and processing times, by the switches' names. A switch without a program only
        forwards; one without a cost takes no time. `host_cost`: processing time of peers and flows on hosts; workers have their
        own. `added_bytes`: bytes on the wire of lanes that are not simulated, for each packet with lanes.
        """
        if self.nodes:
            raise NetworkError("a simulated network has one topology")
        self.topology = topology
        for spec in topology.switches.values():
            cost = switch_costs.get(spec.name, SwitchCost())
            self._add_switch(spec, programmed.get(spec.name), cost, added_bytes)
        host_cost = host_cost or HostCost()
        for host in topology.hosts.values():
            self._add_node(
                host,
                kind=HOST_NODE,
                packet_ps=round((host_cost.send_ns + host_cost.receive_ns) / 2 * PS_PER_NS),
                byte_ps=round(host_cost.byte_ns * PS_PER_NS),
                slower=round(host_cost.slower * 100),
            )
        for each in topology.links:
            parameters = link if isinstance(link, LinkParameters) else link(each)
            for name, near, far in zip(each.names, each.ends, each.ends[::-1], strict=True):
                number = self._links.add(
                    from_node=self.by_name[near.node].number,
                    to_node=self.by_name[far.node].number,
                    to_port=far.port or 0,
                )
                self.link_numbers[name] = number
                self.link_parameters.append(parameters)
                self.set_link(number, parameters)

    def _add_switch(
        self, spec: SwitchSpec, programmed: ProgrammedSwitch | None, cost: SwitchCost, added_bytes: int
    ) -> None:
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
        self._add_node(spec, kind=SWITCH_NODE, index=number)

    def _add_node(self, spec: HostSpec | SwitchSpec, **values: int) -> None:
        self._node_rows.add(**values)
        node = Node(spec.name, len(self.nodes), spec.ip, spec.mac, isinstance(spec, SwitchSpec))
        self.nodes.append(node)
        self.by_name[node.name] = node
        if not node.is_switch:
            self.hosts.append(node)

    def set_link(self, number: int, parameters: LinkParameters) -> None:
        """Apply parameters to one direction of a link from now on."""
        link, faults = self._links[number], parameters.faults
        self.link_parameters[number] = parameters
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
        """Take one direction of a link up or down; a link that is down loses the packets on it."""
        self._links[number]["up"] = int(up)

    def set_switch_alive(self, switch: Node, alive: bool) -> None:
        """Set whether a switch handles packets or loses them all."""
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
        leads_to: list[dict[int, int]] = [{} for _ in self.programmed]
        for number in range(len(self._links)):
            end = self._near_end(number)
            if end.port is not None:
                leads_to[self._switch_number(self.by_name[end.node])][end.port] = number
        for number, ports in enumerate(leads_to):
            size = max(ports, default=0) + 1
            self._switch_rows[number]["port_links"] = len(port_links)
            self._switch_rows[number]["port_count"] = size
            port_links += [ports.get(port, -1) for port in range(size)]
            memory.need(4 * size + 1024)
        memory.keep("port_links", np.array(port_links or [-1], np.int32))

    # Finding.

    def link_towards(self, node: Node, target: Node) -> int:
        """Return the link that packets take from a node towards another; −1 if there is none."""
        self.build()
        return int(link_towards(self._memory.world[0], node.number, target.number))

    def way(self, source: Node, target: Node) -> list[Node]:
        """Return the nodes on the path from one node to another, both included; only the first node if there is no path."""
        self.build()
        nodes = [source]
        while nodes[-1] != target:
            link = self.link_towards(nodes[-1], target)
            if link < 0:
                break
            nodes.append(self.nodes[self._links[link]["to_node"]])
        return nodes

    def there_and_back(self, host: Node, switch: Node) -> tuple[list[Node], list[Node]]:
        """Return the path of a worker's packets to the switch that adds, and the path of its RESULTs back.

        RESULTs leave the switch by the port where the worker's packets arrive; the rest of their path is routed.
        """
        there = self.way(host, switch)
        return there, [switch, *self.way(there[-2], host)] if len(there) > 1 else [switch]

    def endpoints(self, hosts: Sequence[Node], switch: Node, place: int = 0) -> list[WorkerEndpoint]:
        """Return the endpoints of workers on these hosts, as the switch sees them.

        `place`: the worker's number on its host, from 0.
        """
        self.build()
        return [
            WorkerEndpoint(self._port_from(host, switch), host.ip, host.mac, FIRST_UDP_PORT + place)
            for host in hosts
        ]

    def port_towards(self, switch: Node, target: Node) -> int:
        """Return the port by which a switch's packets leave towards a node."""
        port = self._near_end(self.link_towards(switch, target)).port
        assert port is not None
        return port

    def link_name(self, number: int) -> str:
        """Return the name of one direction of a link, such as ``h1>s1``."""
        return self.topology.links[number // 2].names[number % 2]

    def _near_end(self, number: int) -> LinkEnd:
        """Return the sending end of one direction of a link."""
        return self.topology.links[number // 2].ends[number % 2]

    @property
    def lost_packets(self) -> int:
        """Number of packets that links have lost, for all reasons together."""
        reasons = ("lost", "lost_in_queue", "lost_while_down", "lost_too_long")
        return sum(int(self.link_records[name].sum()) for name in reasons)

    @property
    def link_records(self) -> npt.NDArray[Any]:
        """The records of the links' directions (`engine_records.LINK`)."""
        return self._links.rows

    @property
    def switch_records(self) -> npt.NDArray[Any]:
        """The records of the switches (`engine_records.SWITCH`)."""
        return self._switch_rows.rows

    @property
    def node_records(self) -> npt.NDArray[Any]:
        """The records of the nodes (`engine_records.NODE`)."""
        return self._node_rows.rows

    def _switch_number(self, node: Node) -> int:
        return int(self._node_rows[node.number]["index"])

    def _port_from(self, host: Node, switch: Node) -> int:
        """Return the port of a switch at which a host's packets arrive."""
        there = self.way(host, switch)
        if there[-1] != switch:
            raise NetworkError(f"host {host.name} is not connected to {switch.name}")
        return int(self._links[self.link_towards(there[-2], switch)]["to_port"])
