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
from controller.errors import (
    ControllerError,
    JobRefusedError,
    SwitchRefusedError,
    SwitchUnreachableError,
)
from controller.jobs import Job, JobLedger, Reservation
from controller.program import CompiledFiles
from controller.service.aggregators import Aggregators
from controller.service.jobs import Counted, Kind, RefusalError, ServiceJob
from controller.service.link import SwitchLink
from controller.service.moves import Move, Moves
from controller.service.network import Network, SwitchSite
from controller.service.shares import Shares, Sharing
from controller.service.sizing import slots_for
from controller.service.states import JobEvent, JobState, LinkState
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


class Restart(Protocol):
    """Gives a running job a new epoch."""

    def __call__(self, job: ServiceJob, reason: str) -> Coroutine[Any, Any, None]:
        """Restart it."""


class SlotsComingError(JobRefusedError):
    """A job's slots are not free yet: others are about to give them up."""


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
    ) -> None:
        self.lanes = files.lanes
        self._files = files
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
        self.shares = Shares(sharing, self.trees, self.ledgers, files.lanes, jobs)
        self.moves = Moves(sharing.move_s, self._carry_out, self.rebalance)
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
        self.moves.close()
        self.aggregators.close()
        for host_link in self._host_links.values():
            host_link.cancel()
        for task in self._tasks:
            task.cancel()

    def ask(self, job: ServiceJob) -> None:
        """Put a job into its queue: for slots, or to be started if all its workers have come."""
        job.stop_timer()
        self._asked += 1
        job.queue_place = self._asked
        if job.asked_at is None:
            job.asked_at = time.monotonic()
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
        if switch in self.aggregators.hosts:
            self._look_again()
            return
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
        self.rebalance()

    def rebalance(self) -> None:
        """Let jobs return from hosts; where jobs share slots, let those with more than their share give up some to others."""
        self._return_home()
        if not self.shares.active:
            return
        plan = self.shares.plan(self._ready)
        waiting = any(job.queue_place and not job.record.job_id for job in self._jobs.values())
        for job in list(self._jobs.values()):
            record = job.record
            share = plan.get(record.name, 0)
            if not record.job_id or record.aggregator or not share or share == record.slot_count:
                continue
            if share > record.slot_count:
                share = record.slot_count if waiting else self.trees.most_slots(record, share)
            if share == record.slot_count:
                continue
            if not record.running:
                self.trees.resize(record, share)
                self._store.save(record)
                for switch in record.slots_on:
                    self._room_on(switch)
            elif self.moves.possible(job):
                self.moves.begin(job, share)

    def _return_home(self) -> None:
        """Move jobs from aggregator hosts to switches that have room for them, the oldest first."""
        if any(job.queue_place and not job.record.job_id for job in self._jobs.values()):
            return
        for job in sorted(self._jobs.values(), key=lambda job: job.record.created):
            if job.record.aggregator and self.moves.possible(job):
                slots = self._room_at_home(job)
                if slots:
                    self.moves.begin(job, slots, home=True)
                    return

    def _room_at_home(self, job: ServiceJob) -> int:
        """Return how many slots a job on a host would get on its switches; 0 if it has to stay."""
        home = job.record.at_home()
        try:
            free = self.trees.free_slots(home, self._ready)
            if self.shares.active:
                share = self.shares.plan(self._ready).get(home.name, 0)
                return min(share, free)
            asked = slots_for(home.slots, self.lanes, min(each.capacity for each in self.ledgers.values()))
        except JobRefusedError:
            return 0
        if home.if_full == "take less":
            asked = min(asked, free)
        return asked if asked <= free else 0

    def _on_a_host(self, job: ServiceJob, refusal: JobRefusedError) -> dict[str, Reservation]:
        """Reserve slots on an aggregator host for a job that no switch takes.

        Raises
        ------
        SlotsComingError
            A host starts its aggregator first.
        JobRefusedError
            There is none, or none has room.
        """
        try:
            return self.trees.reserve_on_host(job.record, self._ready)
        except JobRefusedError:
            coming = self.aggregators.start_one()
        if coming:
            raise SlotsComingError(f"{refusal}; {coming}") from None
        failures = self.aggregators.failures
        raise JobRefusedError(f"{refusal}; {failures}" if failures else str(refusal)) from None

    def _aggregator_started(self, site: SwitchSite) -> None:
        """Connect to the switch that an agent has started."""
        if site.name not in self.ledgers:
            self.ledgers[site.name] = JobLedger(
                self._files.slots, self._files.lanes, self._store.switch(site.name)[0]
            )
        self._turns.setdefault(site.name, asyncio.Lock())
        link = self.links[site.name] = SwitchLink(site, self._files, self._election_id, self._bring_up)
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
        try:
            await self.withdraw(job)
        except SwitchRefusedError as fault:
            for switch in job.parts:  # No job receives its slots before the switches are reconciled.
                await self._link(switch).distrust(fault)
        except ControllerError:
            pass  # No session: the next one begins with a reconciliation.
        if job.state is not JobState.HELD:
            return  # It ended, or is being restarted.
        try:
            if home:
                self._take_home(job, slots)
            else:
                self.trees.resize(job.record, slots)
                job.reason = f"its share changed from {before} to {plural(job.record.slot_count, 'slot')}"
            self._renew(job, goes_on=True)
            await self._install(job)
        except (JobRefusedError, SwitchRefusedError) as refusal:
            self._end(job, str(refusal), RefusalError(Kind.NOT_NOW, str(refusal)))
        except ControllerError as fault:  # The connection was lost: the next session installs the job.
            job.reason = str(fault)
        for switch in {*left, *job.record.slots_on}:
            self._room_on(switch)

    def _take_home(self, job: ServiceJob, slots: int) -> None:
        """Let a job hold slots on its switches in place of those on a host, or those again if there is no room any more."""
        record = job.record
        host = record.aggregator
        self.trees.discard(record)
        record.release()
        try:
            record.hold(self.trees.reserve(record, self._ready, slots))
            job.reason = f"it returned from aggregator {host} to {', '.join(record.slots_on)}"
        except JobRefusedError as refusal:
            record.hold(self.trees.reserve_on_host(record, {host}))
            job.reason = f"it stays on aggregator {host}: {refusal}"

    def reserve(self, job: ServiceJob) -> None:
        """Reserve a job id and slots for a job.

        Raises
        ------
        JobRefusedError
            They are not available; the message gives the reason.
        """
        record = job.record
        try:
            held = self._reserved(job)
        except SlotsComingError:
            raise
        except JobRefusedError as refusal:
            if not self._possible(job):
                raise
            held = self._on_a_host(job, refusal)
        record.hold(held)
        if record.operated:
            self._store.save(record)

    def _reserved(self, job: ServiceJob) -> dict[str, Reservation]:
        """Reserve slots on a job's switches; raises as `reserve`."""
        record = job.record
        if record.if_full == "queue" and not job.queue_place:
            ahead = sum(not one.record.job_id for one in self._waiting(record.queue))
            if ahead:
                where = f"slots of switch {record.switch}" if record.switch else "slots"
                raise JobRefusedError(f"{plural(ahead, 'other job')} already waiting for {where}")
        return self.trees.reserve(record, self._ready, self._share(job))

    def _share(self, job: ServiceJob) -> int | None:
        """Return how many slots a job gets as its share; None where jobs do not share.

        Raises
        ------
        SlotsComingError
            Other jobs must give them up first.
        JobRefusedError
            There is none for it.
        """
        if not self.shares.active:
            return None
        record = job.record
        plan = self.shares.plan(self._ready, job)
        share = plan.get(record.name)
        if share is None:
            return None  # No switches can take it: the reservation says why.
        if share == 0:
            raise JobRefusedError(
                "all slots are shared by jobs that have no more than the least: end a job first"
            )
        free = self.trees.free_slots(record, self._ready)
        if free >= share:
            return share
        givers = [
            one.name
            for one in self._jobs.values()
            if one.record.job_id and one.record.slot_count > plan.get(one.name, 0) > 0
        ]
        if givers:
            raise SlotsComingError(f"it waits for slots that {', '.join(givers)} will give up")
        return free or share

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
            waits = record.if_full == "queue" or isinstance(refusal, SlotsComingError)
            if waits and not record.job_id and (isinstance(refusal, SlotsComingError) or self.fits_ever(job)):
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
        unplaced = job.record.at_home()
        try:
            self.trees.place(unplaced, self._ready)
        except JobRefusedError:
            return False
        return True

    def fits_ever(self, job: ServiceJob) -> bool:
        """Whether empty switches could grant the job's slots."""
        try:
            if job.record.spread and not job.missing:
                self.trees.place(job.record)
        except JobRefusedError:
            return False
        return self._possible(job)

    def _possible(self, job: ServiceJob) -> bool:
        """Whether an empty switch has as many slots as a job requests."""
        capacity = min(ledger.capacity for ledger in self.ledgers.values())
        try:
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
                await self._link(switch).call(lambda tables, part=part: tables.withdraw(part))  # type: ignore[misc]
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
                await self._link(switch).call(lambda tables, part=part: tables.reset_counters(part))  # type: ignore[misc]
        await self._install(job)

    def _renew(self, job: ServiceJob, goes_on: bool = False) -> None:
        """Give a job its next epoch, on disk first; its workers go on in it, or are told of a restart."""
        record = job.record
        self.moves.drop(job)
        record.moved_from = record.epoch if goes_on else 0
        record.moves += goes_on
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

            await self._link(switch).call(install)
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
        if job.waited_s is None:
            job.waited_s = job.waited_so_far_s
        for seat in job.present():
            knows = seat.told_epoch == record.epoch
            job.tell_epoch_to(seat, self._report_s)
            if knows:  # An earlier controller may have held it.
                self.moves.tell(job, seat)
        self.rebalance_soon()
        log.info(
            "job %s runs: epoch %d, %s",
            job.name,
            record.epoch,
            ", ".join(
                f"slots {slots.base} to {slots.end - 1} of switch {switch}"
                for switch, slots in record.slots_on.items()
            ),
        )

    def rebalance_soon(self) -> None:
        """Rebalance once the present event has been dealt with: a job runs, or a worker that a move waited for has attached."""

        async def rebalance() -> None:
            self.rebalance()

        self.begin(rebalance())

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
                await self._link(switch).distrust(fault)
        except ControllerError:
            pass  # No session: the next one begins with a reconciliation, which removes the job.
        switches = job.record.slots_on
        self.trees.discard(job.record)
        for switch in switches:
            self._room_on(switch)

    def _link(self, switch: str) -> SwitchLink:
        """Return the link to a switch; that of an aggregator host goes with its agent.

        Raises
        ------
        SwitchUnreachableError
            There is none any more.
        """
        if switch not in self.links:
            raise SwitchUnreachableError(f"aggregator {switch} is gone")
        return self.links[switch]

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
        tree, parts = job.tree, dict(job.parts)  # The job may move to others meanwhile.
        by_switch: dict[str, dict[str, int]] = {}
        admitted: dict[int, int] = {}
        for branch in tree.branches:
            part = parts[branch.switch]
            packets, of_children = await self._link(branch.switch).call(
                lambda tables, part=part: _counted(tables, part)  # type: ignore[misc]
            )
            by_switch[branch.switch] = packets
            admitted |= {
                rank: of_children[child]
                for rank, child in tree.workers_of(branch).items()
                if child in of_children
            }
        return Counted(by_switch[tree.root], admitted, by_switch)


def _counted(tables: SwitchTables, part: Job) -> tuple[dict[str, int], dict[int, int]]:
    admitted: dict[int, int] = {}
    with contextlib.suppress(SwitchRefusedError):  # The job is being restarted, so it has no entries now.
        admitted = tables.admitted(part)
    return tables.counters([part.job_id])[part.job_id], admitted
