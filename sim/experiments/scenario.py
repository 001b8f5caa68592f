"""A point as a network: hosts, links and switches, and their faults.

Failures raise `SettingError`; the message says what is wrong.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
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
from sim.experiments.settings import EventTable, JobTable, Settings, TopologyTable
from sim.network.engine.scripts import DELAY, DROP
from sim.network.graph import Node
from sim.network.messages import add_flow
from sim.network.network import Network
from sim.network.parameters import BackgroundTraffic, Bursts, Faults, HostCost, LinkParameters, SwitchCost
from sim.network.programming import ProgrammedSwitch
from sim.network.trees import tree_controller
from sim.peers.table import server_count
from topologies.generated import KINDS
from topologies.shaping import ETHERNET_HEADER_BYTES
from topologies.topology import LinkSpec, Topology, TopologyError
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
    controlling: Controlling  # The controller's times of action.
    programmed: dict[str, ProgrammedSwitch]  # The switches that add, by name.
    controller: JobController | None = None  # Controller of these switches; None if there are none.

    @property
    def topology(self) -> Topology:
        """The network's hosts, switches and links."""
        return self.network.topology

    def hosts_of(self, job: JobTable, extra: int = 0) -> list[Node]:
        """Return the hosts of a job's workers, and this many that follow."""
        first, count = job.first_host - 1, job.workers + extra
        hosts = self.network.hosts
        if first + count > len(hosts):
            raise SettingError(
                f"job {job.name}: expected {plural(count, 'host')} from h{first + 1} on, the topology has {len(hosts)}"
            )
        return hosts[first : first + count]

    def adds(self, job: JobTable) -> Node:
        """Return the switch that adds for a job that is on no tree."""
        return self.network.by_name[job.switch or self.topology.aggregator]

    def switch_of(self, event: EventTable, at: int) -> Node:
        """Return the switch that an event names, or the one that adds."""
        name = event.switch or self.topology.aggregator
        if name not in self.topology.switches:
            raise SettingError(f"event[{at}].switch: expected the name of a switch, found {name!r}")
        return self.network.by_name[name]

    def matching(self, pattern: str, where: str) -> Iterator[tuple[str, int]]:
        """Iterate over links whose names match FROM>TO, with * for any."""
        found = [
            (name, number)
            for name, number in self.network.link_numbers.items()
            if pattern == "*" or fnmatchcase(name, pattern)
        ]
        if not found:
            raise SettingError(
                f"{where}: there is no link {pattern!r}; their names are like {next(iter(self.network.link_numbers))!r}"
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
    topology = topology_of(settings)
    ours = [job for job in settings.job if job.contender == "netsum"]
    lanes = {computed_lanes(job) for job in ours}
    added = {added_bytes(job) for job in ours}
    if len(lanes) > 1 or len(added) > 1:
        raise SettingError(
            "job: expected all jobs of netsum to have the same lanes: a switch runs one program"
        )
    adding = {job.switch or topology.aggregator for job in ours if not job.tree}
    if any(job.tree for job in ours):
        adding.update(topology.switches)
    if unknown := adding - topology.switches.keys():
        names = ", ".join(list(topology.switches)[:8])
        raise SettingError(f"job: switch: expected one of {names}, found {unknown.pop()!r}")
    network = Network(point.seed, lanes=max(lanes, default=64))
    programmed = {}
    for name, spec in topology.switches.items():
        if name in adding:
            (count,) = lanes
            programmed[name] = ProgrammedSwitch(_program(programs[count]), ip=spec.ip, mac=spec.mac)
    table = settings.switch
    cost = SwitchCost(table.latency, table.service, table.queue_pkts or None)
    network.add_topology(
        topology,
        _link_parameters(settings.topology, topology.mtu),
        programmed=programmed,
        switch_costs=dict.fromkeys(topology.switches, cost),
        host_cost=host_cost(point),
        added_bytes=max(added, default=0),
    )
    scenario = Scenario(network, Controlling(network, settings.controller.delay), programmed)
    if programmed:
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
        adds = scenario.adds(job)
        for host in scenario.hosts_of(job):
            for way in network.there_and_back(host, adds):
                for node in way[1:-1]:
                    if node.name in scenario.programmed:
                        stations[node.name][way[-1].mac] = network.port_towards(node, way[-1])
    for name, ports in stations.items():
        scenario.programmed[name].tables.set_l2(ports)


def _link_parameters(table: TopologyTable, mtu: int) -> Callable[[LinkSpec], LinkParameters]:
    """Return the parameters of a link: the topology's own, and the experiment's for what that does not state."""
    rates = table.rate, table.core_rate or table.rate

    @cache
    def parameters(
        between: bool, rate_bps: int | None, latency_ns: int, loss_ppm: int, queue_pkts: int | None
    ) -> LinkParameters:
        queue_bytes = queue_pkts * (mtu + ETHERNET_HEADER_BYTES) if queue_pkts is not None else table.queue
        return LinkParameters(
            rate_bps=rate_bps or rates[between and table.kind != "file"],
            latency_ns=latency_ns or table.latency,
            mtu=mtu,
            queue_bytes=queue_bytes or None,
            mark_bytes=table.mark or None,
            framing_bytes=table.framing,
            faults=Faults(loss=loss_ppm / 1e6),
        )

    return lambda link: parameters(
        link.between_switches, link.rate_bps, link.latency_ns, link.loss_ppm, link.queue_pkts
    )


def topology_of(settings: Settings) -> Topology:
    """Return the network that settings describe; raises SettingError if there is none."""
    table = settings.topology
    try:
        if table.kind != "file":
            return _generated(table, table.hosts or _hosts_needed(settings))
        if not table.file:
            raise SettingError("topology.file: expected the name of a topology, or a file's path")
        topology = load_topology(table.file)
    except TopologyError as error:
        raise SettingError(str(error)) from None
    check_packets(settings, topology.mtu)
    return topology


def check_topology(point: Point) -> None:
    """Raise SettingError, which names the point, if there is no network that its settings describe."""
    try:
        topology_of(point.settings)
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
def _generated(table: TopologyTable, hosts: int) -> Topology:
    kind = KINDS[table.kind]
    made = kind.make(hosts, **{key: getattr(table, key) for key in kind.keys})
    return replace(made, mtu=table.mtu)


def _add_faults(point: Point, scenario: Scenario) -> None:
    network = scenario.network
    for at, fault in enumerate(point.settings.fault):
        given: dict[str, Any] = {"loss": fault.loss, "duplicate": fault.duplicate, "jitter_ns": fault.jitter}
        if fault.straggle is not None:
            given |= {"straggle": fault.straggle, "straggle_ns": fault.straggle_by}
        changes = {name: value for name, value in given.items() if value is not None}
        if fault.to_bad is not None:
            changes["bursts"] = Bursts(fault.to_bad, fault.to_good, fault.loss_bad) if fault.to_bad else None
        for _, number in scenario.matching(fault.links, f"fault[{at}].links"):
            network.set_link(number, network.link_parameters[number].with_faults(**changes))
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
            if name not in scenario.topology.hosts:
                raise SettingError(f"background[{at}].{key}: expected the name of a host, found {name!r}")
        ends = scenario.network.by_name[flow.source], scenario.network.by_name[flow.target]
        if flow.flow:
            add_flow(scenario.network, *ends, flow.flow, flow.start, flow.stop)
            continue
        scenario.network.add_traffic(
            *ends, BackgroundTraffic(flow.rate, flow.packet, flow.burst, flow.gaps, flow.start, flow.stop)
        )


def apply_event(event: EventTable, scenario: Scenario, at: int) -> None:
    """Schedule an event on links, or a switch that goes down or up; the others are `sim.experiments.running`'s."""
    network = scenario.network
    if event.action in ("link-down", "link-up"):
        for _, number in list(scenario.matching(event.links, f"event[{at}].links")):
            network.at(event.at, network.set_link_up, number, event.action == "link-up")
        return
    node = scenario.switch_of(event, at)
    network.at(event.at, network.set_switch_alive, node, event.action == "switch-up")
