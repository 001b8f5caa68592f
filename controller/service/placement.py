"""The queues of the jobs that wait for slots or for a switch, and what brings a job from one place to another."""

import asyncio
import contextlib
import time
import zlib
from collections.abc import Coroutine
from typing import Any, Protocol

from controller.errors import (
    ControllerError,
    JobRefusedError,
    SwitchRefusedError,
)
from controller.ledger import JobLedger
from controller.moves import Move
from controller.program import CompiledFiles
from controller.service.aggregators import Aggregators
from controller.service.balance import Balance
from controller.service.epochs import End, Epochs
from controller.service.events import EventLog
from controller.service.installation import Installation
from controller.service.jobs import Kind, RefusalError, ServiceJob
from controller.service.link import SwitchLink
from controller.service.moves import Moves
from controller.service.network import Network, SwitchSite
from controller.service.queues import JobQueues
from controller.service.reservations import Reservations, SlotsComingError
from controller.service.shares import Shares, Sharing
from controller.service.states import JobEvent, JobState
from controller.service.store import Store
from controller.service.trees import JobTrees
from host_agent.words import plural


class Restart(Protocol):
    """Gives a running job a new epoch."""

    def __call__(self, job: ServiceJob, reason: str) -> Coroutine[Any, Any, None]:
        """Restart it."""


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
    sharing
        How jobs share slots.
    restart
        Restarts a job.
    events
        Where the links' transitions are recorded.
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
        sharing: Sharing,
        restart: Restart,
        events: EventLog,
    ) -> None:
        self.lanes = files.lanes
        self.files = files
        self._election_id = election_id
        self._host_links: dict[str, asyncio.Task[None]] = {}
        self.aggregators = Aggregators(
            lambda name: name in network.switches or name in network.hosts,
            self._aggregator_started,
            self._aggregator_lost,
            self._look_again,
            sharing.start_s,
        )
        self._restart = restart
        self._events = events
        self.ledgers = {
            name: JobLedger(files.slots, files.lanes, store.switch(name)[0]) for name in network.switches
        }
        self.installation = Installation(
            {
                name: SwitchLink(site, files, election_id, lambda link: self.epochs.bring_up(link), events)
                for name, site in network.switches.items()
            }
        )
        self.links = self.installation.links
        self._store = store
        self._jobs = jobs
        self._end = end
        self.trees = JobTrees(network, self.ledgers, files.lanes, files.knows_trees)
        self.shares = Shares(sharing, self.trees, self.ledgers, files.lanes, jobs)
        self.moves = Moves(sharing.move_s, self._carry_out, lambda: self.balance.restore())
        self.queues = JobQueues()
        self.reservations = Reservations(
            jobs,
            self.queues,
            store,
            self.installation,
            self.ledgers,
            self.trees,
            self.shares,
            self.aggregators,
            files.lanes,
        )
        self.balance = Balance(
            jobs,
            self.queues,
            store,
            self.reservations,
            self.installation,
            self.trees,
            self.shares,
            self.moves,
            self._room_on,
        )
        self.epochs = Epochs(
            jobs,
            store,
            self.installation,
            self.trees,
            self.moves,
            report_s,
            zlib.crc32(files.device_config()),
            end,
            self.begin,
            self.rebalance_soon,
            self._room_on,
        )
        self._turns = {queue: asyncio.Lock() for queue in ("", *network.switches)}
        self._due: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Keep the links to all switches until cancelled."""
        async with asyncio.TaskGroup() as group:
            for link in self.links.values():
                group.create_task(link.run())

    def close(self) -> None:
        """Cancel all background tasks."""
        self.moves.close()
        self.aggregators.close()
        for host_link in self._host_links.values():
            host_link.cancel()
        for task in self._tasks:
            task.cancel()

    def ask(self, job: ServiceJob) -> None:
        """Put a job into its queue: for slots, or to be started if all its workers have come."""
        job.stop_timer()
        if job.asked_at is None:
            job.asked_at = time.monotonic()
        job.on(JobEvent.ENQUEUE, job.reason if job.missing else "all its workers have joined")
        if job.record.queue_s > 0 and not job.record.job_id:
            loop = asyncio.get_running_loop()
            job.timer = loop.call_later(job.record.queue_s, self._waited_too_long, job)
        self.advance_soon(job.record.queue)

    def advance_soon(self, queue: str) -> None:
        """Serve a queue in the background; requests that come before that begins are one."""
        if queue not in self._due:
            self._due.add(queue)
            self.begin(self.advance(queue))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _room_on(self, switch: str) -> None:
        """Serve the queues of jobs that may have waited for a switch."""
        if switch in self.aggregators.hosts:
            self._look_again()
            return
        self.advance_soon(switch)
        self.advance_soon("")

    async def advance(self, queue: str) -> None:
        """Serve a queue: jobs that hold slots, then those in line for some, first come, first served."""
        async with self._turns[queue]:
            self._due.discard(queue)
            for job in self.queues.waiting(queue):
                await self._serve(job)
        self.balance.restore()

    def _aggregator_started(self, site: SwitchSite) -> None:
        """Connect to the switch that an agent has started."""
        if site.name not in self.ledgers:
            self.ledgers[site.name] = JobLedger(
                self.files.slots, self.files.lanes, self._store.switch(site.name)[0]
            )
        self._turns.setdefault(site.name, asyncio.Lock())
        link = self.links[site.name] = SwitchLink(
            site, self.files, self._election_id, self.epochs.bring_up, self._events
        )
        self.trees.add_aggregator(site, self.aggregators.hosts[site.name].udp_port)
        self._host_links[site.name] = asyncio.get_running_loop().create_task(link.run())

    def _aggregator_lost(self, name: str) -> None:
        """Restart a host's jobs elsewhere: its agent is gone, and its switch with it."""
        self._host_links.pop(name).cancel()
        self.trees.remove_aggregator(name)
        jobs = [job for job in self._jobs.values() if job.record.aggregator == name]
        for job in jobs:
            job.reason = f"aggregator {name} is gone"
            self.release(job)
            if job.record.running:
                self.begin(self._restart(job, job.reason))
            elif job.queue_place:
                self.advance_soon(job.record.queue)
        del self.links[name], self.ledgers[name]

    def _look_again(self) -> None:
        """Serve all queues: what waiting jobs wait for may have changed."""
        for queue in ("", *self.ledgers):
            self.advance_soon(queue)

    def _carry_out(self, job: ServiceJob, move: Move) -> None:
        self.begin(self._move(job, move.slots, move.home))

    async def _move(self, job: ServiceJob, slots: int, home: bool) -> None:
        """Put a held job, whose workers have nothing under way, on other slots in a new epoch."""
        before, left = job.record.slot_count, list(job.record.slots_on)
        await self.installation.vacate(job)
        if job.state is not JobState.HELD:
            return  # It ended, or is being restarted.
        try:
            if home:
                self.reservations.take_home(job, slots)
            else:
                self.trees.resize(job.record, slots)
                job.reason = f"its share changed from {before} to {plural(job.record.slot_count, 'slot')}"
            self.epochs.renew(job, goes_on=True)
            await self.epochs.install(job)
        except (JobRefusedError, SwitchRefusedError) as refusal:
            self._end(job, str(refusal), RefusalError(Kind.NOT_NOW, str(refusal)))
        except ControllerError as fault:  # The connection was lost: the next session installs the job.
            job.reason = str(fault)
        for switch in {*left, *job.record.slots_on}:
            self._room_on(switch)

    def idle(self, job: ServiceJob) -> None:
        """Start the timer that ends a job without workers."""
        if not job.seats:
            seconds = job.record.idle_s
            job.stop_timer()
            loop = asyncio.get_running_loop()
            job.timer = loop.call_later(seconds, self._end, job, f"no worker joined within {seconds:g} s")

    def _waited_too_long(self, job: ServiceJob) -> None:
        if not job.record.job_id:
            reason = f"job {job.name} waited {job.record.queue_s:g} s in the queue: {job.reason}"
            self._end(job, reason, RefusalError(Kind.TOO_LATE, reason))

    async def _serve(self, job: ServiceJob) -> None:
        """Reserve slots for a waiting job, or start it, as far as possible now."""
        record = job.record
        ready = self.installation.ready
        try:
            # Which switches a job on a tree needs is known when all its workers have come.
            if not record.job_id and not (record.spread and job.missing):
                self.reservations.reserve(job)
            if job.missing:  # It waited for its slots alone.
                job.leave_queue()
                self.idle(job)
                return
            if (
                record.spread
                and not record.slots_on.keys() <= ready
                and self.reservations.has_other_switches(job)
            ):
                with contextlib.suppress(ControllerError):  # What cannot be written the next session removes.
                    await self.installation.withdraw(job)
                self.release(job)
                self.reservations.reserve(job)
            late = next((self.links[switch] for switch in record.slots_on if switch not in ready), None)
            if late is None:
                await self.epochs.start(job)
            else:
                job.reason = f"switch {late.site.name} is not ready: {late.reason}"
                job.send_gathering()
        except JobRefusedError as refusal:
            waits = record.if_full == "queue" or isinstance(refusal, SlotsComingError)
            if (
                waits
                and not record.job_id
                and (isinstance(refusal, SlotsComingError) or self.reservations.fits_ever(job))
            ):
                job.reason = str(refusal)
                job.send_gathering()
            else:
                self._end(job, str(refusal), RefusalError(Kind.FULL, str(refusal)))
        except SwitchRefusedError as refusal:
            self._end(job, str(refusal), RefusalError(Kind.NOT_NOW, str(refusal)))
        except ControllerError as fault:  # The connection was lost: the next session installs the job.
            job.reason = str(fault)

    def release(self, job: ServiceJob) -> None:
        """Free what a job on a tree holds: it is to be placed anew."""
        self.trees.discard(job.record)
        switches = job.record.slots_on
        job.record.release()
        self.queues.sort_in(job)
        job.parts = {}
        for switch in switches:
            self._room_on(switch)

    def rebalance_soon(self) -> None:
        """Rebalance once the present event has been dealt with: a job runs, or a worker that a move waited for has attached."""

        async def rebalance() -> None:
            self.balance.restore()

        self.begin(rebalance())

    async def clear(self, job: ServiceJob) -> None:
        """Remove an ended job from its switches, then free its id and slots."""
        if job.parts:
            with contextlib.suppress(ControllerError):
                job.last_counted = await self.installation.count(job)
            await self.installation.vacate(job)
        switches = job.record.slots_on
        self.trees.discard(job.record)
        for switch in switches:
            self._room_on(switch)
