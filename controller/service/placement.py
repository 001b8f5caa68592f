"""What jobs hold on which switch, in which order they get it, and how it comes onto the switch.

What a job is to hold is decided and put on disk first, then written to the switch, then told to its workers; whoever
crashes in between is put right by the reconciliation that every new session with a switch begins with.
"""

import asyncio
import contextlib
import logging
import secrets
import time
import zlib
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from controller.entries import COUNTERS
from controller.errors import ControllerError, JobRefusedError, SwitchRefusedError
from controller.jobs import Job, JobLedger
from controller.service.jobs import Counted, Kind, RefusalError, ServiceJob
from controller.service.link import SwitchLink
from controller.service.network import Network
from controller.service.sizing import slots_for
from controller.service.states import JobEvent, LinkState
from controller.service.store import Store
from controller.switch_controller import another_token
from controller.switch_tables import CompiledFiles, SwitchTables

log = logging.getLogger(__name__)


class End(Protocol):
    """Ends a job; its workers are refused if there is a refusal, else told the reason."""

    def __call__(self, job: ServiceJob, reason: str, refusal: RefusalError | None = None) -> None:
        """End it."""


class Placement:
    """The switches of a controller and what its jobs hold there.

    Parameters
    ----------
    network
        The switches.
    store
        Its memory.
    files
        The program the switches are to run.
    election_id
        With the switches.
    report_s
        What workers are told of how often to report.
    jobs
        Those that have not ended, by name; somebody else's to change.
    end
        What ends a job.
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
        self._program = zlib.crc32(files.device_config())
        self._turns = {name: asyncio.Lock() for name in network.switches}
        self._asked = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Keep the links to all switches until cancelled."""
        async with asyncio.TaskGroup() as group:
            for link in self.links.values():
                group.create_task(link.run())

    def close(self) -> None:
        """Stop what is under way."""
        for task in self._tasks:
            task.cancel()

    def ask(self, job: ServiceJob) -> None:
        """Put a job into the queue for its switch: for slots, or to be started if all its workers have come."""
        job.stop_timer()
        self._asked += 1
        job.queue_place = self._asked
        job.on(JobEvent.ENQUEUE)
        if job.record.queue_s > 0 and not job.record.job_id:
            loop = asyncio.get_running_loop()
            job.timer = loop.call_later(job.record.queue_s, self._waited_too_long, job)
        self.advance_soon(job.record.switch)

    def advance_soon(self, switch: str) -> None:
        """Serve the queue of a switch when there is time."""
        self.begin(self.advance(switch))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def advance(self, switch: str) -> None:
        """Serve the queue of a switch, first come, first served."""
        async with self._turns[switch]:
            behind = False
            for job in self._waiting(switch):
                if not job.queue_place or job.ended.is_set():
                    continue
                if behind and not job.record.job_id and job.record.if_full == "queue":
                    continue
                await self._serve(job)
                behind = behind or (bool(job.queue_place) and not job.record.job_id)

    def reserve(self, job: ServiceJob) -> None:
        """Get a job its id and slots.

        Raises
        ------
        JobRefusedError
            Not now; the message says why.
        """
        ledger = self.ledgers[job.record.switch]
        count = slots_for(job.record.slots, self.lanes, ledger.capacity)
        if job.record.if_full == "take less":
            count = min(count, ledger.largest_free or count)
        elif job.record.if_full == "queue" and not job.queue_place:
            ahead = sum(not one.record.job_id for one in self._waiting(job.record.switch))
            if ahead:
                raise JobRefusedError(
                    f"{ahead} jobs are already waiting for slots of switch {job.record.switch}"
                )
        job.record.hold(ledger.reserve(job.name, count))
        if job.record.operated:
            self._store.save(job.record)

    def idle(self, job: ServiceJob) -> None:
        """End a job if no worker comes for a while."""
        if not job.seats:
            seconds = job.record.idle_s
            job.stop_timer()
            loop = asyncio.get_running_loop()
            job.timer = loop.call_later(seconds, self._end, job, f"no worker joined within {seconds:g} s")

    def _waiting(self, switch: str) -> list[ServiceJob]:
        """Return who waits for a switch, in the order they came."""
        found = [job for job in self._jobs.values() if job.record.switch == switch and job.queue_place]
        return sorted(found, key=lambda job: job.queue_place)

    def _waited_too_long(self, job: ServiceJob) -> None:
        if not job.record.job_id:
            told = f"job {job.name} waited {job.record.queue_s:g} s in the queue: {job.reason}"
            self._end(job, told, RefusalError(Kind.TOO_LATE, told))

    async def _serve(self, job: ServiceJob) -> None:
        """Do for a waiting job what can be done."""
        link = self.links[job.record.switch]
        try:
            if not job.record.job_id:
                self.reserve(job)
            if job.missing:  # It waited for its slots alone.
                job.leave_queue()
                self.idle(job)
            elif link.state is LinkState.READY:
                await self._start(job, link)
            else:
                job.reason = f"switch {link.site.name} is not ready: {link.reason}"
                job.tell_gathering()
        except JobRefusedError as refusal:
            if job.record.if_full == "queue" and not job.record.job_id and self.fits_ever(job):
                job.reason = str(refusal)
                job.tell_gathering()
            else:
                self._end(job, str(refusal), RefusalError(Kind.FULL, str(refusal)))
        except SwitchRefusedError as refusal:
            self._end(job, str(refusal), RefusalError(Kind.NOT_NOW, str(refusal)))
        except ControllerError as fault:  # The switch went: its next session brings the job along.
            job.reason = str(fault)

    def fits_ever(self, job: ServiceJob) -> bool:
        """Whether a job could get its slots from an empty switch."""
        capacity = self.ledgers[job.record.switch].capacity
        try:
            count = slots_for(job.record.slots, self.lanes, capacity)
        except JobRefusedError:
            return False
        return 0 < count <= capacity and not count & (count - 1)

    async def _start(self, job: ServiceJob, link: SwitchLink) -> None:
        """Admit a complete job, or admit it again, and tell its workers."""
        held = self._renew(job)
        if not job.record.restarts:
            await link.call(lambda tables: tables.reset_counters(held))
        await link.call(lambda tables: tables.install(held))
        self._admitted(job, held)

    def _renew(self, job: ServiceJob) -> Job:
        """Give a job the next epoch, on disk before anywhere else."""
        record = job.record
        ledger = self.ledgers[record.switch]
        endpoints = [job.seats[rank].worker.endpoint for rank in sorted(job.seats)]
        now = int(time.time())
        present = record.held()
        if isinstance(present, Job):
            held = ledger.renew(
                present, token=another_token(record.token), unix_seconds=now, workers=endpoints
            )
        else:
            token = secrets.randbits(32)
            held = ledger.admit(
                record.name, endpoints, record.slot_count, switch=None, token=token, unix_seconds=now
            )
        record.hold(held)
        job.on(JobEvent.RENEW)
        self._store.save(record)
        return held

    def _admitted(self, job: ServiceJob, held: Job) -> None:
        """Note that the switch holds an epoch of a job, and tell its workers."""
        if not job.record.running or job.record.epoch != held.epoch:
            return  # It ended, or is being restarted, while the switch was written.
        job.on(JobEvent.ADMIT)
        job.admitted_epoch = held.epoch
        job.queue_place = 0
        job.stop_timer()
        job.tell_epoch(self._report_s)
        log.info(
            "job %s runs: epoch %d, slots %d to %d", job.name, held.epoch, held.slots.base, held.slots.end - 1
        )

    async def _bring_up(self, link: SwitchLink) -> None:
        """Make a switch hold what it should, at the beginning of a session with it."""
        name, site = link.site.name, link.site
        mark = self._store.switch(name)[1]
        cookie = await link.do(lambda tables: tables.cookie())
        running = [job for job in self._jobs.values() if job.record.switch == name and job.record.running]
        if cookie == 0 or cookie != mark or mark >> 31 != self._program:
            new_mark = self._program << 31 | secrets.randbits(31)
            await link.do(lambda tables: tables.set_pipeline(new_mark))
            self._store.mark_switch(name, new_mark)
            if mark:
                link.restarts += 1
                log.warning(
                    "switch %s restarted without its state: %d jobs begin a new epoch", name, len(running)
                )
            for job in running:
                job.reason = f"switch {name} was restarted"
                job.record.restarts += 1
                with contextlib.suppress(JobRefusedError):
                    self._renew(job)
        held = [(job, present) for job in running if isinstance(present := job.record.held(), Job)]
        flood = {*site.stations.values(), *site.ports}
        found = await link.do(
            lambda tables: tables.reconcile(
                [present for _, present in held], (site.ip, site.mac), site.stations, flood
            )
        )
        link.reconciled = time.time(), found
        for finding in found.findings:
            log.info("switch %s: %s", name, finding)
        for job, present in held:
            self._admitted(job, present)
        self.advance_soon(name)

    async def clear(self, job: ServiceJob) -> None:
        """Take an ended job off its switch, then free what it held."""
        record = job.record
        link, ledger = self.links[record.switch], self.ledgers[record.switch]
        held = record.held()
        try:
            if isinstance(held, Job):
                job.last_counted = await link.call(lambda tables: _counted(tables, held))
                await link.call(lambda tables: tables.withdraw(held))
        except SwitchRefusedError as fault:
            await link.distrust(fault)  # Its slots are given to nobody before the switch is reconciled.
        except ControllerError:
            pass  # No session: the next one begins by removing what no running job has.
        if isinstance(held, Job):
            ledger.end(held)
        elif held is not None:
            ledger.release(job.name)
        self.advance_soon(record.switch)

    async def counted(self, jobs: Sequence[ServiceJob]) -> list[Counted]:
        """Return what the switches count for each of some jobs; what is not to be had is empty."""
        return [await self._counted(job) for job in jobs]

    async def _counted(self, job: ServiceJob) -> Counted:
        held = job.record.held()
        if job.ended.is_set():
            return job.last_counted
        if not isinstance(held, Job):  # What its id has counted is still the job's that had it before.
            return Counted(dict.fromkeys(COUNTERS, 0))
        try:
            return await self.links[job.record.switch].call(lambda tables: _counted(tables, held))
        except ControllerError:
            return Counted()


def _counted(tables: SwitchTables, held: Job) -> Counted:
    admitted: dict[int, int] = {}
    with contextlib.suppress(SwitchRefusedError):  # Its entries are not there now: it is being restarted.
        admitted = tables.admitted(held)
    return Counted(tables.counters([held.job_id])[held.job_id], admitted)
