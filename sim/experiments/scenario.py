"""A point as a network: hosts, links and switches, and their faults.

Failures raise `SettingError`; the message says what is wrong.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from controller.job_controller import JobController
from host_agent.wire.constants import KIND_CONTRIBUTE, KIND_PROBE, KIND_RESULT, KIND_STATUS
from host_agent.words import plural
from sim.errors import SettingError
from sim.experiments.controlling import Controlling
from sim.experiments.experiment import Point, check_packets
from sim.experiments.settings import Event, JobTable, Settings, TopologyTable
from sim.network import shapes
from sim.network.engine.scripts import DELAY, DROP
from sim.network.graph import Node
from sim.network.network import Network
from sim.network.parameters import Bursts, HostCost, LinkParameters, SwitchCost
from sim.network.programming import ProgrammedSwitch
from sim.network.trees import tree_controller
from sim.peers.table import server_count
from topologies.topology import TopologyError
from topologies.topology_file import load_topology

Programs = Mapping[int, str]  # The compiled program (BMv2 JSON) for each number of lanes.

MEASURED_HOST: Final = HostCost(send_ns=1300, receive_ns=3800, byte_ns=2)
"""Measured with 64 and 256 lanes on the machine that docs/simulator-accuracy.md names."""

_KINDS: Final = {
    "any": -1,
    "contribute": KIND_CONTRIBUTE,
    "result": KIND_RESULT,
    "probe": KIND_PROBE,
    "status": KIND_STATUS,
}
_LANE_BYTES: Final = 4


@dataclass
class Scenario:
    """A network and what of it belongs to the experiment."""

    network: Network
    shape: shapes.Shape
    nodes: dict[str, Node]
    links: dict[str, int]  # The two directions of each link, by name (``h1>s1``).
    link_parameters: dict[str, LinkParameters]
    controlling: Controlling  # The controller's times of action.
    programmed: dict[str, ProgrammedSwitch] = field(default_factory=dict)  # The switches that add, by name.
    controller: JobController | None = None  # Controller of these switches; None if there are none.

    def hosts_of(self, job: JobTable, extra: int = 0) -> list[Node]:
        """Return the hosts of a job's workers, and this many that follow."""
        first, count = job.first_host - 1, job.workers + extra
        places = self.shape.hosts[first : first + count]
        if len(places) < count:
            raise SettingError(
                f"job {job.name}: expected {plural(count, 'host')} from h{first + 1} on, the topology has {len(self.shape.hosts)}"
            )
        return [self.nodes[place.name] for place in places]

    def switch_of(self, event: Event, at: int) -> Node:
        """Return the switch that an event names, or the one that adds."""
        name = event.switch or self.shape.aggregator
        node = self.nodes.get(name)
        if node is None or not node.is_switch:
            raise SettingError(f"event[{at}].switch: expected the name of a switch, found {name!r}")
        return node

    def matching(self, pattern: str, where: str) -> Iterator[tuple[str, int]]:
        """Iterate over links whose names match FROM>TO, with * for any."""
        found = [
            (name, number)
            for name, number in self.links.items()
            if pattern == "*" or fnmatchcase(name, pattern)
        ]
        if not found:
            raise SettingError(
                f"{where}: there is no link {pattern!r}; their names are like {next(iter(self.links))!r}"
            )
        yield from found


@cache
def _program(path: str) -> Path:
    if not Path(path).is_file():
        raise SettingError(f"the compiled program {path} is missing: run `make p4` in a source checkout")
    return Path(path)


def added_bytes(job: JobTable) -> int:
    """Return how many bytes of lanes each packet of a job has on the wire that are not computed."""
    return _LANE_BYTES * (job.lanes - computed_lanes(job))


def computed_lanes(job: JobTable) -> int:
    """Return how many lanes of a packet are computed."""
    lanes = job.simulated_lanes or job.lanes
    if lanes > job.lanes:
        raise SettingError(
            f"job {job.name}: simulated_lanes: expected at most the job's {job.lanes} lanes, found {lanes}"
        )
    return lanes


