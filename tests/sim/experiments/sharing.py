"""Eight jobs that come and go: slots shared by the controller's policy, against a static partition and an aggregator on a host.

``python -m tests.sim.experiments.sharing`` prints what docs/simulator-experiments.md shows.

Workers, switch program, controller of jobs, sharing policy and the steps of a move are those that netsum runs. Messages between
controller and workers and writes of table entries take a stated time each.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from controller.jobs import Job
from controller.moves import Move, MoveStep, next_count
from controller.sharing import Claim, jain, share_out
from host_agent.boundary import Position
from host_agent.collectives import AllReduceRequest, Collective
from host_agent.schedule import Outcome
from host_agent.wire import Admission
from host_agent.wire.constants import POOL_SLOTS
from netsum.programs import compiled_program
from netsum.terminal import ProgressRows
from sim.errors import SimulationError
from sim.network.graph import Node
from sim.network.network import Network
from sim.network.parameters import LinkParameters, SwitchCost
from sim.network.worker import Plan, Worker
from tests.sim.network.switch_with_jobs import SwitchWithJobs
from topologies.generated import network as network_of

Arm = Literal["static", "shared", "host"]
ARMS: Final[tuple[Arm, ...]] = get_args(Arm)
LANES: Final = 256
_VALUE_BYTES: Final = 4
_SWITCH: Final = "s1"


@dataclass(frozen=True)
class Setting:
    """The parameters of a simulation."""

    # jobs, workers: number of jobs, and of workers of each.
    jobs: int = 8
    workers: int = 4
    slots: int = 64  # Slots of the switch, a power of two.
    # rate_bps, latency_ns: of every link, and how long a bit is under way on it.
    rate_bps: int = 10_000_000_000
    latency_ns: int = 25_000
    array_bytes: int = 1 << 18  # Size of a float32 array that is summed.
    collectives: tuple[int, int] = (16, 48)  # The fewest and the most sums of a job.
    mean_gap_ns: int = 20_000_000  # Between the arrivals of two jobs.
    # For a message between the controller and a worker, and for the entries of a job.
    control_ns: int = 1_000_000
    host_packet_ns: int = 1_000  # Processor time that an aggregator on a host spends on a packet.


@dataclass(frozen=True)
class Arrival:
    """A job of a trace: when it comes, and how many sums it wants."""

    at_ns: int
    collectives: int


@dataclass(frozen=True)
class SharingResult:
    """Result of one arm."""

    completion_ns: list[int]  # Each job's time from its arrival to its end.
    bytes_of: list[int]  # Bytes that each job has summed.
    end_ns: int
    moves: int
    # Jain's index of the throughputs of the jobs that ran together, over the time that at least two did.
    jain: float

    @property
    def throughput(self) -> float:
        """The mean over all jobs of bytes summed per time, in bytes/s."""
        return mean(each / took * 1e9 for each, took in zip(self.bytes_of, self.completion_ns, strict=True))


def poisson_trace(setting: Setting, seed: int) -> list[Arrival]:
    """Return jobs with exponentially distributed gaps; the same seed gives the same trace."""
    dice = np.random.default_rng(seed)
    gaps = dice.exponential(setting.mean_gap_ns, setting.jobs)
    least, most = setting.collectives
    return [Arrival(int(at), int(dice.integers(least, most + 1))) for at in np.cumsum(gaps) - gaps[0]]


@dataclass
class _SimulatedJob:
    """A job under way."""

    number: int
    arrival: Arrival
    hosts: list[Node]
    placed: Job | None = None
    workers: list[Worker] = field(default_factory=list)
    ended: int = 0
    chunks_before: int = 0
    move: Move | None = None
    entered: bool = False
    first: int = 0

    @property
    def name(self) -> str:
        return f"job{self.number}"

    @property
    def chunks(self) -> int:
        """Chunks that its first worker has completed."""
        counted = self.workers[0].core.counters()["chunks"] if self.workers else 0
        return self.chunks_before + counted


class _Trace:
    """One run of a trace."""

    def __init__(
        self, setting: Setting, arm: Arm, arrivals: Sequence[Arrival], seed: int, program: Path
    ) -> None:
        self.setting, self.arm = setting, arm
        self.network = Network(seed, lanes=LANES)
        on_host = arm == "host"
        self.capacity = POOL_SLOTS if on_host else setting.slots
        switches = [_SWITCH, "aggregator"] if on_host else [_SWITCH]
        hosts = len(arrivals) * setting.workers
        pairs = [*pairwise(switches), *((f"h{each}", _SWITCH) for each in range(1, hosts + 1))]
        topology = network_of("sharing", hosts, switches, pairs, switches[-1])
        adds = topology.switches[topology.aggregator]
        self.programmed = SwitchWithJobs(program, ip=adds.ip, mac=adds.mac, slots=self.capacity)
        self.network.add_topology(
            topology,
            LinkParameters(rate_bps=setting.rate_bps, latency_ns=setting.latency_ns),
            programmed={adds.name: self.programmed},
            switch_costs={"aggregator": SwitchCost(service_ns=setting.host_packet_ns)},
        )
        self.adds = self.network.by_name[adds.name]
        self.jobs = []
        for number, arrival in enumerate(arrivals):
            first = number * setting.workers
            hosts_of = self.network.hosts[first : first + setting.workers]
            self.jobs.append(_SimulatedJob(number, arrival, hosts_of))
        self.moves = 0
        self.completion_ns = [0] * len(self.jobs)
        self.running: list[_SimulatedJob] = []
        self.waiting: list[_SimulatedJob] = []
        self._marks: tuple[int, dict[int, int]] = (0, {})
        self._fair_ns = 0
        self._fairness = 0.0
        for job in self.jobs:
            self.network.pending.add((job.name, 0))
            self.network.at(job.arrival.at_ns, self._arrive, job)

    # Slots

    def _plan(self) -> dict[str, int]:
        """Return how many slots each job is to have."""
        present = [*self.running, *self.waiting]
        if self.arm == "static":
            return {job.name: self.capacity // self.setting.jobs for job in present}
        return share_out(
            [Claim(job.name, (_SWITCH,), self.capacity) for job in present], {_SWITCH: self.capacity}
        )

    def _arrive(self, job: _SimulatedJob) -> None:
        self.waiting.append(job)
        self._later(self._share)

    def _share(self) -> None:
        """Start what can start, and let jobs move whose share has changed."""
        plan = self._plan()
        for job in list(self.waiting):
            if self.programmed.ledger.largest_free >= plan[job.name] > 0:
                self.waiting.remove(job)
                self._measure()
                self.running.append(job)
                endpoints = self.network.endpoints(job.hosts, self.adds)
                job.placed = self.programmed.create_job(job.name, endpoints, plan[job.name])
                self._later(self._enter, job, times=2)
        for job in self.running:
            if job.placed is None or job.move is not None or not job.entered:
                continue
            held = job.placed.slots.count
            most = partial(self.programmed.ledger.would_have, job.name)
            count = next_count(held, plan[job.name], bool(self.waiting), most)
            if count != held:
                job.move = Move(count)
                self._later(self._hold, job, job.move)

    def _hold(self, job: _SimulatedJob, move: Move) -> None:
        """Hold the workers of a job at the boundary of its move, or where they are before that is known."""
        if job not in self.running:
            return  # At the end of its collectives there is nothing to move.
        for worker in job.workers:
            worker.schedule.boundary.hold(None if move.until is None else move.until - job.first)
            self.network.poll_worker(worker.number)
            self._answer(job, worker)

    def _answer(self, job: _SimulatedJob, worker: Worker) -> None:
        """Send the controller how far a worker has come."""
        position = worker.schedule.boundary.position
        self._later(self._take, job, worker, job.first + position.begun, job.first + position.ended)

    def _take(self, job: _SimulatedJob, worker: Worker, begun: int, ended: int) -> None:
        """Process a worker's answer, as the service does."""
        move = job.move
        if move is None or worker not in job.workers or job not in self.running:
            return
        rank = worker.admission.worker_id
        match move.update(range(self.setting.workers), rank, begun, ended):
            case MoveStep.HOLD:
                self._later(self._hold, job, move)
            case MoveStep.CARRY_OUT:
                assert job.placed is not None
                assert move.until is not None
                job.first, job.move, job.entered = move.until, None, False
                job.placed = self.programmed.restart_job(job.placed, slots=move.slots)
                self.moves += 1
                self._later(self._enter, job, times=2)
                self._share()

    def _enter(self, job: _SimulatedJob) -> None:
        """Let a job's workers begin its epoch, after the entries and the message to them."""
        assert job.placed is not None
        if job.workers:
            job.chunks_before = job.chunks
        for worker in job.workers:
            worker.alive = False
        first, last = job.first, job.arrival.collectives
        job.workers = self.network.add_job(
            job.placed,
            job.hosts,
            self.adds,
            lambda rank: [_plan(self.setting, job.number, rank, number) for number in range(first, last)],
            on_ended=self._on_ended(job),
        )
        job.entered = True
        for worker in job.workers:
            worker.schedule.boundary.on_reached = partial(self._on_reached, job, worker)
        self._share()

    # Workers

    def _on_reached(self, job: _SimulatedJob, worker: Worker, position: Position) -> None:
        del position
        self._answer(job, worker)

    def _on_ended(self, job: _SimulatedJob) -> Callable[[Worker, Outcome], None]:
        first = job.first

        def ended(worker: Worker, outcome: Outcome) -> None:
            if outcome.error is not None:
                raise SimulationError(f"{job.name}: {outcome.error}")
            number = first + len(worker.outcomes) - 1
            expected = _sum(self.setting, job.number, number)
            if outcome.result is None or not (outcome.result == expected).all():
                raise SimulationError(f"{job.name}: sum {number} is wrong")
            if number == job.arrival.collectives - 1:
                job.ended += 1
                if job.ended == self.setting.workers:
                    self._end(job)

        return ended

    def _end(self, job: _SimulatedJob) -> None:
        self._measure()
        self.running.remove(job)
        self.completion_ns[job.number] = self.network.now_ns - job.arrival.at_ns
        self.network.pending.remove((job.name, 0))
        self._later(self._free, job)

    def _free(self, job: _SimulatedJob) -> None:
        assert job.placed is not None
        self.programmed.end_job(job.placed)
        self._share()

    # Measuring

    def _measure(self) -> None:
        """Account for the jobs' progress since a job last arrived or ended."""
        then, chunks = self._marks
        now = self.network.now_ns
        done = [job.chunks - chunks[job.number] for job in self.running if job.number in chunks]
        if len(done) > 1 and now > then:
            self._fairness += jain(done) * (now - then)
            self._fair_ns += now - then
        self._marks = now, {job.number: job.chunks for job in self.running}

    def _later(self, action: Callable[..., None], *arguments: Any, times: int = 1) -> None:
        self.network.at(self.network.now_ns + times * self.setting.control_ns, action, *arguments)

    def result(self) -> SharingResult:
        """Run, and return the result."""
        self.network.run()
        return SharingResult(
            self.completion_ns,
            [job.arrival.collectives * self.setting.array_bytes for job in self.jobs],
            max(job.arrival.at_ns + took for job, took in zip(self.jobs, self.completion_ns, strict=True)),
            self.moves,
            self._fairness / self._fair_ns if self._fair_ns else 1.0,
        )


