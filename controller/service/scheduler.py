"""The steps of every job: waiting for slots, getting an epoch and admissions, moving to other slots, restarting, ending.

Each step is one change (`changes`): memory, then the disk, then messages and the switches. Workers are told of an epoch once the
switches have it. After a crash in between, the reconciliation at the beginning of a switch's next session repairs the difference
(`sessions`). While a step waits for switches, its job may take another step; the waiting step checks for that before it
continues.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from controller.errors import ControllerError, JobRefusedError, JobStoreError, SwitchRefusedError
from controller.jobs import another_token
from controller.moves import Move
from controller.service.jobs import Kind, Member, RefusalError, ServiceJob
from controller.service.leaves import Leaves
from controller.service.moves import Moves
from controller.service.registry import JobRegistry
from controller.service.reservations import SlotsComingError
from controller.service.states import JobEvent, JobState
from host_agent.job_api import jobs_pb2
from host_agent.job_api.jobs_pb2 import ToWorker
from host_agent.words import plural


class Scheduler:
    """Takes each job of a controller from one state to the next; no other class does."""

    def __init__(self, registry: JobRegistry) -> None:
        self.registry = registry
        # The moves of running jobs that wait for workers.
        self.moves = Moves(registry.options.move_s, self.rebalance)
        self.changes = registry.changes
        # Whether the controller is stopping; a broken stream then does not make its worker leave.
        self.closing = False
        self._trees = registry.trees
        self._switches = registry.switches
        self._reservations = registry.reservations
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._due: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: dict[str, asyncio.Task[None]] = {}
        registry.aggregators.on_changed = self.serve_all_soon
        self.leaves = Leaves(registry.trees, registry.switches, registry.options.leaf_s, self.serve_all_soon)

    # Waiting

    def enqueue(self, job: ServiceJob) -> None:
        """Put a job into its queue: for slots, or to be started if all its workers have joined."""
        self.changes.after(job.timer.stop)
        if job.asked_at is None:
            job.asked_at = time.monotonic()
        job.reason = self._reservations.ahead_of(job) or job.reason
        job.on(JobEvent.ENQUEUE, job.reason if job.missing else "all its workers have joined")
        if job.record.request.queue_s > 0 and not job.record.job_id:
            self._end_after(job.record.request.queue_s, job, self._waited_too_long)
        self.serve_soon(job.record.queue)

    def idle(self, job: ServiceJob) -> None:
        """Start the timer that ends a job without workers."""
        if not job.members:
            self._end_after(job.record.request.idle_s, job, self._idled_too_long)

    def _end_after(self, seconds: float, job: ServiceJob, end: Callable[[ServiceJob], None]) -> None:
        self.changes.after(job.timer.start, seconds, self.changes.certainly, end, job)

    def _idled_too_long(self, job: ServiceJob) -> None:
        if not job.members:
            self.end(job, f"no worker joined within {job.record.request.idle_s:g} s")

    def serve_soon(self, queue: str) -> None:
        """Serve a queue in the background; calls before the queue is served are merged."""
        if queue not in self._due:
            self._due.add(queue)
            self.begin(self._serve(queue))

    def serve_all_soon(self) -> None:
        """Serve all queues in the background, after a change for which jobs may have waited."""
        for queue in ("", *self._trees.ledgers):
            self.serve_soon(queue)

    def room_on(self, switch: str) -> None:
        """Serve the queues of jobs that may have waited for a switch."""
        if switch in self.registry.aggregators.hosts:
            self.serve_all_soon()
        else:
            self.serve_soon(switch)
            self.serve_soon("")

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the background, where a client's disconnection does not cancel it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, queue: str) -> None:
        """Serve a queue: jobs that hold slots, then those in line for some, first come, first served."""
        async with self._turns[queue]:
            self._due.discard(queue)
            for job in self.registry.queues.waiting(queue):
                with self._faults_noted(job):
                    await self._advance(job)
        self.rebalance()

    async def _advance(self, job: ServiceJob) -> None:
        """Reserve slots for a waiting job, or start it, as far as possible now; raises as `_start`."""
        record, ready = job.record, self._switches.ready
        elsewhere = bool(
            record.spread
            and not record.slots_on.keys() <= ready
            and not job.missing
            and self._reservations.has_other_switches(job)
        )
        if job.state is not JobState.QUEUED:
            # The epoch is being installed; the sessions with the job's switches continue that.
            if elsewhere:
                self.restart(job, job.reason)
            return
        try:
            if not job.missing:
                if self.leaves.wait_for(job):
                    job.send_gathering()
                    return
                wanted = self._trees.leaves_of(record) & ready
                if record.job_id and (elsewhere or wanted != self._trees.leaves_held(record)):
                    self.release(job)
            # The switches of a job on a tree are known only when all its workers have joined.
            if not record.job_id and not (record.spread and job.missing):
                self._reserve(job)
            if job.missing:  # The job waited only for its slots.
                job.leave_queue()
                self.idle(job)
                return
            late = next(
                (self._switches.links[switch] for switch in record.slots_on if switch not in ready), None
            )
            if late is None:
                await self._start(job)
            else:
                job.reason = f"switch {late.site.name} is not ready: {late.reason}"
                job.send_gathering()
        except JobRefusedError as refusal:
            self._let_wait(job, refusal)
            job.send_gathering()

    def add(self, job: ServiceJob) -> None:
        """Add a job that an operator creates; it gets slots or waits for them.

        Raises RefusalError if the job gets no slots and does not wait. Raises JobStoreError if the job cannot be saved.
        """
        with self.changes.of(job):
            try:
                if not job.record.spread:  # The switches of a job on a tree depend on its workers.
                    self._reserve(job)
            except JobRefusedError as refusal:
                self._let_wait(job, refusal)
            self.changes.after(self.registry.jobs.__setitem__, job.name, job)
            self.changes.begin(job.subject, "create", job.state, "an operator created it")
            if job.record.job_id:
                self.idle(job)
            else:
                self.enqueue(job)

    def _let_wait(self, job: ServiceJob, refusal: JobRefusedError) -> None:
        """Note why a job has no slots yet; raise `RefusalError` if it does not wait for them."""
        waits = isinstance(refusal, SlotsComingError) or (
            job.record.request.if_full == "queue" and self._reservations.fits_ever(job)
        )
        if job.record.job_id or not waits:
            raise RefusalError(Kind.FULL, str(refusal)) from None
        job.reason = str(refusal)

    def _reserve(self, job: ServiceJob) -> None:
        """Reserve a job id and slots for a job.

        Raises JobRefusedError with the reason if slots are not available. Raises JobStoreError if the job cannot be saved. After
        either error, no slots are reserved.
        """
        with self.changes.of(job):
            self._reservations.reserve(job)
            self.registry.queues.sort_in(job)

    def release(self, job: ServiceJob) -> None:
        """Free the slots of a job that no switch holds, so that it is placed anew."""
        switches = job.record.slots_on
        with self.changes.of(job):
            self._reservations.release(job)
            self.registry.queues.sort_in(job)
            job.parts = {}
        for switch in switches:
            self.room_on(switch)

    def _waited_too_long(self, job: ServiceJob) -> None:
        if not job.record.job_id:
            reason = f"job {job.name} waited {job.record.request.queue_s:g} s in the queue: {job.reason}"
            self.refuse(job, RefusalError(Kind.TOO_LATE, reason))

    # Epochs

    async def _start(self, job: ServiceJob) -> None:
        """Give a complete job its next epoch, install it on all its switches, and notify its workers."""
        fresh = not job.record.restarts
        self.renew(job)
        if fresh:
            await self._switches.reset_counters(job)
        await self._install(job)

    def renew(self, job: ServiceJob, goes_on: bool = False) -> None:
        """Give a job its next epoch; its workers continue in it if `goes_on`, else they are told of a restart.

        Raises JobRefusedError if its switches cannot admit the job. Raises JobStoreError if the job cannot be saved.
        """
        record = job.record
        with self.changes.of(job):
            self.changes.after(self.moves.drop, job)
            record.moved_from = record.epoch if goes_on else 0
            record.moves += goes_on
            tree = self._trees.place(record)
            job.parts = self._trees.ledgers.admit(
                record.request,
                tree,
                token=another_token(record.token),
                unix_seconds=int(self.registry.options.unix_seconds()),
                last_epoch=record.epoch,
            )
            job.admissions = tree.admissions(job.parts)
            job.tree = tree
            job.installed = {}
            record.hold(job.parts)
            job.on(JobEvent.RENEW, job.reason)

    async def _install(self, job: ServiceJob) -> None:
        """Write a job's epoch to its switches, then notify its workers; raises as `Installation.write`."""
        if await self._switches.write(job):
            self.admit(job)

    async def install_rest(self, job: ServiceJob) -> None:
        """Install a job on its other switches, after one of them has been reconciled."""
        with self._faults_noted(job):
            await self._install(job)  # If this fails, the next session with a switch installs the rest.

    def admit(self, job: ServiceJob) -> None:
        """Note that all switches hold a job's epoch, and send its workers their admissions."""
        record = job.record
        held = (
            f"slots {slots.base} to {slots.end - 1} of switch {switch}"
            for switch, slots in record.slots_on.items()
        )
        job.on(JobEvent.ADMIT, f"epoch {record.epoch}, {', '.join(held)}")
        job.admitted_epoch = record.epoch
        job.resizing = False
        job.timer.stop()
        if job.waited_s is None:
            job.waited_s = job.waited_so_far_s
        for member in job.present():
            knows = member.sent_epoch == record.epoch
            job.send_epoch_to(member, self.registry.options.report_s)
            if knows:  # An earlier controller may have held the worker.
                self.moves.notify(job, member)
        self.rebalance_soon()

    # Moves

    def held(self, job: ServiceJob, member: Member, held: jobs_pb2.Held) -> None:
        """Process the progress of a worker that is held for a move of its job; the last answer begins the move."""
        move = self.moves.on_held(job, member, held)
        if move is not None:
            self.begin(self._move(job, move))

    async def _move(self, job: ServiceJob, move: Move) -> None:
        """Move a held job, whose workers have no collective in progress, to other slots in a new epoch."""
        before, left, epoch = job.record.slot_count, list(job.record.slots_on), job.record.epoch
        await self._switches.vacate(job)
        if job.state is not JobState.HELD or job.record.epoch != epoch:
            return  # The job ended, or is being restarted.
        with self._faults_noted(job):
            try:
                with self.changes.of(job):
                    if move.home:
                        self._reservations.take_home(job, move.slots)
                    else:
                        self._trees.resize(job.record, move.slots)
                        job.reason = (
                            f"its share changed from {before} to {plural(job.record.slot_count, 'slot')}"
                        )
                    self.renew(job, goes_on=True)
            except JobStoreError as fault:  # The old epoch goes back to the switches.
                job.installed = {}
                self.moves.put_off(job, str(fault))
            await self._install(job)
        for switch in {*left, *job.record.slots_on}:
            self.room_on(switch)

    def rebalance_soon(self) -> None:
        """Rebalance after the present event, as a job has started, or a worker that a move waited for has attached."""
        asyncio.get_running_loop().call_soon(self.rebalance)

    def rebalance(self) -> None:
        """Let jobs return from hosts; if jobs share slots, move those whose number of slots is to change."""
        self.changes.certainly(self._rebalance)

    def _rebalance(self) -> None:
        waiting = self.registry.queues.some_wait
        if not waiting:
            self._return_home()
        for job, slots in self.registry.shares.changes(self._switches.ready, waiting):
            if job.record.running:
                if self.moves.possible(job):
                    self.moves.begin(job, slots)
            elif job.state is not JobState.CLEARING:
                with self.changes.of(job):
                    self._trees.resize(job.record, slots)
                for switch in job.record.slots_on:
                    self.room_on(switch)

    def _return_home(self) -> None:
        """Move the oldest job on an aggregator host whose switches have room for it now."""
        for job in sorted(self.registry.jobs.values(), key=lambda job: job.record.created):
            if job.record.aggregator and not job.record.request.on_host and self.moves.possible(job):
                slots = self._reservations.room_at_home(job)
                if slots:
                    self.moves.begin(job, slots, home=True)
                    return

    # Restart and end

    def restart(self, job: ServiceJob, reason: str, resized: bool = False) -> asyncio.Task[None]:
        """Give a running job a new epoch; return a task that ends when the epoch has begun, or the job waits.

        `resized`: the job continues without the workers that have left, and with those that wait to be added. Otherwise, it waits
        for the ranks of workers that have left to join again. Raises JobStoreError if the job cannot be saved; it is unchanged.
        """
        before = job.record.world_size
        with self.changes.of(job):
            if job.record.running:
                job.on(JobEvent.RESTART, reason)
                self.changes.after(self.moves.drop, job)
                job.record.restarts += 1
            # From now on, workers may leave and join as in a job that an operator created.
            job.record.operated = True
            job.reason = reason
            if resized:
                job.resizing = True
                job.renumber()
                job.reason = f"it was resized from {before} to {plural(job.record.world_size, 'worker')}"
                self.changes.after(job.send_newcomers)
                if job.record.request.quorum > job.record.world_size:
                    wanted = plural(job.record.request.quorum, "contribution")
                    self.refuse(job, RefusalError(Kind.NOT_NOW, f"{job.reason}, but its quorum is {wanted}"))
            else:
                for rank in [rank for rank, member in job.members.items() if member.worker.left]:
                    job.remove_member(rank)
            if job.state in (JobState.GATHERING, JobState.QUEUED):  # Resized again before the new epoch.
                self._gather(job)
        return self.begin(self._clear(job))

    async def _clear(self, job: ServiceJob) -> None:
        """Remove a job that is restarted from its switches, and put it into its queue."""
        if job.state is JobState.CLEARING:
            epoch = job.record.epoch
            await self._switches.vacate(job)
            if job.record.epoch == epoch:
                self.changes.certainly(self._cleared, job)
        await self._serve(job.record.queue)

    def _cleared(self, job: ServiceJob) -> None:
        """Continue the restart of a job that no switch holds any more."""
        if job.state is not JobState.CLEARING:
            return
        try:
            with self.changes.of(job):
                job.on(JobEvent.CLEAR)
                self._gather(job)
        except JobStoreError as fault:
            job.reason = str(fault)
            job.send_gathering()
            raise

    def _gather(self, job: ServiceJob) -> None:
        """Queue a job that no switch holds, unless workers are missing; free its slots if it must be placed anew."""
        placed_anew = job.record.spread and (job.resizing or job.missing)
        if job.record.job_id and (
            placed_anew or not job.record.slots_on.keys() <= self._switches.links.keys()
        ):
            self.release(job)
        if job.missing:
            job.send_gathering()
            self.idle(job)
        else:
            self.enqueue(job)

    def end(self, job: ServiceJob, reason: str, refusal: RefusalError | None = None) -> None:
        """End a job. Its workers receive the refusal if there is one, else the reason.

        Raises JobStoreError if the store cannot delete the job, which is unchanged then.
        """
        if job.state is JobState.ENDED:
            return
        with self.changes.of(job):
            job.on(JobEvent.END, reason)
            job.reason = reason
            self.changes.after(self._ended, job)
            for member in job.current_and_joining():
                self.changes.after(member.disconnect_timer.stop)
                member.send(refusal or ToWorker(ended=jobs_pb2.Ended(reason=reason)))
                member.send(None)
                member.outbox = None

    def _ended(self, job: ServiceJob) -> None:
        """Drop a job that the store has deleted, and begin to free its slots."""
        self.moves.drop(job)
        job.timer.stop()
        del self.registry.jobs[job.name]
        self.registry.ended.append(job)
        job.ended.set()
        self._ending[job.name] = asyncio.get_running_loop().create_task(self._free(job))

    def refuse(self, job: ServiceJob, refusal: ControllerError) -> None:
        """End a job that cannot continue."""
        known = refusal if isinstance(refusal, RefusalError) else RefusalError(Kind.NOT_NOW, str(refusal))
        self.changes.certainly(self.end, job, str(refusal), known)

    @contextlib.contextmanager
    def _faults_noted(self, job: ServiceJob) -> Iterator[None]:
        """Handle a failed step of a job in a block: end a refused job, and retry if the job could not be saved.

        A job whose switch cannot be reached continues in the next session with the switch.
        """
        try:
            yield
        except (RefusalError, JobRefusedError, SwitchRefusedError) as refusal:
            self.refuse(job, refusal)
        except JobStoreError as fault:
            job.reason = str(fault)
            job.send_gathering()
            self.changes.again(self.serve_soon, job.record.queue)
        except ControllerError as fault:
            job.reason = str(fault)

    async def _free(self, job: ServiceJob) -> None:
        """Remove an ended job from its switches, then free its id, slots and name."""
        try:
            if job.parts:
                with contextlib.suppress(ControllerError):
                    job.last_counted = await self._switches.count(job)
                await self._switches.vacate(job)
            switches = job.record.slots_on
            self._trees.ledgers.discard(job.name, switches)
            for switch in switches:
                self.room_on(switch)
            if not switches:  # The job may have been the first in line.
                self.serve_soon(job.record.queue)
        finally:
            del self._ending[job.name]

    async def until_gone(self, name: str) -> None:
        """Wait until the name of an ended job is free."""
        while name in self._ending:  # A later job of that name may have ended in the meantime.
            await asyncio.wait([self._ending[name]])

    def end_all(self, reason: str) -> None:
        """End all jobs."""
        for job in list(self.registry.jobs.values()):
            self.end(job, reason)

    def close(self) -> None:
        """End the streams but not the jobs: workers reattach to the next controller."""
        self.closing = True
        for job in self.registry.jobs.values():
            job.timer.stop()
            for member in job.members.values():
                member.disconnect_timer.stop()
                member.send(None)
        for task in (*self._ending.values(), *self._tasks):
            task.cancel()
        self.changes.close()
        self.moves.close()
        self.registry.aggregators.close()
        self.registry.events.save()