def build(point: Point, programs: Programs) -> Scenario:
    """Build the network of a point."""
    settings = point.settings
    table = settings.topology
    base = _base(table)
    core = replace(base, rate_bps=table.core_rate or table.rate)
    shape = shape_of(settings)
    ours = [job for job in settings.job if job.contender == "netsum"]
    lanes = {computed_lanes(job) for job in ours}
    added = {added_bytes(job) for job in ours}
    if len(lanes) > 1 or len(added) > 1:
        raise SettingError(
            "job: expected all jobs of netsum to have the same lanes: a switch runs one program"
        )
    network = Network(point.seed, lanes=max(lanes, default=64))
    cost = SwitchCost(settings.switch.latency, settings.switch.service, settings.switch.queue_pkts or None)
    scenario = Scenario(network, shape, {}, {}, {}, Controlling(network, settings.controller.delay))
    adding = {job.switch or shape.aggregator for job in ours if not job.tree}
    if any(job.tree for job in ours):
        adding.update(place.name for place in shape.switches)
    for place in shape.switches:
        if place.name in adding:
            count = lanes.copy().pop()
            scenario.programmed[place.name] = ProgrammedSwitch(
                _program(programs[count]), count, ip=place.ip, mac=place.mac, token_seed=point.seed
            )
        scenario.nodes[place.name] = network.add_switch(
            place.name,
            place.ip,
            place.mac,
            programmed=scenario.programmed.get(place.name),
            cost=cost,
            added_bytes=max(added, default=0),
        )
    unknown = adding - set(scenario.nodes)
    if unknown:
        names = ", ".join(place.name for place in shape.switches[:8])
        raise SettingError(f"job: switch: expected one of {names}, found {unknown.pop()!r}")
    for place in shape.hosts:
        scenario.nodes[place.name] = network.add_host(place.name, place.ip, place.mac, host_cost(point))
    for edge in shape.edges:
        parameters = edge.own or (core if edge.kind == shapes.CORE_LINK else base)
        one, other = scenario.nodes[edge.one], scenario.nodes[edge.other]
        pair = network.connect(one, other, parameters, one_port=edge.one_port, other_port=edge.other_port)
        for name, number in zip((f"{edge.one}>{edge.other}", f"{edge.other}>{edge.one}"), pair, strict=True):
            scenario.links[name] = number
            scenario.link_parameters[name] = parameters
    if scenario.programmed:
        scenario.controller = tree_controller(
            network, scenario.programmed, token_seed=point.seed, epoch=point.seed
        )
        _write_forwarding(scenario, [job for job in ours if not job.tree])
    _add_faults(point, scenario)
    _add_traffic(point, scenario)
    return scenario


def _write_forwarding(scenario: Scenario, jobs: list[JobTable]) -> None:
    """Let switches that add forward packets to and from other switches, as a site's controller does."""
    network = scenario.network
    stations: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for job in jobs:
        adds = scenario.nodes[job.switch or scenario.shape.aggregator]
        for host in scenario.hosts_of(job):
            for way in network.there_and_back(host, adds):
                for node in way[1:-1]:
                    if node.name in scenario.programmed:
                        stations[node.name][way[-1].mac] = network.port_towards(node, way[-1])
    for name, ports in stations.items():
        scenario.programmed[name].tables.set_l2(ports)


def _base(table: TopologyTable) -> LinkParameters:
    return LinkParameters(
        rate_bps=table.rate,
        latency_ns=table.latency,
        mtu=table.mtu,
        queue_bytes=table.queue or None,
        mark_bytes=table.mark or None,
        framing_bytes=table.framing,
    )


def shape_of(settings: Settings) -> shapes.Shape:
    """Return the graph that settings describe; raises SettingError if there is none."""
    table = settings.topology
    try:
        if table.kind != "file":
            return _generated(table, table.hosts or _hosts_needed(settings))
        if not table.file:
            raise SettingError("topology.file: expected the name of a topology, or a file's path")
        topology = load_topology(table.file)
        check_packets(settings, topology.mtu)
        return shapes.of_topology(topology, _base(table))
    except (shapes.ShapeError, TopologyError) as error:
        raise SettingError(str(error)) from None


def check_shape(point: Point) -> None:
    """Raise SettingError, which names the point, if there is no graph that its settings describe."""
    try:
        shape_of(point.settings)
    except SettingError as error:
        raise SettingError(f"{error} ({point})") from None


