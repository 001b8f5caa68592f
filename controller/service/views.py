"""Jobs and switches as messages of the job API."""

import contextlib
import time
from dataclasses import asdict
from pathlib import Path

from controller.errors import ControllerError
from controller.service.events import NO_RANK, Transition
from controller.service.jobs import Counted, Member, ServiceJob
from controller.service.link import SwitchLink
from controller.service.network import SwitchSite
from controller.service.registry import JobRegistry
from controller.service.states import JobState, LinkState, MemberState
from host_agent.job_api import jobs_pb2
from host_agent.job_api.job_request import plain_fields
from host_agent.job_api.jobs_pb2 import (
    EventView,
    JobView,
    LastRank,
    PortView,
    SwitchView,
    TreeSwitchView,
    WorkerView,
)

_SWITCH_STATES = {
    LinkState.CONNECTING: jobs_pb2.CONNECTING,
    LinkState.READY: jobs_pb2.READY,
    LinkState.STANDBY: jobs_pb2.STANDBY,
}
JOB_STATES = {
    JobState.GATHERING: jobs_pb2.GATHERING,
    JobState.QUEUED: jobs_pb2.QUEUED,
    JobState.INSTALLING: jobs_pb2.QUEUED,
    JobState.RUNNING: jobs_pb2.RUNNING,
    JobState.CLEARING: jobs_pb2.GATHERING,
    JobState.HELD: jobs_pb2.RUNNING,
    JobState.ENDED: jobs_pb2.ENDED,
}
_MEMBER_STATES = {
    MemberState.ATTACHED: jobs_pb2.SEATED,
    MemberState.DETACHED: jobs_pb2.DETACHED,
    MemberState.LEFT: jobs_pb2.LEFT,
}
_OF_THE_RECORD = (
    *("switch", "job_id", "epoch", "slot_base", "slot_count", "lanes", "created", "restarts", "moves"),
)
"""The fields of a `JobView` that are copied from the job's record; others are copied from its request."""
_INTERFACE_COUNTS = {
    "rx_bytes": 0,
    "rx_packets": 1,
    "rx_dropped": 3,
    "tx_bytes": 8,
    "tx_packets": 9,
    "tx_dropped": 11,
}
"""The columns of /proc/net/dev."""


def job_view(job: ServiceJob, counted: Counted) -> JobView:
    """Return a job as it is now."""
    record = job.record
    of_request = {name: getattr(record.request, name) for name in plain_fields(JobView) - {"on_host"}}
    return JobView(
        **of_request | {name: getattr(record, name) for name in _OF_THE_RECORD},
        state=JOB_STATES[job.state],
        reason=job.reason,
        workers=[
            _worker_view(rank, job.members.get(rank), counted.admitted.get(rank))
            for rank in range(record.world_size)
        ],
        counters=counted.packets,
        tree=_tree_view(job, counted),
        waited_s=job.waited_so_far_s,
        on_host=bool(record.aggregator),
        last=LastRank(**asdict(slow)) if (slow := job.last_ranks.slow()) else None,
    )


def event_view(transition: Transition) -> EventView:
    """Return a transition of the event log."""
    values = transition._asdict()
    if transition.rank == NO_RANK:
        del values["rank"]
    return EventView(**values)


def _tree_view(job: ServiceJob, counted: Counted) -> list[TreeSwitchView]:
    """Return the switches of a job's tree from the root to the leaves; none if one switch adds for it."""
    if job.tree is None or len(job.parts) < 2:
        return []
    return [
        TreeSwitchView(
            name=branch.switch,
            parent=job.tree.above.get(branch.switch, ""),
            ranks=sorted(job.tree.workers_of(branch)),
            slot_base=job.parts[branch.switch].slots.base,
            counters=counted.by_switch.get(branch.switch, {}),
        )
        for branch in job.tree.branches
    ]


def add_rates(view: JobView, before: JobView, seconds: float) -> None:
    """Fill in the rates since an earlier view of the same job."""
    if seconds <= 0 or view.epoch != before.epoch:
        return

    def rate(now: int, then: int) -> float:
        return max(0, now - then) / seconds

    if view.counters and before.counters:  # Otherwise the switch did not answer.
        view.contributions_per_s = rate(view.counters["contributions"], before.counters["contributions"])
        view.results_per_s = rate(view.counters["results"], before.counters["results"])
        view.elements_per_s = view.results_per_s * view.lanes
    for now, then in zip(view.workers, before.workers, strict=True):
        if not then.HasField("report"):  # After a restart of the controller workers have yet to report.
            continue
        now.chunks_per_s = rate(now.report.chunks, then.report.chunks)
        now.retransmissions_per_s = rate(now.report.retransmissions, then.report.retransmissions)


async def switch_view(registry: JobRegistry, link: SwitchLink) -> SwitchView:
    """Return a switch as it is now."""
    site, ledger = link.site, registry.trees.ledgers[link.site.name]
    unknown_sources: dict[str, int] = {}
    with contextlib.suppress(ControllerError):  # The view then shows the switch as not ready.
        unknown_sources = (await link.read(lambda tables: tables.counters([0])))[0]
    view = SwitchView(
        name=site.name,
        state=_SWITCH_STATES[link.state],
        reason=link.reason,
        address=site.p4runtime,
        device_id=site.device_id,
        ip=site.ip,
        program=link.files.path.name,
        lanes=link.files.capabilities.lanes,
        slots=ledger.capacity,
        free_slots=ledger.free_slots,
        largest_free=ledger.largest_free,
        jobs=[
            job.name for job in registry.jobs.values() if site.name in (job.record.switch, *job.record.below)
        ],
        ports=_port_views(site),
        unadmitted=unknown_sources,
        reconnects=link.reconnects,
        restarts=link.restarts,
    )
    if link.reconciled is not None:
        at, found = link.reconciled
        view.reconciliation.CopyFrom(jobs_pb2.Reconciliation(at=at, **vars(found)))
    return view


def _worker_view(rank: int, member: Member | None, admitted: int | None) -> WorkerView:
    if member is None:
        return WorkerView(rank=rank, state=jobs_pb2.ABSENT)
    worker = member.worker
    return WorkerView(
        rank=rank,
        state=_MEMBER_STATES[member.state],
        host=worker.host,
        ip=worker.ip,
        udp_port=worker.udp_port,
        switch_port=worker.port,
        seen_s=time.monotonic() - member.reported if member.report is not None else 0.0,
        report=member.report,
        admitted=admitted,
    )


def _port_views(site: SwitchSite) -> list[PortView]:
    """Return a switch's ports, with the kernel's counts for ports that are interfaces of this machine."""
    counted: dict[str, list[str]] = {}
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{site.namespace_pid or 'self'}/net/dev").read_text().splitlines()
        counted = {
            name.strip(): counts.split() for name, _, counts in (line.partition(":") for line in lines)
        }
    return [
        PortView(
            number=number,
            name=port.name,
            peer=port.peer,
            **{
                name: int(counted[port.name][at])
                for name, at in _INTERFACE_COUNTS.items()
                if port.name in counted
            },
        )
        for number, port in sorted(site.ports.items())
    ]
