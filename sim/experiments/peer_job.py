"""A job of a peer in a scenario: messages that wait for each other, iteration after iteration."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.experiments.experiment import Point
from sim.experiments.netsum_job import NetsumJob
from sim.experiments.scenario import Scenario, host_cost
from sim.experiments.work import Work, late_ns, slowness
from sim.network.engine.engine_records import PS_PER_NS
from sim.network.messages import Messages, TransportParameters
from sim.peers.group import PeerGroup, Tokens
from sim.peers.table import COLOCATED, PEERS, PIECES, server_count

_LEAST_WINDOW, _MOST_WINDOW = 32, 1024


def _window(point: Point, scenario: Scenario) -> int:
    """Return twice the bandwidth-delay product in packets, a power of two from 32 to 1,024.

    That fills the path, as a host's pacing does, and builds no long queues.
    """
    transport, table, cost = point.settings.transport, point.settings.topology, host_cost(point)
    hops = 2 if len(scenario.topology.switches) == 1 else 6 if table.kind == "fat-tree" else 4
    frame = transport.segment + transport.headers + table.framing
    packet_ns = frame * 8e9 / table.rate
    latency_ns = max(each.latency_ns for each in scenario.network.link_parameters)
    trip_ns = hops * (latency_ns + point.settings.switch.latency + packet_ns) + cost.send_ns + cost.receive_ns
    packets = math.ceil(4 * trip_ns / packet_ns)
    return min(max(1 << (packets - 1).bit_length(), _LEAST_WINDOW), _MOST_WINDOW)


class PeerJob:
    """The hosts of a job that a peer reduces for; the arrays of times are those of `NetsumJob`."""

    def __init__(self, point: Point, number: int, scenario: Scenario, work: Work) -> None:
        job = point.settings.job[number]
        self.settings = job
        self.errors: list[str] = []
        self.groups: list[NetsumJob] = []  # The parts of the job that use a switch.
        transport = point.settings.transport
        self._messages = Messages(
            scenario.network,
            TransportParameters(
                transport.segment,
                transport.headers,
                transport.headers,
                transport.window or _window(point, scenario),
                transport.initial,
                transport.least_rto,
                transport.ack_every,
            ),
        )
        hosts = scenario.hosts_of(job, server_count(job.contender, job.servers, job.workers))
        workers = hosts[: job.workers]
        self.nodes = workers
        self._group = PeerGroup(
            self._messages,
            workers,
            workers if job.contender in COLOCATED else hosts[job.workers :],
            transport.pieces or PIECES.get(job.contender, 32),
            seed=point.seed,
        )
        shape = (work.iterations, len(work.buckets), job.workers)
        self._started = np.zeros(shape, np.int64)
        self._ended: list[list[Tokens]] = []
        self._begun = np.zeros((work.iterations, job.workers), np.int64)
        self._finished: list[int] = []
        begin: Tokens = [[] for _ in workers]
        for iteration in range(work.iterations):
            begin = self._add_iteration(point, work, iteration, begin)
        self._finished = [tokens[0] for tokens in begin]
        if job.straggler >= 0:
            # The whole host is slow, not only the worker.
            node = scenario.network.node_records[workers[job.straggler].number]
            node["slower"] = round(job.slower * 100)
        self._messages.install()

    def _begin(self, point: Point, iteration: int, begin: Tokens) -> list[int]:
        """Add the begin of an iteration at each worker."""
        job = self.settings
        delay_ns = point.settings.controller.delay if job.contender == "netsum" else 0
        first_ns = job.start + delay_ns if iteration == 0 else 0
        begun = [
            self._messages.wait(host, begin[at], first_ns + late_ns(job, point.seed, at, iteration))
            for at, host in enumerate(self.nodes)
        ]
        self._begun[iteration] = begun
        return begun

    def _add_iteration(self, point: Point, work: Work, iteration: int, begin: Tokens) -> Tokens:
        messages, workers, job = self._messages, self._group.workers, self.settings
        begun = self._begin(point, iteration, begin)
        computed = self._compute(begun, work.computing_ns)
        before: Tokens = [[] for _ in workers]
        ended: list[Tokens] = []
        for number, bucket in enumerate(work.buckets):
            ready = self._compute(begun, work.forward_ns + bucket.ready_ns)
            # All-reduces are done one after the other, in the same order everywhere.
            start = [messages.wait(host, [ready[at], *before[at]]) for at, host in enumerate(workers)]
            self._started[iteration, number] = ready
            group = replace(self._group, density=bucket.density)
            done = PEERS[job.contender](group, bucket.size, [[each] for each in start])
            before = [[messages.wait(host, done[at])] for at, host in enumerate(workers)]
            ended.append(before)
        self._ended.append(ended)
        return [[messages.wait(host, [computed[at], *before[at]])] for at, host in enumerate(workers)]

    def _compute(self, begun: list[int], time_ns: int) -> list[int]:
        """Let each worker compute for a time after it has begun."""
        return [
            self._messages.wait(host, [begun[at]], round(time_ns * slowness(self.settings, at)))
            for at, host in enumerate(self._group.workers)
        ]

    @property
    def stalled_ns(self) -> float:
        """For how long at least one message waited for a packet that was lost."""
        return self._messages.stalled_ps / PS_PER_NS

    @property
    def started_ns(self) -> npt.NDArray[Any]:
        """The earliest possible start of each all-reduce."""
        return self._messages.done_ps(self._started) // PS_PER_NS

    @property
    def ended_ns(self) -> npt.NDArray[Any]:
        """The end of each all-reduce."""
        numbers = np.array([[[each[0] for each in tokens] for tokens in ended] for ended in self._ended])
        return self._messages.done_ps(numbers) // PS_PER_NS

    @property
    def iteration_ns(self) -> npt.NDArray[Any]:
        """Each worker's starts of iterations, and the end of its last one."""
        rows = np.vstack([self._begun, [self._finished]])
        return self._messages.done_ps(rows) // PS_PER_NS