def host_cost(point: Point) -> HostCost:
    """Return the processor time that a host of a point spends on packets."""
    host = point.settings.host
    if host.cost == "measured":
        return MEASURED_HOST
    if host.cost == "given":
        return HostCost(host.send, host.receive, host.byte)
    return HostCost()


def _hosts_needed(settings: Settings) -> int:
    """Return the highest number of a host that jobs and background traffic name."""
    needed = 1
    for job in settings.job:
        servers = server_count(job.contender, job.servers, job.workers)
        needed = max(needed, job.first_host - 1 + job.workers + servers)
    for flow in settings.background:
        for name in (flow.source, flow.target):
            if name[:1] == "h" and name[1:].isdigit():
                needed = max(needed, int(name[1:]))
    return needed


@lru_cache(maxsize=2)  # Points that follow each other often have the same; one of 100,000 hosts takes 100 MB.
def _generated(table: TopologyTable, hosts: int) -> shapes.Shape:
    if table.kind == "star":
        return shapes.star(hosts)
    if table.kind == "dumbbell":
        return shapes.dumbbell(hosts)
    if table.kind == "leaf-spine" and table.rack:
        leaves = -(-hosts // table.rack)
        return shapes.leaf_spine(leaves * table.rack, leaves, table.spines)
    if table.kind == "leaf-spine":
        return shapes.leaf_spine(
            table.hosts or -(-hosts // table.leaves) * table.leaves, table.leaves, table.spines
        )
    if table.kind == "pods":
        if not table.rack:
            raise SettingError("topology.rack: expected how many hosts are at each leaf of a pod")
        count = table.pods or -(-hosts // (table.leaves * table.rack))
        return shapes.pods(count, table.leaves, table.spines, table.rack, table.cores)
    return shapes.fat_tree(table.ports)


def _add_faults(point: Point, scenario: Scenario) -> None:
    network = scenario.network
    for at, fault in enumerate(point.settings.fault):
        given: dict[str, Any] = {"loss": fault.loss, "duplicate": fault.duplicate, "jitter_ns": fault.jitter}
        if fault.straggle is not None:
            given |= {"straggle": fault.straggle, "straggle_ns": fault.straggle_by}
        changes = {name: value for name, value in given.items() if value is not None}
        if fault.to_bad is not None:
            changes["bursts"] = Bursts(fault.to_bad, fault.to_good, fault.loss_bad) if fault.to_bad else None
        for name, number in scenario.matching(fault.links, f"fault[{at}].links"):
            parameters = scenario.link_parameters[name].with_faults(**changes)
            scenario.link_parameters[name] = parameters
            network.set_link(number, parameters)
    for at, script in enumerate(point.settings.script):
        numbers = [-1]
        if script.links != "*":
            numbers = [number for _, number in scenario.matching(script.links, f"script[{at}].links")]
        for number in numbers:
            network.add_script(
                DROP if script.action == "drop" else DELAY,
                link=number,
                kind=_KINDS[script.kind],
                chunk=script.chunk,
                worker=script.worker,
                nth=script.nth,
                delay_ns=script.delay,
            )


def _add_traffic(point: Point, scenario: Scenario) -> None:
    for at, flow in enumerate(point.settings.background):
        for key, name in (("source", flow.source), ("target", flow.target)):
            if name not in scenario.nodes or scenario.nodes[name].is_switch:
                raise SettingError(f"background[{at}].{key}: expected the name of a host, found {name!r}")
        scenario.network.add_traffic(
            scenario.nodes[flow.source],
            scenario.nodes[flow.target],
            rate_bps=flow.rate,
            packet_bytes=flow.packet,
            burst=flow.burst,
            gaps=flow.gaps,
            start_ns=flow.start,
            stop_ns=flow.stop,
        )


def apply_event(event: Event, scenario: Scenario, at: int) -> None:
    """Schedule an event on links, or a switch that goes down or up; the others are `sim.experiments.running`'s."""
    network = scenario.network
    if event.action in ("link-down", "link-up"):
        for _, number in list(scenario.matching(event.links, f"event[{at}].links")):
            network.at(event.at, network.set_link_up, number, event.action == "link-up")
        return
    node = scenario.switch_of(event, at)
    network.at(event.at, network.set_switch_alive, node, event.action == "switch-up")