def _values(setting: Setting, job: int, rank: int, number: int) -> npt.NDArray[np.float32]:
    """Return a worker's contribution: small integers, so that sums of floats are exact."""
    elements = setting.array_bytes // _VALUE_BYTES
    return (np.arange(elements, dtype=np.float32) % 97) * (rank + 1) + (job + number)


def _sum(setting: Setting, job: int, number: int) -> npt.NDArray[np.float32]:
    parts = [_values(setting, job, rank, number) for rank in range(setting.workers)]
    total: npt.NDArray[np.float32] = np.sum(parts, axis=0, dtype=np.float32)
    return total


def _plan(setting: Setting, job: int, rank: int, number: int) -> Plan:
    def plan(admission: Admission, sequence: int) -> Collective[Any]:
        values = _values(setting, job, rank, number)
        return AllReduceRequest(values).plan(admission, sequence)

    return plan


def run(setting: Setting, arm: Arm, seed: int, program: Path) -> SharingResult:
    """Simulate a trace of jobs; every sum is checked.

    `arm`: how jobs get slots: shared by the controller's policy, in equal partitions of the switch, or shared on an
    aggregator on a host. `program`: the compiled program of `LANES` lanes, BMv2 JSON. Raises SimulationError if a sum is
    wrong, or a worker failed.
    """
    return _Trace(setting, arm, poisson_trace(setting, seed), seed, program).result()


def main() -> None:
    """Compare the arms on some traces."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--gap", type=float, default=20.0, help="mean milliseconds between arrivals")
    parser.add_argument("--seeds", type=int, default=3, help="number of traces")
    chosen = parser.parse_args()
    setting = Setting(mean_gap_ns=round(chosen.gap * 1e6))
    program = compiled_program(LANES).json
    heads = ("throughput\nMB/s a job", "against\nstatic", "time of a job\nms", "slowest\nms", "Jain\nleast")
    rows = ProgressRows("slots", *(f">{head}" for head in heads), ">moves\na trace")
    static = 0.0
    for arm in ARMS:
        results = [run(setting, arm, seed, program) for seed in range(1, chosen.seeds + 1)]
        throughput = mean(one.throughput for one in results)
        static = static or throughput
        rows.add(
            arm,
            f"{throughput / 1e6:.0f}",
            f"{throughput / static:.2f}",
            f"{mean(mean(one.completion_ns) for one in results) / 1e6:.0f}",
            f"{max(max(one.completion_ns) for one in results) / 1e6:.0f}",
            f"{min(one.jain for one in results):.3f}",
            f"{mean(one.moves for one in results):.1f}",
        )
    rows.print()


if __name__ == "__main__":
    main()
