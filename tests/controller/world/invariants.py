"""The invariants of a controller and its switches: after every step, and when all is quiet."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from controller.entries import (
    COPY_REWRITE,
    JOB_PARENT,
    JOB_QUORUM,
    L2_FORWARD,
    SWITCH_ADDRESS,
    WORKER_ADMISSION,
    Entry,
    address_entry,
    admission_entries,
    difference,
    l2_entries,
    parent_entries,
    quorum_entries,
    result_group,
    rewrite_entries,
)
from controller.jobs import Job
from controller.service.jobs import ServiceJob
from controller.service.records import JobRecord
from controller.service.states import JobState, LinkState
from tests.controller.world.process import Process
from tests.controller.world.switches import SimulatedSwitch
from tests.proof.epoch_hypotheses import Epoch

if TYPE_CHECKING:
    from tests.controller.world.play import World

_OF_A_JOB = {
    WORKER_ADMISSION: admission_entries,
    JOB_PARENT: parent_entries,
    JOB_QUORUM: quorum_entries,
    COPY_REWRITE: rewrite_entries,
}


def sound(process: Process, switch: SimulatedSwitch) -> bool:
    """Whether a controller is connected to a switch as primary, so that it must know the switch's entries."""
    link = process.registry.switches.links.get(switch.name)
    return (
        link is not None
        and link.state is LinkState.READY
        and link._writer is not None
        and not link._writer.session.lost
        and link._writer.session.primary
    )


