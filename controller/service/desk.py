"""Who may join what, who has left, when a job ends. It reads no socket: `rpc` does, in front of it.

All here runs in the event loop's thread. What jobs hold on switches is `dispatch`'s concern.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controller.errors import ControllerError, JobRefusedError
from controller.jobs import Job
from controller.service.dispatch import Dispatch
from controller.service.network import HostSite, Network
from controller.service.records import JobRecord, WorkerRecord
from controller.service.served import Kind, Outbox, RefusalError, Seat, ServedJob
from controller.service.store import Store
from controller.service.wishes import (
    DisagreementError,
    check_name,
    check_wish,
    check_world,
    host_for,
    wish_of,
)
from controller.switch_tables import CompiledFiles
from host_agent.wire import jobs_pb2
from host_agent.wire.constants import UDP_PORT
from host_agent.wire.jobs_pb2 import ToWorker
from host_agent.wire.slots_wish import IfFull, Slots

log = logging.getLogger(__name__)

ENDED_JOBS_KEPT = 100


@dataclass(frozen=True)
class DeskOptions:
    """What may be set.

    Attributes
    ----------
    slots
        Of a job that does not say how many.
    grace_s
        How long a worker whose stream broke may be away before it has left.
    recovery_s
        The same after a restart of the controller.
    idle_s
        How long a created job waits for a worker.
    report_s
        How often workers report.
    """

    slots: int = 64
    grace_s: float = 2.0
    recovery_s: float = 30.0
    idle_s: float = 600.0
    report_s: float = 1.0


class Desk:
    """All jobs of one controller.

    Parameters
    ----------
    network
        Its switches and hosts.
    store
        Its memory.
    files
        The program its switches are to run.
    options
        See there.
    election_id
        With its switches.
    """

    def __init__(
        self,
        network: Network,
        store: Store,
        files: CompiledFiles,
        options: DeskOptions,
        election_id: int = 1,
    ) -> None:
        self.network = network
        self.options = options
        self.jobs: dict[str, ServedJob] = {}
        self.ended: deque[ServedJob] = deque(maxlen=ENDED_JOBS_KEPT)
        self.streams = 0
        self.left = 0
        self.dispatch = Dispatch(network, store, files, election_id, options.report_s, self.jobs, self._end)
        self._store = store
        self._ending: dict[str, asyncio.Task[None]] = {}
        self.closing = False
        self._restore()

    # For workers

    async def sit_down(self, wish: jobs_pb2.Wish, outbox: Outbox) -> tuple[ServedJob, Seat]:
        """Give a worker its seat; it still has to say where it receives.

        Raises
        ------
        RefusalError
            With the reason.
        """
        await self._until_gone(wish.job)
        host = host_for(self.network, wish, self.jobs.values())
        job = self.jobs.get(wish.job) or self._gather(wish, host)
        try:
            seat = self._seat(job, wish, host, outbox)
        except RefusalError as refusal:
            if isinstance(refusal, DisagreementError) or (not job.seats and not job.record.operated):
                self._end(job, str(refusal), refusal)
            raise
        job.sit(seat)
        if not job.asked_at:
            job.stop_timer()  # It does not idle any more.
        seat.tell(
            ToWorker(
                place=jobs_pb2.Place(
                    host=host.name,
                    ip=host.ip,
                    switch=job.record.switch,
                    lease=seat.worker.lease,
                    grace_s=self.options.grace_s,
                )
            )
        )
        return job, seat

    def receive(self, job: ServedJob, seat: Seat, udp_port: int) -> None:
        """Take down where a worker receives; with the last one the job starts.

        Raises
        ------
        RefusalError
            That is no port.
        """
        if not 0 < udp_port < 0x10000:
            raise RefusalError(Kind.WRONG, f"a UDP port is 1 to 65535, not {udp_port}")
        seat.worker.udp_port = udp_port
        if job.record.operated:
            self._store.save(job.record)
        if not job.missing:
            self.dispatch.ask(job)
        job.tell_gathering()

    def attach(self, asked: jobs_pb2.Reattachment, outbox: Outbox) -> tuple[ServedJob, Seat]:
        """Give a worker its seat back after its stream broke.

        Raises
        ------
        RefusalError
            It has none any more, or shows the wrong lease.
        """
        job = self.jobs.get(asked.job)
        seat = job.seats.get(asked.rank) if job else None
        if job is None or seat is None:
            raise RefusalError(Kind.UNKNOWN, f"job {asked.job} has ended, or worker {asked.rank} has left it")
        if not secrets.compare_digest(seat.worker.lease, asked.lease):
            raise RefusalError(
                Kind.FORBIDDEN, f"that is not the lease of worker {asked.rank} of job {asked.job}"
            )
        if seat.worker.left:
            raise RefusalError(
                Kind.UNKNOWN,
                f"worker {asked.rank} of job {asked.job} came back too late: {seat.worker.left}",
            )
        seat.attach(outbox)
        seat.told_epoch = asked.epoch
        seat.tell(ToWorker(attached=jobs_pb2.Attached()))
        for gone in (each for each in job.seats.values() if each.worker.left):
            seat.tell(_left(gone))
        if not job.record.running:
            job.tell_gathering()
        elif job.admitted_epoch == job.record.epoch:
            job.tell_epoch_to(seat, self.options.report_s)
        return job, seat

    def detach(self, job: ServedJob, seat: Seat, outbox: Outbox) -> None:
        """Note that a worker's stream broke: it may attach again for a while."""
        if seat.outbox is not outbox or self.closing:
            return
        seat.outbox = None
        self._fade(job, seat, self.options.grace_s)

    def leave(self, job: ServedJob, seat: Seat, outbox: Outbox) -> None:
        """Note that a worker says that it leaves."""
        if seat.outbox is outbox:
            self._left(job, seat, "it left")

    # For operators

    async def create(
        self,
        name: str,
        world_size: int,
        slots: Slots | None,
        if_full: IfFull,
        queue_s: float,
        switch: str,
        join_token: str,
        idle_s: float,
    ) -> ServedJob:
        """Make a job that workers then join by its name.

        Raises
        ------
        RefusalError
            With the reason.
        """
        await self._until_gone(name)
        if name in self.jobs:
            raise RefusalError(Kind.TAKEN, f"there is a job named {name} already: end it first")
        check_name(name)
        check_world(world_size)
        record = JobRecord(
            name=name,
            switch=self._switch(switch, None),
            world_size=world_size,
            slots=self.options.slots if slots is None else slots,
            if_full=if_full,
            queue_s=queue_s,
            join_token=join_token,
            idle_s=idle_s or self.options.idle_s,
            operated=True,
            created=time.time(),
        )
        job = ServedJob(record)
        try:
            self.dispatch.reserve(job)
        except JobRefusedError as refusal:
            if if_full != "queue" or not self.dispatch.fits_ever(job):
                raise RefusalError(Kind.FULL, str(refusal)) from None
            job.reason = str(refusal)
        self.jobs[name] = job
        self._store.save(record)
        if record.job_id:
            self.dispatch.idle(job)
        else:
            self.dispatch.ask(job)
        return job

    async def restart(self, name: str) -> ServedJob:
        """Give a job a new epoch; if workers have left it, they may come again first.

        Raises
        ------
        RefusalError
            It has not started.
        ControllerError
            The switch did not take it.
        """
        job = self.find(name)
        if not job.record.running:
            raise RefusalError(
                Kind.NOT_NOW,
                f"job {name} has not started: {job.reason or f'workers {job.missing} have not come'}",
            )
        gone = [rank for rank, seat in job.seats.items() if seat.worker.left]
        job.record.running = False
        job.record.restarts += 1
        job.record.operated = True  # Its workers come and go now as those of a job that was created.
        job.reason = "an operator restarted the job"
        for rank in gone:
            job.vacate(rank)
        self._store.save(job.record)
        if gone:
            held = job.record.held()
            assert isinstance(held, Job)
            with contextlib.suppress(ControllerError):  # Then its next session begins by removing it.
                await self.dispatch.links[job.record.switch].call(lambda tables: tables.withdraw(held))
            job.tell_gathering()
        else:
            self.dispatch.ask(job)
            await self.dispatch.advance(job.record.switch)
        return job

    async def delete(self, name: str) -> None:
        """End a job and wait until its slots are free.

        Raises
        ------
        RefusalError
            There is none of that name.
        """
        self._end(self.find(name), "an operator deleted the job")
        await self._until_gone(name)

    def find(self, name: str) -> ServedJob:
        """Return a job that has not ended.

        Raises
        ------
        RefusalError
            There is none of that name.
        """
        if name not in self.jobs:
            ended = next((job for job in reversed(self.ended) if job.name == name), None)
            raise RefusalError(
                Kind.UNKNOWN,
                f"job {name} has ended: {ended.reason}" if ended else f"there is no job named {name}",
            )
        return self.jobs[name]

    # The whole

    def end_all(self, reason: str) -> None:
        """End all jobs."""
        for job in list(self.jobs.values()):
            self._end(job, reason)

    def close(self) -> None:
        """End the streams, not the jobs: their workers attach to the next controller."""
        self.closing = True
        for job in self.jobs.values():
            job.stop_timer()
            for seat in job.seats.values():
                seat.stop_fading()
                seat.tell(None)
        for task in self._ending.values():
            task.cancel()
        self.dispatch.close()

    # Gathering

    def _gather(self, wish: jobs_pb2.Wish, host: HostSite) -> ServedJob:
        """Begin a job that its first worker describes."""
        check_name(wish.job)
        check_world(wish.world_size)
        if wish.join_token:
            raise RefusalError(
                Kind.UNKNOWN, f"there is no job named {wish.job}, which the token would be for"
            )
        slots, if_full = wish_of(wish.slots, wish.if_full)
        job = ServedJob(
            JobRecord(
                name=wish.job,
                switch=self._switch(wish.switch, host),
                world_size=wish.world_size,
                slots=self.options.slots if slots is None else slots,
                if_full=if_full,
                queue_s=wish.queue_s,
                join_token="",
                idle_s=0.0,
                operated=False,
                created=time.time(),
            )
        )
        self.jobs[wish.job] = job
        return job

    def _seat(self, job: ServedJob, wish: jobs_pb2.Wish, host: HostSite, outbox: Outbox) -> Seat:
        check_wish(job, wish)
        port = self.network.port_to(job.record.switch, host)
        if port is None:
            raise RefusalError(
                Kind.WRONG,
                f"host {host.name} cannot be reached from switch {job.record.switch}, where job {job.name} is added",
            )
        ip, udp_port = host.sends_to or (self.network.switches[job.record.switch].ip, UDP_PORT)
        lease = secrets.token_hex(16)
        worker = WorkerRecord(wish.rank, host.name, host.ip, host.mac, port, 0, ip, udp_port, lease)
        return Seat(worker, outbox)

    def _switch(self, asked: str, host: HostSite | None) -> str:
        if asked and asked not in self.network.switches:
            raise RefusalError(
                Kind.WRONG, f"there is no switch {asked}, but {', '.join(self.network.switches)}"
            )
        return asked or (host.switch if host else next(iter(self.network.switches)))

    # Leaving and ending

    def _fade(self, job: ServedJob, seat: Seat, seconds: float) -> None:
        seat.stop_fading()
        reason = f"its connection was lost for {seconds:g} s"
        seat.fading = self._later(seconds, self._left, job, seat, reason)

    def _left(self, job: ServedJob, seat: Seat, reason: str) -> None:
        if job.ended.is_set() or job.seats.get(seat.rank) is not seat or seat.worker.left:
            return
        seat.stop_fading()
        seat.outbox = None
        self.left += 1
        log.info("worker %d of job %s left: %s", seat.rank, job.name, reason)
        if job.record.running:
            seat.worker.left = reason
            if not any(job.present()):
                self._end(job, "all its workers have left")
                return
            self._store.save(job.record)
            job.tell(_left(seat))
            return
        job.vacate(seat.rank)
        job.asked_at = 0 if job.record.job_id else job.asked_at
        if job.record.operated:
            self._store.save(job.record)
            job.tell_gathering()
            if not job.seats and not job.asked_at:
                self.dispatch.idle(job)
            return
        told = f"worker {seat.rank} left before all workers had come"
        self._end(job, told, RefusalError(Kind.NOT_NOW, told))

    def _end(self, job: ServedJob, reason: str, refusal: RefusalError | None = None) -> None:
        if job.ended.is_set():
            return
        log.info("job %s ends: %s", job.name, reason)
        job.ended.set()
        job.reason = reason
        job.asked_at = 0
        job.stop_timer()
        del self.jobs[job.name]
        self.ended.append(job)
        self._store.forget(job.name)
        for seat in job.present():
            seat.stop_fading()
            seat.tell(refusal or ToWorker(ended=jobs_pb2.Ended(reason=reason)))
            seat.tell(None)
            seat.outbox = None
        self._ending[job.name] = asyncio.get_running_loop().create_task(self._clear(job))

    async def _clear(self, job: ServedJob) -> None:
        try:
            await self.dispatch.clear(job)
        finally:
            del self._ending[job.name]

    async def _until_gone(self, name: str) -> None:
        """Wait until a job that has ended has given its name up."""
        if name in self._ending:
            await asyncio.wait([self._ending[name]])

    def _restore(self) -> None:
        """Take up the jobs of the controller before this one."""
        for record in self._store.jobs():
            ledger = self.dispatch.ledgers.get(record.switch)
            lost = ""
            if ledger is None:
                lost = f"there is no switch {record.switch} any more"
            elif record.lanes not in (0, self.dispatch.lanes):
                lost = f"the switches' program has {self.dispatch.lanes} lanes now"
            if ledger is None or lost:
                log.warning("job %s is given up: %s", record.name, lost)
                self._store.forget(record.name)
                continue
            held = record.held()
            if held is not None:
                ledger.restore(held)
            job = ServedJob(record, admitted_epoch=0)
            for worker in record.workers.values():
                job.seats[worker.rank] = Seat(worker)
            self.jobs[record.name] = job
            if record.running and not any(job.present()):
                self._end(job, "all its workers have left")
                continue
            for seat in job.present():
                self._fade(job, seat, self.options.recovery_s)
            if not job.record.job_id or not (job.record.running or job.missing):
                self.dispatch.ask(job)
            elif not job.seats:
                self.dispatch.idle(job)

    def _later(self, seconds: float, call: Callable[..., None], *arguments: Any) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, call, *arguments)


def _left(seat: Seat) -> ToWorker:
    return ToWorker(left=jobs_pb2.Left(rank=seat.rank, reason=seat.worker.left))
