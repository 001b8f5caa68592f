"""A tree of switches in a simulated network: each runs the P4 program, and the controller of trees programs all."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from controller.job_controller import JobController, PlacedJob
from host_agent.wire import Admission
from sim.network.network import Network
from sim.network.programming import ProgrammedSwitch
from sim.network.trees import places, tree_controller
from sim.network.worker import Plan, Worker
from tests.dataplane.tna_logic import translate
from topologies.generated import network
from topologies.topology import Topology

from .star import BUILD, MAX_EVENTS, Cables, limit_growth

Shape: TypeAlias = "int | tuple[Shape, ...]"
"""A switch's number of workers, or the switches below it."""


def program_file(lanes: int) -> Path:
    """Return the compiled program with this number of lanes; the one with fewest has the decisions of Tofino's program."""
    if lanes == translate.LANES:
        return translate.files("tna_tree")[0]
    return BUILD / f"netsum_v1model_{lanes}.json"


class Fabric:
    """The switches of a tree. Jobs on it come one after the other, with new epochs.

    Attributes
    ----------
    switches : dict
        What runs in each, by name; ``s0`` is at the top.
    edges : list of (str, str)
        Each switch below another one, and that one.
    hosts : list of str
        The switch that each host is connected to, by rank.

    `grows`: whether a header can grow by any number of lanes in the switches. `program`: that they run; None: the compiled one.
    """

    def __init__(self, shape: Shape, lanes: int, *, grows: bool = True, program: Path | None = None) -> None:
        self.lanes, self._grows = lanes, grows
        self._program = program or program_file(lanes)
        self.switches: dict[str, ProgrammedSwitch] = {}
        self._addresses: dict[str, tuple[str, str]] = {}
        self.edges: list[tuple[str, str]] = []
        self.hosts: list[str] = []
        self._add(shape)
        self._controller: JobController | None = None

    def _add(self, shape: Shape) -> str:
        number = len(self.switches)
        name = f"s{number}"
        self._addresses[name] = ip, mac = f"10.1.{number}.254", f"02:00:0a:01:{number:02x}:fe"
        self.switches[name] = ProgrammedSwitch(self._program, ip=ip, mac=mac)
        if not self._grows:
            limit_growth(self.switches[name])
        if isinstance(shape, int):
            self.hosts += [name] * shape
        else:
            for below in shape:
                self.edges.append((self._add(below), name))
        return name

    def controller(self, network: Network) -> JobController:
        """Return the controller, which outlives the networks."""
        if self._controller is None:
            self._controller = tree_controller(network, self.switches)
        return self._controller

    def topology(self) -> Topology:
        """Return the network, with the addresses that the switches have."""
        below = [(f"h{rank}", leaf) for rank, leaf in enumerate(self.hosts, 1)]
        made = network("tree", len(self.hosts), list(self.switches), [*below, *self.edges])
        specs = {
            name: replace(spec, ip=ip, mac=mac)
            for name, spec in made.switches.items()
            for ip, mac in [self._addresses[name]]
        }
        return replace(made, switches=specs)

    def counters(self, *names: str) -> dict[str, int]:
        """Return what counters have counted of the job, summed over all switches."""
        counted = [switch.tables.counters([1])[1] for switch in self.switches.values()]
        return {name: sum(each[name] for each in counted) for name in names}


@cache
def fabric(shape: Shape, lanes: int) -> Fabric:
    """The switches that all tests of a process share; with 256 lanes, packets grow as little as in BMv2."""
    return Fabric(shape, lanes, grows=lanes != 256)


class TreeNetwork:
    """Hosts, cables and a tree of switches; the cables' faults are those of every link, also between switches."""

    def __init__(self, tree: Fabric, cables: Cables, seed: int) -> None:
        self.tree = tree
        self.network = Network(seed, lanes=tree.lanes)
        self.network.add_topology(tree.topology(), cables.link(cables.mtu_up), programmed=tree.switches)
        self._switches, self._hosts = self.network.by_name, self.network.hosts
        self._uplinks = {low: self.network.link_numbers[f"{low}>{high}"] for low, high in tree.edges}
        self._places = places(self.network, self._hosts)
        self._controller = tree.controller(self.network)

    def start_job(self, slots: int) -> PlacedJob:
        """Admit a job of all hosts, with an epoch and token of its own, after the end of the last one."""
        for job in self._controller.jobs:
            self._controller.end_job(job)
        return self._controller.create_job("job", self._places, slots)

    def restart_job(self, job: PlacedJob) -> PlacedJob:
        """Give the job a new epoch on all its switches."""
        return self._controller.restart_job(job)

    def add_workers(
        self, admissions: list[Admission], plans: Callable[[int], Iterable[Plan]], **options: Any
    ) -> list[Worker]:
        """Add the workers of a job; the options are those of `Network.add_job`."""
        leaves = [self._switches[leaf] for leaf in self.tree.hosts]
        return self.network.add_job(admissions, self._hosts, leaves, plans, **options)

    @property
    def workers(self) -> list[Worker]:
        return self.network.workers

    def run(self, until: Callable[[], bool] | None = None) -> None:
        self.network.run(until, max_events=MAX_EVENTS)

    def drain(self) -> None:
        self.network.drain()

    def kill_switch(self, name: str) -> None:
        self.network.set_switch_alive(self._switches[name], False)

    def restart_switch(self, name: str) -> None:
        """Let a switch lose its registers and entries."""
        self.tree.switches[name].clear(job.parts[name] for job in self._controller.jobs if name in job.parts)

    def sent_up(self) -> dict[str, tuple[int, int]]:
        """Return the packets and bytes that each switch sent to the one above it."""
        counts = {low: self.network.link_records[up] for low, up in self._uplinks.items()}
        return {low: (int(count["packets"]), int(count["bytes"])) for low, count in counts.items()}
