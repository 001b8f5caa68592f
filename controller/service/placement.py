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
from controller.switch_controller import another_token
from controller.switch_tables import SwitchTables

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
        """Cancel all background tasks."""
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
        """Serve the queue of a switch in the background."""
        self.begin(self.advance(switch))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background."""
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
        """Reserve a job id and slots for a job.

        Raises
        ------
        JobRefusedError
            They are not available; the message gives the reason.
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
        """Start the timer that ends a job without workers."""
        if not job.seats:
            seconds = job.record.idle_s
            job.stop_timer()
            loop = asyncio.get_running_loop()
            job.timer = loop.call_later(seconds, self._end, job, f"no worker joined within {seconds:g} s")

    def _waiting(self, switch: str) -> list[ServiceJob]:
        """Return the jobs that wait for a switch, first come first."""
        found = [job for job in self._jobs.values() if job.record.switch == switch and job.queue_place]
        return sorted(found, key=lambda job: job.queue_place)

    def _waited_too_long(self, job: ServiceJob) -> None:
        if not job.record.job_id:
            told = f"job {job.name} waited {job.record.queue_s:g} s in the queue: {job.reason}"
            self._end(job, told, RefusalError(Kind.TOO_LATE, told))

    async def _serve(self, job: ServiceJob) -> None:
        """Reserve slots for a waiting job, or start it, as far as possible now."""
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
        except ControllerError as fault:  # The connection was lost: the next session installs the job.
            job.reason = str(fault)

    def fits_ever(self, job: ServiceJob) -> bool:
        """Whether an empty switch could grant the job's slots."""
        capacity = self.ledgers[job.record.switch].capacity
        try:
            count = slots_for(job.record.slots, self.lanes, capacity)
        except JobRefusedError:
            return False
        return 0 < count <= capacity and not count & (count - 1)

    async def _start(self, job: ServiceJob, link: SwitchLink) -> None:
        """Give a complete job its next epoch, install it, and tell its workers."""
        held = self._renew(job)
        if not job.record.restarts:
            await link.call(lambda tables: tables.reset_counters(held))
        await link.call(lambda tables: tables.install(held))
        self._admitted(job, held)

    def _renew(self, job: ServiceJob) -> Job:
        """Give a job its next epoch, on disk first."""
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
        """Note that the switch holds an epoch of a job, and send its workers their admissions."""
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
        """Reconcile a switch at the beginning of a session with it."""
        name, site = link.site.name, link.site
        mark = self._store.switch(name)[1]
        cookie = await link.cookie()
        running = [job for job in self._jobs.values() if job.record.switch == name and job.record.running]
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
                with contextlib.suppress(JobRefusedError):
                    self._renew(job)
        held = [(job, present) for job in running if isinstance(present := job.record.held(), Job)]
        flood = {*site.stations.values(), *site.ports} - site.spare_ports
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
        """Remove an ended job from its switch, then free its id and slots."""
        record = job.record
        link, ledger = self.links[record.switch], self.ledgers[record.switch]
        held = record.held()
        try:
            if isinstance(held, Job):
                job.last_counted = await link.call(lambda tables: _counted(tables, held))
                await link.call(lambda tables: tables.withdraw(held))
        except SwitchRefusedError as fault:
            await link.distrust(fault)  # No job receives its slots before the switch is reconciled.
        except ControllerError:
            pass  # No session: the next one begins with a reconciliation, which removes the job.
        if isinstance(held, Job):
            ledger.end(held)
        elif held is not None:
            ledger.release(job.name)
        self.advance_soon(record.switch)

    async def counted(self, jobs: Sequence[ServiceJob]) -> list[Counted]:
        """Return the switches' counts for each job; unavailable counters are omitted."""
        return [await self._counted(job) for job in jobs]

    async def _counted(self, job: ServiceJob) -> Counted:
        held = job.record.held()
        if job.ended.is_set():
            return job.last_counted
        if not isinstance(held, Job):  # The counters of its id still count for the previous job.
            return Counted(dict.fromkeys(COUNTERS, 0))
        try:
            return await self.links[job.record.switch].call(lambda tables: _counted(tables, held))
        except ControllerError:
            return Counted()


def _counted(tables: SwitchTables, held: Job) -> Counted:
    admitted: dict[int, int] = {}
    with contextlib.suppress(SwitchRefusedError):  # The job is being restarted, so it has no entries now.
        admitted = tables.admitted(held)
    return Counted(tables.counters([held.job_id])[held.job_id], admitted)
