"""One point: its network, its run, and its results as rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from host_agent.wire.lengths import frame_bytes
from netsum_common.memory_used import total_bytes
from sim.errors import SettingError, SimulationError
from sim.experiments.equal_jobs import alone, copy_counters, equal_jobs
from sim.experiments.estimate import estimate
from sim.experiments.experiment import Point
from sim.experiments.limits import Limit, limits_of
from sim.experiments.netsum_job import NetsumJob
from sim.experiments.peer_job import PeerJob
from sim.experiments.rounds import RoundsJob
from sim.experiments.scenario import Programs, Scenario, apply_event, build
from sim.experiments.settings import EventTable, JobTable
from sim.experiments.trace_job import TraceJob
from sim.experiments.work import Work, work_of
from sim.network.forwarding import FastForward
from sim.network.graph import NetworkError, UnfinishedError

Row = dict[str, Any]
_NS_PER_S = 1e9


class PointFailedError(SimulationError):
    """A point did not come to its end; the message says why."""


@dataclass
class PointResult:
    """Result of a point."""

    rows: list[Row]  # One for each job, iteration and bucket.
    series: list[Row] = field(default_factory=list)  # One for each interval and link, if asked for.
    limits: dict[str, list[Limit]] = field(default_factory=dict)  # For each job, what could have limited it.
    events: int = 0
    left_out: int = 0  # Packets on links that fast-forward has left out.
    equal_jobs: int = 0  # Jobs of which one was run.


class Watch:
    """Recordings of a run: links whose packets are captured, and whether all packets are traced."""

    def __init__(self, captured: tuple[str, ...] = (), traced: bool = False) -> None:
        self.captured = captured
        self.traced = traced
        self.scenario: Scenario | None = None
        self.jobs: list[NetsumJob | PeerJob] = []

    def begin(self, scenario: Scenario, jobs: list[NetsumJob | PeerJob]) -> None:
        """Look at a run that is about to begin."""
        self.scenario, self.jobs = scenario, jobs
        for pattern in self.captured:
            for _, number in scenario.matching(pattern, "--pcap"):
                scenario.network.tap(number)
        if self.traced:
            scenario.network.trace_all()


def run_point(point: Point, programs: Programs, watch: Watch | None = None) -> PointResult:
    """Run a point.

    Raises SettingError: its settings do not fit together. Raises PointFailedError: it did not end within its limit of virtual
    time. Raises WrongSumError: a sum was wrong.
    """
    needed, there = estimate(point.settings).memory_bytes, total_bytes()
    if needed > there:
        raise SettingError(
            f"a run of these jobs needs about {needed / 1e9:,.0f} GB of memory, and this machine has {there / 1e9:,.0f} GB: "
            "expected smaller arrays, or simulated_lanes = 64 with 256 lanes"
        )
    equal = equal_jobs(point.settings) if watch is None else ()
    scenario, once = _build(point, programs), None
    jobs: list[NetsumJob | PeerJob] = []
    for number, job in enumerate(point.settings.job):
        if number not in equal:
            jobs.append(_kind_of(job)(point, number, scenario, work_of(job)))
        elif once is None:
            only = replace(point, settings=alone(point.settings, number))
            once = _build(only, programs)
            jobs.append(NetsumJob(only, 0, once, work_of(job)))
        else:
            jobs.append(jobs[equal[0]])
    for at, event in enumerate(point.settings.event):
        if event.action.endswith("-worker"):
            _schedule_worker_event(point, scenario, jobs, at)
        elif event.action == "switch-restart":
            _schedule_restart(scenario, jobs, event, at)
        elif event.action.startswith("controller-"):
            change = (
                scenario.controlling.leave
                if event.action == "controller-away"
                else scenario.controlling.come_back
            )
            scenario.network.at(event.at, change)
        else:
            apply_event(event, scenario, at)
    series: list[Row] = []
    if point.settings.run.series:
        _start_series(scenario, point.settings.run.series, series)
    if watch is not None:
        watch.begin(scenario, jobs)
    try:
        left_out = _run(point, scenario, once, equal)
    except NetworkError as error:
        raise PointFailedError(str(error)) from None
    result = PointResult(
        [], series, events=scenario.network.events_run, left_out=left_out, equal_jobs=len(equal)
    )
    for run, settings in zip(jobs, point.settings.job, strict=True):
        begun = run.iteration_ns[0]
        span = int(begun[begun >= 0].min(initial=0)), int(max(run.ended_ns.max(), run.iteration_ns.max()))
        limits = limits_of(point, scenario, run, span)
        result.limits[settings.name] = limits
        result.rows += _rows(point, scenario, settings, run, work_of(settings), limits)
    return result


def _build(point: Point, programs: Programs) -> Scenario:
    scenario = build(point, programs)
    if point.settings.run.fast_forward:
        scenario.network.forward = FastForward(scenario.network)
    return scenario


def _run(point: Point, scenario: Scenario, once: Scenario | None, equal: Sequence[int]) -> int:
    """Run the jobs until all are done; equal jobs get the counters of the one that was run in a network of its own.

    Returns how many packets were left out. Raises NetworkError: not all were done.
    """
    errors: list[UnfinishedError] = []
    left_out, limit_ns = 0, point.settings.run.limit
    for each in (scenario, once):
        if each is None:
            continue
        try:
            each.network.run(limit_ns=limit_ns)
        except UnfinishedError as error:
            errors.append(error)
            if each is once:
                names = [point.settings.job[number].name for number in equal]
                error.workers = [(name, rank) for name in names for _, rank in error.workers]
        left_out += each.network.forward.skipped_events if each.network.forward is not None else 0
    if errors:
        raise UnfinishedError(
            chain.from_iterable(error.workers for error in errors),
            sum(error.messages for error in errors),
            limit_ns if any(error.limit_ns for error in errors) else None,
        )
    scenario.network.trace.flush()
    if once is not None:
        left_out += (len(equal) - 1) * int(once.network.link_records["packets"].sum())
        copy_counters(scenario, once, point.settings, equal)
    return left_out


def _kind_of(job: JobTable) -> type[NetsumJob] | type[PeerJob]:
    if job.workload:
        return TraceJob
    if job.contender != "netsum":
        return PeerJob
    return RoundsJob if job.quorum else NetsumJob


def _schedule_worker_event(
    point: Point, scenario: Scenario, jobs: list[NetsumJob | PeerJob], at: int
) -> None:
    event = point.settings.event[at]
    names = [job.name for job in point.settings.job]
    if event.job and event.job not in names:
        raise SettingError(f"event[{at}].job: expected one of {', '.join(names)}, found {event.job!r}")
    job = jobs[names.index(event.job) if event.job else 0]
    if not isinstance(job, NetsumJob):
        raise SettingError(
            f"event[{at}].action: only workers of netsum without a workload can be killed or paused"
        )
    if event.worker >= len(job.workers):
        raise SettingError(f"event[{at}].worker: the job has workers 0 to {len(job.workers) - 1}")

    def change() -> None:
        worker = job.workers[event.worker]
        if event.action == "kill-worker":
            worker.alive = False
            job.give_up(event.worker)
        else:
            worker.deaf = event.action == "pause-worker"

    scenario.network.at(event.at, change)


def _schedule_restart(
    scenario: Scenario, jobs: list[NetsumJob | PeerJob], event: EventTable, at: int
) -> None:
    """Let a switch lose its registers and entries; the controller then starts its jobs in a new epoch."""
    name = scenario.switch_of(event, at).name
    ours = [job for job in jobs if isinstance(job, NetsumJob)]
    there = [job for job in ours if name in job.admitted.parts]
    if ours and not there:
        raise SettingError(f"event[{at}].switch: expected a switch that adds for a job, found {name!r}")

    def restart() -> None:
        if there:
            scenario.programmed[name].clear(job.admitted.parts[name] for job in there)
        for job in there:
            job.interrupt()
            scenario.controlling.request(job.restart)

    scenario.network.at(event.at, restart)


def _start_series(scenario: Scenario, interval_ns: int, rows: list[Row]) -> None:
    network = scenario.network

    def sample() -> None:
        links = network.link_records
        for name, number in scenario.network.link_numbers.items():
            link = links[number]
            waiting_ps = max(int(link["busy_ps"]) - network.now_ps, 0)
            rows.append(
                {
                    "time_ns": network.now_ns,
                    "link": name,
                    "packets": int(link["packets"]),
                    "bytes": int(link["bytes"]),
                    "lost": int(link["lost"] + link["lost_in_queue"]),
                    "queue_bytes": waiting_ps * int(link["rate_bps"]) // 8 // 10**12,
                }
            )
        if not network.all_done():
            network.at(network.now_ns + interval_ns, sample)

    network.at(0, sample)


def bound_ns(point: Point, job: JobTable, size: int) -> float:
    """Return how long in-network aggregation takes at least for this many bytes: the time of its lanes' packets on a link."""
    table = point.settings.topology
    packets = -(-size // (job.lanes * 4))
    return packets * (frame_bytes(job.lanes) + table.framing) * 8 / table.rate * _NS_PER_S


def _rows(
    point: Point,
    scenario: Scenario,
    settings: JobTable,
    job: NetsumJob | PeerJob,
    work: Work,
    limits: list[Limit],
) -> list[Row]:
    table = point.settings.topology
    totals = _totals(scenario, job)
    started, ended, iterations = job.started_ns, job.ended_ns, job.iteration_ns
    rows = []
    for iteration in range(work.iterations):
        whole = _span(iterations[iteration], iterations[iteration + 1])
        for number, bucket in enumerate(work.buckets):
            duration = _span(started[iteration, number], ended[iteration, number])
            of_array = (
                duration if not settings.workload else None
            )  # A trace reduces more than one, and gathers, too.
            row: Row = {
                **{key: _plain(value) for key, value in point.varied},
                "seed": point.seed,
                "job": settings.name,
                "contender": settings.contender,
                "workers": settings.workers,
                "iteration": iteration,
                "bucket": number,
                "size_bytes": bucket.size,
                "rate_bps": table.rate,
                "start_ns": int(started[iteration, number].min()),
                "duration_ns": duration,
                "goodput_bps": None if not of_array else bucket.size * 8 * _NS_PER_S / of_array,
                "share_of_bound": None if not of_array else bound_ns(point, settings, bucket.size) / of_array,
                "iteration_ns": whole,
                "waiting_share": None if not whole else max(0.0, 1 - work.computing_ns / whole),
                "limited_by": limits[0].what,
                "error": job.errors[0] if job.errors else None,
                **totals,
            }
            rows.append(row)
    return rows


def _span(starts: Any, ends: Any) -> int | None:
    """Return the time from the first start to the last end; None if a job did not end."""
    if (np.asarray(starts) < 0).any() or (np.asarray(ends) < 0).any():
        return None
    return int(np.max(ends) - np.min(starts))


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, float, str, bool)) else str(value)


def _totals(scenario: Scenario, job: NetsumJob | PeerJob) -> Row:
    network = scenario.network
    workers = [worker for group in job.groups for worker in (*group.retired, *group.workers)]
    counters = [worker.core.counters() for worker in workers]
    resent = sum(each["retransmissions"] for each in counters)
    sent = sum(each["packets_sent"] for each in counters)
    if isinstance(job, PeerJob):
        flows = network.flows.rows
        resent, sent = resent + int(flows["resends"].sum()), sent + int(flows["packets"].sum())
    return {
        "packets_sent": sent,
        "resent": resent,
        "lost": network.lost_packets,
        "packets_on_links": int(network.link_records["packets"].sum()),
        "sums_checked": sum(group.checked for group in job.groups),
        "members_checked": job.members_checked if isinstance(job, RoundsJob) else 0,
        "late": job.late if isinstance(job, RoundsJob) else 0,
        "events": network.events_run,
    }
