"""Worker cores on one switch in virtual time: `sim.network` in the shape that these tests need."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from controller.jobs import Job, WorkerEndpoint
from host_agent.wire import Admission
from sim.frames import FIRST_UDP_PORT
from sim.network.engine.scripts import DROP
from sim.network.network import Network
from sim.network.parameters import Faults, LinkParameters, SwitchCost
from sim.network.programming import ProgrammedSwitch
from sim.network.worker import Plan, Worker
from tests.dataplane.tna_logic import translate
from tests.sim.network.switch_with_jobs import SwitchWithJobs
from topologies.generated import star

BUILD = Path(__file__).resolve().parents[3] / "p4" / "build"
PORTS = 32
MAX_EVENTS = 2_000_000


def program_file(lanes: int) -> Path:
    """Return the compiled program with this number of lanes; the one with fewest has the decisions of Tofino's program."""
    if lanes == translate.LANES:
        return translate.files("tna_logic")[0]
    return BUILD / f"netsum_v1model_{lanes}.json"


def ip_at(port: int) -> str:
    return f"10.0.0.{port}"


def mac_at(port: int) -> str:
    return f"02:00:0a:00:00:{port:02x}"


class StarSwitch(SwitchWithJobs):
    """A switch for all runs of a test: epochs keep them apart, as they do on a real switch."""

    def __init__(self, lanes: int, token_seed: int = 0, *, grows: bool = True) -> None:
        super().__init__(program_file(lanes), token_seed=token_seed)
        if not grows:
            limit_growth(self)

    def admit(
        self,
        workers: int,
        slots: int,
        *,
        name: str = "job",
        first_port: int = 1,
        place: int = 0,
        quorum: int = 0,
    ) -> list[Admission]:
        """Start or restart a job of workers on ports that follow each other."""
        places = [
            WorkerEndpoint(port, ip_at(port), mac_at(port), FIRST_UDP_PORT + place)
            for port in range(first_port, first_port + workers)
        ]
        return self.start_job(name, places, slots, quorum=quorum).admissions

    def start_job(self, name: str, workers: Sequence[WorkerEndpoint], slots: int, *, quorum: int = 0) -> Job:
        """Admit a job.

        `name`: of the job; one that runs under this name is restarted, with a new epoch and token on the same slots.
        `slots`: chunks in flight, a power of two. `quorum`: contributions that complete a quorum chunk; 0: it has none. Raises
        JobRefusedError: with the reason.
        """
        running = next((job for job in self.ledger.jobs if job.name == name), None)
        if running is not None and (running.slots.count, running.request.quorum) == (slots, quorum):
            return self.restart_job(running, workers)
        if running is not None:
            self.end_job(running)
        return self.create_job(name, workers, slots, quorum=quorum)

    def count(self, counter: str) -> int:
        """Return a counter's value for all jobs of these tests."""
        return sum(counted[counter] for counted in self.tables.counters(range(4)).values())


def limit_growth(switch: ProgrammedSwitch) -> None:
    """Let packets grow by 512 bytes at most, as BMv2 does."""
    switch.engine.table_reset_default("NetsumIngress.slot.packet_growth")


@cache
def star_switch(lanes: int, grows: bool = True) -> StarSwitch:
    """The switch that all tests of a process share; `grows`: whether a header can grow by any number of lanes."""
    return StarSwitch(lanes, grows=grows)


@dataclass(frozen=True)
class Cables:
    """Properties of the cables between hosts and switch, and the switch's speed."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay_ns: int = 10_000
    jitter_ns: int = 0
    straggle: float = 0.0
    straggle_ns: int = 0
    mtu_up: int = 9000
    mtu_down: int = 9000
    service_ns: int = 0

    def link(self, mtu: int) -> LinkParameters:
        faults = Faults(self.drop, self.duplicate, self.jitter_ns, self.straggle, self.straggle_ns)
        return LinkParameters(latency_ns=self.delay_ns, mtu=mtu, faults=faults)


class Star:
    """A network of `PORTS` hosts on ports 1 … of a switch."""

    def __init__(self, switch: StarSwitch, cables: Cables, seed: int) -> None:
        self.network = Network(seed, lanes=switch.capabilities.lanes)
        costs = {"s1": SwitchCost(service_ns=cables.service_ns)}
        self.network.add_topology(
            star(PORTS), LinkParameters(), programmed={"s1": switch}, switch_costs=costs
        )
        self._hub, *hosts = self.network.nodes
        self._hosts = dict(enumerate(hosts, 1))
        for port in self._hosts:
            self.network.set_link(2 * port - 2, cables.link(cables.mtu_up))
            self.network.set_link(2 * port - 1, cables.link(cables.mtu_down))

    def add_job(
        self,
        admissions: list[Admission],
        plans: Callable[[int], Iterable[Plan]],
        *,
        first_port: int = 1,
        **options: Any,
    ) -> list[Worker]:
        """Add the workers of a job; the options are those of `Network.add_job`."""
        hosts = [self._hosts[first_port + admission.worker_id] for admission in admissions]
        return self.network.add_job(admissions, hosts, self._hub, plans, **options)

    @property
    def workers(self) -> list[Worker]:
        return self.network.workers

    @property
    def now_ns(self) -> int:
        return self.network.now_ns

    def run(self, until: Callable[[], bool] | None = None) -> None:
        self.network.run(until, max_events=MAX_EVENTS)

    def drain(self) -> None:
        self.network.drain()

    def drop(self, port: int, *, up: bool, **which: int) -> None:
        """Lose the first packet of a kind on a cable."""
        self.network.add_script(DROP, link=2 * (port - 1) + (not up), **which)

    @property
    def dropped(self) -> int:
        return int(self.network.link_records["lost"].sum())

    def kill_switch(self) -> None:
        self.network.set_switch_alive(self._hub, False)
