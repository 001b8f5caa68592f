"""Reasons why a job was not faster: the share of each possible limit, from counters."""

from dataclasses import dataclass
from typing import Any

from sim.experiments.experiment import Point
from sim.experiments.netsum_job import NetsumJob
from sim.experiments.peer_job import PeerJob
from sim.experiments.scenario import Scenario
from sim.experiments.work import work_of
from sim.network.engine.engine_records import PS_PER_NS

_BUSY = 0.9  # From this share of the time on, something that is busy is what limits.


@dataclass(frozen=True)
class Limit:
    """A limit of a job."""

    what: str  # "link", "host", "switch", "loss recovery", "straggler", "slots", "steps" or "computing".
    share: float  # Share of the time; `text` explains it.
    text: str  # A sentence with the numbers that it follows from.


def limits_of(
    point: Point, scenario: Scenario, job: NetsumJob | PeerJob, span_ns: tuple[int, int]
) -> list[Limit]:
    """Return what could limit a job, what explains most first."""
    network = scenario.network
    duration_ns = max(span_ns[1] - span_ns[0], 1)
    found = [_busiest_link(scenario, duration_ns)]
    if len(network.switch_records):
        busiest, share, wait_us = _busiest(network.switch_records, duration_ns)
        name = network.nodes[network.switch_records[busiest]["node"]].name
        text = (
            f"switch {name} was busy for {share:.1%} of the time; a packet waited {wait_us:,.1f} us at most"
        )
        found.append(Limit("switch", share, text))
    lost, packets = network.lost_packets, int(network.link_records["packets"].sum())
    settings = job.settings
    work = work_of(settings)
    computing_ns = work.computing_ns * work.iterations
    late_ns = _spread_ns(job)
    # A quorum does not wait for the slow one.
    slow_ns = 0 if settings.quorum or settings.straggler < 0 else max(computing_ns * (settings.slower - 1), 0)
    if job.groups:
        found += _of_workers(job.groups[0], duration_ns, lost, packets)
    if isinstance(job, PeerJob):
        found += _of_flows(scenario, job, duration_ns, lost, packets)
    share = computing_ns / duration_ns
    found.append(Limit("computing", share, f"a worker that is not slow computed for {share:.1%} of the time"))
    found.append(
        Limit(
            "straggler",
            (late_ns + slow_ns) / duration_ns,
            f"of all iterations together, the first worker began {late_ns / 1e3:,.1f} us before the last one, and the slow one "
            f"computed {slow_ns / 1e3:,.1f} us longer: {(late_ns + slow_ns) / duration_ns:.1%} of the time",
        )
    )
    return sorted(found, key=lambda limit: (-_weight(limit), limit.what))


def _weight(limit: Limit) -> float:
    """Return the weight of a limit: a resource that is busy nearly all the time limits first, slots and steps otherwise."""
    if limit.what in ("link", "host", "switch") and limit.share >= _BUSY:
        return 10 + limit.share
    if limit.what in ("slots", "steps"):
        return min(limit.share, 1.0) * 0.5
    return limit.share if limit.what not in ("link", "host", "switch") else limit.share * 0.4


def _busiest_link(scenario: Scenario, duration_ns: int) -> Limit:
    links = scenario.network.link_records
    busiest, share, wait_us = _busiest(links, duration_ns)
    link = links[busiest]
    name = scenario.network.link_name(busiest)
    return Limit(
        "link",
        share,
        f"link {name} carried packets for {share:.1%} of the time ({int(link['bytes']):,} bytes in {int(link['packets']):,} "
        f"packets); a packet waited {wait_us:,.1f} us at most, {int(link['lost_in_queue']):,} found its queue full",
    )


def _busiest(rows: Any, duration_ns: int) -> tuple[int, float, float]:
    """Return the number of the row that was busy for longest, for which share of the time, and its longest wait in us."""
    at = int(rows["busy_total_ps"].argmax())
    busy_ps, wait_ps = int(rows[at]["busy_total_ps"]), int(rows[at]["longest_wait_ps"])
    return at, busy_ps / PS_PER_NS / duration_ns, wait_ps / 1e6


def _spread_ns(job: NetsumJob | PeerJob) -> int:
    times = job.iteration_ns[:-1]
    good = times[(times >= 0).all(axis=1)]
    return int((good.max(axis=1) - good.min(axis=1)).sum()) if len(good) else 0


def _of_workers(job: NetsumJob, duration_ns: int, lost: int, packets: int) -> list[Limit]:
    counters = [worker.core.counters() for worker in job.workers]
    states = [worker.core.state[0] for worker in job.workers]
    busy = max(int(worker.record["busy_total_ps"]) for worker in job.workers) / PS_PER_NS / duration_ns
    resent = sum(each["retransmissions"] for each in counters)
    chunks = sum(each["chunks"] for each in counters) or 1
    # With S chunks under way a worker gets S results in the time that one takes.
    result_ns = max(int(state["min_result_ns"]) for state in states)
    full = job.settings.slots * duration_ns
    used = chunks / len(job.workers) * min(result_ns, duration_ns) / full if result_ns < 1 << 62 else 0.0
    recovery = min(resent / chunks * job.settings.slots, 1.0) * 0.95 if resent else 0.0
    return [
        Limit("host", busy, f"the busiest worker's processor worked for {busy:.1%} of the time"),
        Limit(
            "loss recovery",
            recovery,
            f"{lost:,} of {packets + lost:,} packets were lost and {resent:,} of {chunks:,} chunks sent again, "
            f"of {job.settings.slots} under way at a time",
        ),
        Limit(
            "slots",
            used,
            f"the shortest time from a contribution to its result was {result_ns / 1e3:,.1f} us; with {job.settings.slots} "
            f"slots, results can follow each other every {result_ns / 1e3 / job.settings.slots:,.3f} us",
        ),
    ]


def _of_flows(scenario: Scenario, job: PeerJob, duration_ns: int, lost: int, packets: int) -> list[Limit]:
    flows = scenario.network.flows.rows
    resent, sent, timeouts = (int(flows[name].sum()) for name in ("resends", "packets", "timeouts"))
    share = job.stalled_ns / duration_ns
    return [
        Limit(
            "loss recovery",
            share,
            f"{lost:,} of {packets + lost:,} packets were lost, {resent:,} of {sent:,} sent again, timers expired {timeouts:,} "
            f"times; for {share:.1%} of the time a message of the job waited for a packet that was lost",
        ),
        Limit("steps", 0.5, "steps that wait for each other, and windows that open in slow start"),
    ]
