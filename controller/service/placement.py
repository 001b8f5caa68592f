"""What jobs hold on which switch, in which order they receive it, and how it is written there.

The state of a job is written to disk first, then to the switch, and only then are its workers told. After a crash in between,
the reconciliation at the beginning of the next session with the switch repairs the difference.
"""

import asyncio
import contextlib
import logging
import secrets
import time
import zlib
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, Protocol

from controller.entries import COUNTERS
from controller.errors import ControllerError, JobRefusedError, SwitchRefusedError
from controller.jobs import Job, JobLedger
from controller.program import CompiledFiles
from controller.service.jobs import Counted, Kind, RefusalError, ServiceJob
from controller.service.link import SwitchLink
from controller.service.network import Network
from controller.service.sizing import slots_for
from controller.service.states import JobEvent, LinkState
from controller.service.store import Store
from controller.service.trees import JobTrees
from controller.switch_controller import another_token
from controller.switch_tables import SwitchTables
from host_agent.words import plural

log = logging.getLogger(__name__)


class End(Protocol):
    """Ends a job. Its workers receive the refusal if there is one, else the reason."""

    def __call__(self, job: ServiceJob, reason: str, refusal: RefusalError | None = None) -> None:
        """End it."""


class Placement:
    """The switches of a controller, and the slots and entries of its jobs on them.

    Parameters
    ----------
    network
        The switches.
    store
        The persistent state.
    files
        The program for the switches.
    election_id
        The election id at all switches.
    report_s
        Interval of the workers' reports, in seconds.
    jobs
        The jobs that have not ended, by name; only read here.
    end
        Ends a job.
    """

    def __init__(
        self,
        network: Network,
        store: Store,
        files: CompiledFiles,
        election_id: int,
        report_s: float,
        jobs: dict[str, ServiceJob],
        end: End,
    ) -> None:
        self.lanes = files.lanes
        self.ledgers = {
            name: JobLedger(files.slots, files.lanes, store.switch(name)[0]) for name in network.switches
        }
        self.links = {
            name: SwitchLink(site, files, election_id, self._bring_up)
            for name, site in network.switches.items()
        }
        self._store = store
        self._report_s = report_s
        self._jobs = jobs
        self._end = end
        self.trees = JobTrees(network, self.ledgers, files.lanes, files.knows_trees)
        self._program = zlib.crc32(files.device_config())
        self._turns = {queue: asyncio.Lock() for queue in ("", *network.switches)}
        self._asked = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Keep the links to all switches until cancelled."""
        async with asyncio.TaskGroup() as group:
            for link in self.links.values():
                group.create_task(link.run())

    def close(self) -> None:
        """Cancel all background tasks."""
        for task in self._tasks:
            task.cancel()

    def ask(self, job: ServiceJob) -> None:
        """Put a job into its queue: for slots, or to be started if all its workers have come."""
        job.stop_timer()
        self._asked += 1
        job.queue_place = self._asked
        job.on(JobEvent.ENQUEUE)
        if job.record.queue_s > 0 and not job.record.job_id:
            loop = asyncio.get_running_loop()
            job.timer = loop.call_later(job.record.queue_s, self._waited_too_long, job)
        self.advance_soon(job.record.queue)

    def advance_soon(self, queue: str) -> None:
        """Serve a queue in the background."""
        self.begin(self.advance(queue))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _room_on(self, switch: str) -> None:
        """Serve the queues of jobs that may have waited for a switch."""
        self.advance_soon(switch)
        self.advance_soon("")

    async def advance(self, queue: str) -> None:
        """Serve a queue, first come, first served."""
        async with self._turns[queue]:
            behind = False
            for job in self._waiting(queue):
                if not job.queue_place or job.ended.is_set():
                    continue
                if behind and not job.record.job_id and job.record.if_full == "queue":
                    continue
                await self._serve(job)
                behind = behind or (bool(job.queue_place) and not job.record.job_id)

    def reserve(self, job: ServiceJob) -> None:
        """Reserve a job id and slots for a job.

        Raises
        ------
        JobRefusedError
            They are not available; the message gives the reason.
        """
        record = job.record
        if record.if_full == "queue" and not job.queue_place:
            ahead = sum(not one.record.job_id for one in self._waiting(record.queue))
            if ahead:
                where = f"slots of switch {record.switch}" if record.switch else "slots"
                raise JobRefusedError(f"{plural(ahead, 'other job')} already waiting for {where}")
        record.hold(self.trees.reserve(record, self._ready))
        if record.operated:
            self._store.save(record)

    def idle(self, job: ServiceJob) -> None:
        """Start the timer that ends a job without workers."""
        if not job.seats:
            seconds = job.record.idle_s
            job.stop_timer()
            loop = asyncio.get_running_loop()
            job.timer = loop.call_later(seconds, self._end, job, f"no worker joined within {seconds:g} s")

    def _waiting(self, queue: str) -> list[ServiceJob]:
        """Return the jobs that wait in a queue, first come first."""
        found = [job for job in self._jobs.values() if job.record.queue == queue and job.queue_place]
        return sorted(found, key=lambda job: job.queue_place)

    def _waited_too_long(self, job: ServiceJob) -> None:
        if not job.record.job_id:
            told = f"job {job.name} waited {job.record.queue_s:g} s in the queue: {job.reason}"
            self._end(job, told, RefusalError(Kind.TOO_LATE, told))

    async def _serve(self, job: ServiceJob) -> None:
        """Reserve slots for a waiting job, or start it, as far as possible now."""
        record = job.record
        try:
            # Which switches a job on a tree needs is known when all its workers have come.
            if not record.job_id and not (record.spread and job.missing):
                self.reserve(job)
            if job.missing:  # It waited for its slots alone.
                job.leave_queue()
                self.idle(job)
                return
            if record.spread and not record.slots_on.keys() <= self._ready and self._has_other_switches(job):
                with contextlib.suppress(ControllerError):
                    await self.withdraw(job)  # Where it cannot be written, the next session removes the job.
                self.release(job)
                self.reserve(job)
            late = next((self.links[switch] for switch in record.slots_on if switch not in self._ready), None)
            if late is None:
                await self._start(job)
            else:
                job.reason = f"switch {late.site.name} is not ready: {late.reason}"
                job.tell_gathering()
        except JobRefusedError as refusal:
            if record.if_full == "queue" and not record.job_id and self.fits_ever(job):
                job.reason = str(refusal)
                job.tell_gathering()
            else:
                self._end(job, str(refusal), RefusalError(Kind.FULL, str(refusal)))
        except SwitchRefusedError as refusal:
            self._end(job, str(refusal), RefusalError(Kind.NOT_NOW, str(refusal)))
        except ControllerError as fault:  # The connection was lost: the next session installs the job.
            job.reason = str(fault)

    @property
    def _ready(self) -> set[str]:
        """The switches that answer and hold what they should."""
        return {name for name, link in self.links.items() if link.state is LinkState.READY}

    def _has_other_switches(self, job: ServiceJob) -> bool:
        """Whether a job on a tree could be added by switches that are ready."""
        unplaced = replace(job.record, job_id=0, switch="")
        try:
            self.trees.place(unplaced, self._ready)
        except JobRefusedError:
            return False
        return True

    def fits_ever(self, job: ServiceJob) -> bool:
        """Whether empty switches could grant the job's slots."""
        capacity = min(ledger.capacity for ledger in self.ledgers.values())
        try:
            if job.record.spread and not job.missing:
                self.trees.place(job.record)
            count = slots_for(job.record.slots, self.lanes, capacity)
        except JobRefusedError:
            return False
        return 0 < count <= capacity and not count & (count - 1)

    def release(self, job: ServiceJob) -> None:
        """Free what a job on a tree holds: it is to be placed anew."""
        self.trees.discard(job.record)
        switches = job.record.slots_on
        job.record.release()
        job.parts = {}
        for switch in switches:
            self._room_on(switch)

    async def withdraw(self, job: ServiceJob) -> None:
        """Delete what a job's switches hold of it, from the leaves to the root.

        Raises
        ------
        ControllerError
            A switch refused or did not answer; the others have been written.
        """
        faults = []
        for switch, part in reversed(job.parts.items()):
            try:
                await self.links[switch].call(lambda tables, part=part: tables.withdraw(part))  # type: ignore[misc]
            except ControllerError as fault:
                faults.append(fault)
        if faults:
            raise faults[0]

    async def _start(self, job: ServiceJob) -> None:
        """Give a complete job its next epoch, install it on all its switches, and tell its workers."""
        if (
            len(job.parts) > 1
        ):  # No switch takes a packet of the old epoch when the first takes one of the new.
            await self.withdraw(job)
        fresh = not job.record.restarts
        self._renew(job)
        if fresh:
            for switch, part in job.parts.items():
                await self.links[switch].call(lambda tables, part=part: tables.reset_counters(part))  # type: ignore[misc]
        await self._install(job)

    def _renew(self, job: ServiceJob) -> None:
        """Give a job its next epoch, on disk first."""
        record = job.record
        tree = self.trees.place(record)
        token = another_token(record.token)
        job.parts = self.trees.renew(record, tree, token, int(time.time()))
        job.admissions = tree.admissions(job.parts)
        job.tree = tree
        job.installed = {}
        record.hold(job.parts)
        job.on(JobEvent.RENEW)
        self._store.save(record)

    async def _install(self, job: ServiceJob) -> None:
        """Write a job's epoch to the switches that do not have it, from the root to the leaves, then tell its workers.

        Raises
        ------
        ControllerError
            A switch refused or did not answer; the next session with it installs the rest.
        """
        epoch = job.record.epoch
        if not job.record.running:
            return
        for switch, part in job.parts.items():
            if job.installed.get(switch) == epoch:
                continue

            def install(tables: SwitchTables, switch: str = switch, part: Job = part) -> None:
                if job.installed.get(switch) != epoch:  # Else a new session with the switch has written it.
                    tables.install(part)

            await self.links[switch].call(install)
            if not job.record.running or job.record.epoch != epoch:
                return  # It ended, or is being restarted, while the switch was written.
            job.installed[switch] = epoch
        self._admitted(job)

    async def _install_rest(self, job: ServiceJob) -> None:
        """Install a job on its other switches, after one of them has been reconciled."""
        try:
            await self._install(job)
        except SwitchRefusedError as refusal:
            self._end(job, str(refusal), RefusalError(Kind.NOT_NOW, str(refusal)))
        except ControllerError:
            pass  # The next session with that switch installs the rest.

    def _admitted(self, job: ServiceJob) -> None:
        """Note that all switches hold a job's epoch, and send its workers their admissions."""
        record = job.record
        job.on(JobEvent.ADMIT)
        job.admitted_epoch = record.epoch
        job.queue_place = 0
        job.stop_timer()
        job.tell_epoch(self._report_s)
        log.info(
            "job %s runs: epoch %d, %s",
            job.name,
            record.epoch,
            ", ".join(
                f"slots {slots.base} to {slots.end - 1} of switch {switch}"
                for switch, slots in record.slots_on.items()
            ),
        )

    async def _bring_up(self, link: SwitchLink) -> None:
        """Reconcile a switch at the beginning of a session with it."""
        name, site = link.site.name, link.site
        mark = self._store.switch(name)[1]
        cookie = await link.cookie()
        running = [job for job in self._jobs.values() if name in job.parts and job.record.running]
        if cookie == 0 or cookie != mark or mark >> 31 != self._program:
            new_mark = self._program << 31 | secrets.randbits(31)
            await link.set_pipeline(new_mark)
            self._store.mark_switch(name, new_mark)
            if mark:
                link.restarts += 1
                log.warning(
                    "switch %s restarted without its state: %d jobs begin a new epoch", name, len(running)
                )
            for job in running:
                job.reason = f"switch {name} was restarted"
                job.record.restarts += 1
                try:
                    self._renew(job)
                except JobRefusedError as refusal:
                    self._end(job, str(refusal), RefusalError(Kind.NOT_NOW, str(refusal)))
        held = [(job, job.parts[name]) for job in running if job.record.running]
        flood = {*site.stations.values(), *site.ports} - site.spare_ports
        found = await link.do(
            lambda tables: tables.reconcile(
                [part for _, part in held], (site.ip, site.mac), site.stations, flood
            )
        )
        link.reconciled = time.time(), found
        for finding in found.findings:
            log.info("switch %s: %s", name, finding)
        for job, part in held:
            if not job.record.running or job.record.epoch != part.epoch:
                continue  # It ended, or another of its switches was restarted, in the meantime.
            job.installed[name] = part.epoch
            if job.installed.keys() >= job.parts.keys():
                self._admitted(job)
            else:
                self.begin(self._install_rest(job))
        self._room_on(name)

    async def clear(self, job: ServiceJob) -> None:
        """Remove an ended job from its switches, then free its id and slots."""
        try:
            if job.parts:
                with contextlib.suppress(ControllerError):
                    job.last_counted = await self._count(job)
                await self.withdraw(job)
        except SwitchRefusedError as fault:
            for switch in job.parts:  # No job receives its slots before the switches are reconciled.
                await self.links[switch].distrust(fault)
        except ControllerError:
            pass  # No session: the next one begins with a reconciliation, which removes the job.
        switches = job.record.slots_on
        self.trees.discard(job.record)
        for switch in switches:
            self._room_on(switch)

    async def counted(self, jobs: Sequence[ServiceJob]) -> list[Counted]:
        """Return the switches' counts for each job; unavailable counters are omitted."""
        return [await self._counted(job) for job in jobs]

    async def _counted(self, job: ServiceJob) -> Counted:
        if job.ended.is_set():
            return job.last_counted
        if not job.parts:  # The counters of its id still count for the previous job.
            return Counted(dict.fromkeys(COUNTERS, 0))
        try:
            return await self._count(job)
        except ControllerError:
            return Counted()

    async def _count(self, job: ServiceJob) -> Counted:
        """Read what a job's switches have counted; the packets are those of its root.

        Raises
        ------
        ControllerError
            A switch refused or did not answer.
        """
        assert job.tree is not None
        by_switch: dict[str, dict[str, int]] = {}
        admitted: dict[int, int] = {}
        for branch in job.tree.branches:
            part = job.parts[branch.switch]
            packets, of_children = await self.links[branch.switch].call(
                lambda tables, part=part: _counted(tables, part)  # type: ignore[misc]
            )
            by_switch[branch.switch] = packets
            admitted |= {
                rank: of_children[child]
                for rank, child in job.tree.workers_of(branch).items()
                if child in of_children
            }
        return Counted(by_switch[job.tree.root], admitted, by_switch)


def _counted(tables: SwitchTables, part: Job) -> tuple[dict[str, int], dict[int, int]]:
    admitted: dict[int, int] = {}
    with contextlib.suppress(SwitchRefusedError):  # The job is being restarted, so it has no entries now.
        admitted = tables.admitted(part)
    return tables.counters([part.job_id])[part.job_id], admitted
