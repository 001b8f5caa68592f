"""The metrics for Prometheus."""

import asyncio
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from controller.service.from_threads import result_in
from controller.service.jobs import Counted, ServiceJob
from controller.service.registry import JobRegistry
from controller.service.states import LinkState
from controller.service.views import JOB_STATES
from controller.service.workers import JobMembers
from host_agent.job_api import jobs_pb2

WORKER_COUNTERS = (
    *("chunks", "retransmissions", "probes", "duplicates", "stale", "congested", "collectives"),
    *("sparse_collectives", "sparse_blocks", "own_blocks", "union_blocks", "saved_bytes"),
    *("verified", "corrupted"),
)
"""The fields of a worker's report that become metrics."""
_STATES = {jobs_pb2.GATHERING: "gathering", jobs_pb2.QUEUED: "queued", jobs_pb2.RUNNING: "running"}


class Metrics:
    """The metrics, read from the registry at every scrape, in the thread of the registry's event loop."""

    def __init__(self, registry: JobRegistry, workers: JobMembers, loop: asyncio.AbstractEventLoop) -> None:
        self._registry = registry
        self._workers = workers
        self._loop = loop

    async def read(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in the format that an Accept header asks for, and the type of that format."""
        found = CollectorRegistry()
        found.register(_Families(await result_in(self._loop, self._snapshot())))
        try:
            encode, kind = choose_encoder(accept)
        except (TypeError, ValueError):  # Any client can send an invalid header.
            encode, kind = choose_encoder("")
        return encode(found), kind

    async def _snapshot(self) -> list[Any]:
        jobs = list(self._registry.jobs.values())
        counted = list(zip(jobs, await self._registry.switches.counted(jobs), strict=True))
        return [*self._of_jobs(jobs), *self._of_workers(jobs), *_counted(counted), *self._of_switches()]

    def _of_jobs(self, jobs: list[ServiceJob]) -> list[Any]:
        by_state = _gauge("jobs", "Jobs that have not ended", "state")
        for state, name in _STATES.items():
            by_state.add_metric([name], sum(JOB_STATES[job.state] == state for job in jobs))
        slots = _gauge("job_slots", "Slots a job holds", "job", "switch")
        restarts = _counter("job_restarts", "Epochs a job had before", "job")
        moves = _counter("job_moves", "Times a job got other slots while it ran", "job")
        waited = _gauge("job_waited_seconds", "How long a job has waited for its first slots", "job")
        jain = _gauge("slots_jain", "Jain's fairness index of the slots that jobs share")
        jain.add_metric([], self._registry.shares.jain())
        for job in jobs:
            for switch, held in job.record.slots_on.items():
                slots.add_metric([job.name, switch], held.count)
            restarts.add_metric([job.name], job.record.restarts)
            moves.add_metric([job.name], job.record.moves)
            waited.add_metric([job.name], job.waited_so_far_s)
        return [by_state, slots, restarts, moves, waited, jain]

    def _of_workers(self, jobs: list[ServiceJob]) -> list[Any]:
        live = _gauge("worker_attached", "1 if the worker's stream stands", "job", "rank", "host")
        counts = {
            name: _counter(f"worker_{name}", f"Of the worker: {name}", "job", "rank")
            for name in WORKER_COUNTERS
        }
        about = "In which share of its job's newest collectives the worker was the last to begin"
        last = _gauge("worker_last_share", about, "job", "rank")
        window = _gauge("worker_window_bytes", "The worker's congestion window; 0: none", "job", "rank")
        for job in jobs:
            for number, share in job.last_ranks.shares().items():
                last.add_metric([job.name, str(number)], share)
            for member in job.members.values():
                rank = str(member.rank)
                live.add_metric([job.name, rank, member.worker.host], float(member.outbox is not None))
                if member.report is None:
                    continue
                window.add_metric([job.name, rank], member.report.window_bytes)
                for name, family in counts.items():
                    family.add_metric([job.name, rank], getattr(member.report, name))
        gone = _counter("workers_left", "Workers that left a job, of all jobs")
        gone.add_metric([], self._workers.left)
        transitions = _counter("transitions", "Transitions of jobs, members and links", "of", "event")
        for labels, count in self._registry.events.counts.items():
            transitions.add_metric(list(labels), count)
        return [live, last, window, *counts.values(), gone, transitions]

    def _of_switches(self) -> list[Any]:
        ready = _gauge("switch_ready", "1 if the switch takes jobs", "switch")
        slots = _gauge("switch_slots", "Slots the switch has", "switch")
        free = _gauge("switch_slots_free", "Slots that no job holds", "switch")
        reconnects = _counter("switch_reconnects", "Sessions after the first", "switch")
        restarts = _counter("switch_restarts", "Times it came back without its program", "switch")
        for name, link in self._registry.switches.links.items():
            ledger = self._registry.trees.ledgers[name]
            ready.add_metric([name], float(link.state is LinkState.READY))
            slots.add_metric([name], ledger.capacity)
            free.add_metric([name], ledger.free_slots)
            reconnects.add_metric([name], link.reconnects)
            restarts.add_metric([name], link.restarts)
        return [ready, slots, free, reconnects, restarts]


class _Families(Collector):
    def __init__(self, families: list[Any]) -> None:
        self._families = families

    def collect(self) -> list[Any]:
        """Return the families."""
        return self._families


def _gauge(name: str, about: str, *labels: str) -> Any:
    return GaugeMetricFamily(f"netsum_{name}", about, labels=labels)


def _counter(name: str, about: str, *labels: str) -> Any:
    return CounterMetricFamily(f"netsum_{name}", about, labels=labels)


def _counted(counted: list[tuple[ServiceJob, Counted]]) -> list[Any]:
    packets = _counter("job_packets", "Packets the switch counted for a job", "job", "outcome")
    admitted = _counter("worker_admitted", "Packets the switch admitted from a worker", "job", "rank")
    for job, counts in counted:
        for outcome, count in counts.packets.items():
            packets.add_metric([job.name, outcome], count)
        for rank, count in counts.admitted.items():
            admitted.add_metric([job.name, str(rank)], count)
    return [packets, admitted]
