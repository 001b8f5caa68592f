"""What workers ask: a seat in a job, their seat again after a broken connection, to leave.

All here runs in the event loop's thread.
"""

import asyncio
import logging
import secrets
import time

from controller.service.desk import Desk
from controller.service.network import HostSite
from controller.service.records import JobRecord, WorkerRecord
from controller.service.served import Kind, Outbox, RefusalError, Seat, ServedJob
from controller.service.wishes import (
    DisagreementError,
    check_name,
    check_wish,
    check_world,
    host_for,
    same_secret,
    wish_of,
)
from host_agent.wire import jobs_pb2
from host_agent.wire.constants import UDP_PORT
from host_agent.wire.jobs_pb2 import ToWorker

log = logging.getLogger(__name__)


class WorkersDesk:
    """Who sits in which job, and who has left.

    Parameters
    ----------
    desk
        The jobs.

    Attributes
    ----------
    streams
        How many workers are connected.
    left
        How many have left a job, of all jobs.
    """

    def __init__(self, desk: Desk) -> None:
        self.streams = 0
        self.left = 0
        self._desk = desk

    async def sit_down(self, wish: jobs_pb2.Wish, outbox: Outbox) -> tuple[ServedJob, Seat]:
        """Give a worker its seat; it still has to say where it receives.

        Raises
        ------
        RefusalError
            With the reason.
        """
        await self._desk.until_gone(wish.job)
        host = host_for(self._desk.network, wish, self._desk.jobs.values())
        job = self._desk.jobs.get(wish.job) or self._gather(wish, host)
        try:
            seat = self._seat(job, wish, host, outbox)
        except RefusalError as refusal:
            if isinstance(refusal, DisagreementError) or (not job.seats and not job.record.operated):
                self._desk.end(job, str(refusal), refusal)
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
                    grace_s=self._desk.options.grace_s,
                )
            )
        )
        return job, seat

    def receive(self, job: ServedJob, seat: Seat, udp_port: int) -> None:
        """Take down where a worker receives; with the last one the job starts.

        Raises
        ------
        RefusalError
            That is no port, or the job runs already.
        """
        if job.record.running:
            raise RefusalError(Kind.WRONG, "a worker says where it receives before its job runs, and once")
        if not 0 < udp_port < 0x10000:
            raise RefusalError(Kind.WRONG, f"a UDP port is 1 to 65535, not {udp_port}")
        seat.worker.udp_port = udp_port
        if job.record.operated:
            self._desk.store.save(job.record)
        if not job.missing:
            self._desk.dispatch.ask(job)
        job.tell_gathering()

    def attach(self, asked: jobs_pb2.Reattachment, outbox: Outbox) -> tuple[ServedJob, Seat]:
        """Give a worker its seat back after its stream broke.

        Raises
        ------
        RefusalError
            It has none any more, or shows the wrong lease.
        """
        job = self._desk.jobs.get(asked.job)
        seat = job.seats.get(asked.rank) if job else None
        if job is None or seat is None:
            raise RefusalError(Kind.UNKNOWN, f"job {asked.job} has ended, or worker {asked.rank} has left it")
        if not same_secret(seat.worker.lease, asked.lease):
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
            seat.tell(_left_message(gone))
        if not job.record.running:
            job.tell_gathering()
        elif job.admitted_epoch == job.record.epoch:
            job.tell_epoch_to(seat, self._desk.options.report_s)
        return job, seat

    def detach(self, job: ServedJob, seat: Seat, outbox: Outbox) -> None:
        """Note that a worker's stream broke: it may attach again for a while."""
        if seat.outbox is not outbox or self._desk.closing:
            return
        seat.outbox = None
        self.fade(job, seat, self._desk.options.grace_s)

    def leave(self, job: ServedJob, seat: Seat, outbox: Outbox) -> None:
        """Note that a worker says that it leaves."""
        if seat.outbox is outbox:
            self._left(job, seat, "it left")

    async def again(self, job: ServedJob, seat: Seat, asked: jobs_pb2.Again) -> None:
        """Restart a job when a worker's communicator is broken, or when all workers present have asked for a new epoch.

        Raises
        ------
        ControllerError
            The switch did not take it.
        """
        if not job.record.running or asked.epoch != job.record.epoch:
            return  # It has another epoch by now, or is about to.
        seat.asked_again = asked.epoch
        if asked.broken:
            await self._desk.restart(job, f"worker {seat.rank} asked for a new epoch after a failure")
        elif all(each.asked_again == asked.epoch for each in job.present()):
            await self._desk.restart(job, "all workers asked for a new epoch")

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
                switch=self._desk.switch_for(wish.switch, host),
                world_size=wish.world_size,
                slots=self._desk.options.slots if slots is None else slots,
                if_full=if_full,
                queue_s=wish.queue_s,
                join_token="",
                idle_s=0.0,
                operated=False,
                created=time.time(),
            )
        )
        self._desk.jobs[wish.job] = job
        return job

    def _seat(self, job: ServedJob, wish: jobs_pb2.Wish, host: HostSite, outbox: Outbox) -> Seat:
        check_wish(job, wish)
        port = self._desk.network.port_to(job.record.switch, host)
        if port is None:
            raise RefusalError(
                Kind.WRONG,
                f"host {host.name} cannot be reached from switch {job.record.switch}, where job {job.name} is added",
            )
        ip, udp_port = host.sends_to or (self._desk.network.switches[job.record.switch].ip, UDP_PORT)
        lease = secrets.token_hex(16)
        worker = WorkerRecord(wish.rank, host.name, host.ip, host.mac, port, 0, ip, udp_port, lease)
        return Seat(worker, outbox)

    def fade(self, job: ServedJob, seat: Seat, seconds: float) -> None:
        """Let a worker leave unless it attaches in time."""
        seat.stop_fading()
        reason = f"its connection was lost for {seconds:g} s"
        seat.fading = asyncio.get_running_loop().call_later(seconds, self._left, job, seat, reason)

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
                self._desk.end(job, "all its workers have left")
                return
            self._desk.store.save(job.record)
            job.tell(_left_message(seat))
            return
        seat.worker.left = reason
        job.tell(_left_message(seat))
        job.vacate(seat.rank)
        job.asked_at = 0 if job.record.job_id else job.asked_at
        if job.record.operated:
            self._desk.store.save(job.record)
            job.tell_gathering()
            if not job.seats and not job.asked_at:
                self._desk.dispatch.idle(job)
            return
        told = f"worker {seat.rank} left before all workers had come"
        self._desk.end(job, told, RefusalError(Kind.NOT_NOW, told))


def _left_message(seat: Seat) -> ToWorker:
    return ToWorker(left=jobs_pb2.Left(rank=seat.rank, reason=seat.worker.left))