class Watch:
    """The invariants of one controller of a world."""

    def __init__(self, world: "World", process: Process) -> None:
        self._world, self._process = world, process
        self._commits = -1
        self._looks = 0
        self._on_disk: dict[str, JobRecord] = {}
        self._ips = {site.ip: name for name, site in process.options.network.switches.items()}

    def step(self) -> Iterator[str]:
        """Iterate over the invariants that are broken after a step, as sentences."""
        process = self._process
        if not process.serves or process.scheduler.closing:
            return
        for switch in self._world.switches.values():
            yield from (f"switch {switch.name}: {each}" for each in switch.hypotheses.broken)
        yield from self._slots()
        yield from self._disk()
        for job in process.registry.jobs.values():
            yield from self._job(job)

    def _slots(self) -> Iterator[str]:
        registry, scheduler = self._process.registry, self._process.scheduler
        for name, ledger in registry.trees.ledgers.items():
            held = {each: one.slots for each, one in ledger._held.items() if each not in scheduler._ending}
            jobs = {
                job.name: job.record.slots_on[name]
                for job in registry.jobs.values()
                if name in job.record.slots_on and job.name not in scheduler._ending
            }
            if held != jobs:
                yield f"the ledger of {name} has {held}, and the jobs hold {jobs}"
            taken = sorted(one.slots for one in ledger._held.values())
            if tuple(taken) != ledger.allocator.taken:
                yield f"slots of {name} are lost: jobs have {taken} of {ledger.allocator.taken}"
            if any(one.overlaps(other) for one, other in pairwise(taken)):
                yield f"slots of {name} are in two jobs: {taken}"
            ids = [one.job_id for one in ledger._held.values()]
            if len(set(ids)) < len(ids):
                yield f"jobs of {name} share an id: {ids}"

    def _disk(self) -> Iterator[str]:
        registry, disk = self._process.registry, self._process.disk
        self._looks += 1
        changed = disk.commits != self._commits
        if changed:
            self._commits = disk.commits
            disk.quiet = True
            self._on_disk = {record.name: record for record in self._process.store.jobs()}
            disk.quiet = False
        noted = {job.name: job.on_disk for job in registry.jobs.values() if job.on_disk is not None}
        if noted != self._on_disk:
            yield f"the disk has {self._on_disk}, and the controller believes {noted}"
        if self._looks % 8 and not changed:
            return  # A record that is not saved stays so.
        for job in registry.jobs.values():
            kept, saved = job.to_keep(), job.on_disk
            if kept != saved and (kept is None or saved is None or _apart(job, kept) != _apart(job, saved)):
                yield f"job {job.name} is {kept} in memory and {saved} on disk"

    def _job(self, job: ServiceJob) -> Iterator[str]:
        running = job.record.running
        for rank, member in job.members.items():
            if member.rank != rank or job.record.workers.get(rank) is not member.worker:
                yield f"member {rank} of {job.name} is that of rank {member.rank}"
            if member.outbox is None and not member.worker.left and not member.disconnect_timer:
                yield f"job {job.name} waits for rank {rank} without a deadline"
        if running and len(job.admissions) != len(job.members):
            yield f"job {job.name} has {len(job.admissions)} admissions for {len(job.members)} members"
        if running and not any(job.present()):
            yield f"job {job.name} runs without workers"
        if job.record.job_id and running and {*job.parts} != {*job.record.slots_on}:
            yield f"job {job.name} is on {[*job.parts]} and holds slots on {[*job.record.slots_on]}"
        for name, part in job.parts.items() if running else ():
            if (part.epoch, part.token, part.slots) != (
                job.record.epoch,
                job.record.token,
                job.record.slots_on.get(name),
            ):
                yield f"job {job.name} has {part} on {name}, and its record says {job.record}"
        moving = job.state is JobState.HELD and job not in self._process.scheduler.moves._moves
        if job.state in (JobState.RUNNING, JobState.HELD) and not moving:
            for name, part in job.parts.items():
                switch = self._world.switches[name]
                if job.installed.get(name) != part.epoch or not sound(self._process, switch):
                    continue
                there, others = switch.epochs_of(part)
                if there != len(admission_entries(part)):
                    yield f"switch {name} admits {there} children of job {job.name} in epoch {part.epoch}"
                if others:
                    yield f"job {job.name} runs in epoch {part.epoch}, and switch {name} admits {others}"
        if job.state is JobState.GATHERING and not job.members and not job.timer:
            yield f"job {job.name} waits for its first worker without a deadline"
        if job.queue_place and job not in self._in_queues():
            yield f"job {job.name} has place {job.queue_place} in a queue that does not have it"

    def _in_queues(self) -> set[ServiceJob]:
        queues = self._process.registry.queues
        return {job for kind in (queues._in_line, queues._others) for jobs in kind.values() for job in jobs}

    def admits(self, switch: SimulatedSwitch, epoch: Epoch, entry: Entry) -> Iterator[str]:
        """Iterate over what should not be when a switch is about to admit packets of an epoch."""
        process = self._process
        part = self._part(switch.name, epoch)
        if part is None or not sound(process, switch):
            return
        if part.parent is not None:
            parent = self._world.switches[self._ips[part.parent.ip]]
            if sound(process, parent) and not any(
                (above.number, above.token) == (epoch.number, epoch.token)
                for above in parent.admitted.values()
            ):
                yield f"{switch.name} admits epoch {epoch.number} before {parent.name} above it does"

    def _part(self, switch: str, epoch: Epoch) -> Job | None:
        parts = [job.parts.get(switch) for job in self._process.registry.jobs.values()]
        return next((p for p in parts if p and (p.epoch, p.token) == (epoch.number, epoch.token)), None)

    def quiet(self) -> Iterator[str]:
        """Iterate over what does not hold although nothing has gone wrong for long."""
        process = self._process
        registry, scheduler = process.registry, process.scheduler
        for switch in self._world.switches.values():
            if not sound(process, switch):
                yield f"switch {switch.name} is not ready: {registry.switches.links[switch.name].reason}"
            else:
                yield from self._tables(switch)
        for job in registry.jobs.values():
            if job.state in (JobState.INSTALLING, JobState.CLEARING, JobState.HELD):
                yield f"job {job.name} is {job.state.value} for ever: {job.reason}"
            if job.record.running and job.admitted_epoch != job.record.epoch:
                yield f"job {job.name} has epoch {job.record.epoch}, and workers know {job.admitted_epoch}"
            if not job.missing and job.state is JobState.GATHERING:
                yield f"job {job.name} has all its workers, and does not wait for slots"
        if scheduler._ending or scheduler._tasks or scheduler._due:
            yield f"steps do not end: {scheduler._ending}, {scheduler._tasks}, {scheduler._due}"
        if scheduler.changes._owed:
            yield f"changes are owed: {scheduler.changes._owed}"

    def _tables(self, switch: SimulatedSwitch) -> Iterator[str]:
        registry = self._process.registry
        parts = [
            job.parts[switch.name]
            for job in registry.jobs.values()
            if switch.name in job.parts and job.record.running
        ]
        site = registry.switches.links[switch.name].site
        wanted: Mapping[str, list[Entry]] = {
            **{table: [one for part in parts for one in make(part)] for table, make in _OF_A_JOB.items()},
            SWITCH_ADDRESS: [address_entry(site.ip, site.mac)],
            L2_FORWARD: l2_entries(site.stations),
        }
        for table, entries in wanted.items():
            stray, lacking, wrong = difference(switch.writer.read(table), entries)
            if stray or lacking or wrong:
                yield f"{table} of {switch.name}: not its own {stray}, lacking {lacking}, wrong {wrong}"
        groups = {group.group_id: group for group in map(result_group, parts)}
        held = {number: group for number, group in switch.writer.groups().items() if number < 256}
        if {n: sorted(g.replicas) for n, g in groups.items()} != {
            n: sorted(g.replicas) for n, g in held.items()
        }:
            yield f"groups of {switch.name} are {held}, not {groups}"


def _apart(job: ServiceJob, record: JobRecord) -> tuple[object, ...]:
    """Return the values of a record that must be equal in memory and on disk.

    A worker that has not sent its port yet is in memory alone. After a restart of the controller, a job on a tree that does not
    run has no slots, while the disk may still have some: they are given up again with each restart.
    """
    state, workers = dict(vars(record)), record.workers
    del state["workers"]
    if not job.record.running:
        workers = {}
        if record.spread:
            for name in ("switch", "job_id", "slot_base", "slot_count", "below"):
                del state[name]
    return (*sorted((name, repr(value)) for name, value in state.items()), repr(workers))
