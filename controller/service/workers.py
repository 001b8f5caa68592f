"""The calls of workers: join a job, reattach after a broken connection, leave.

All calls run in the event loop's thread.
"""

import secrets

from controller.errors import JobStoreError
from controller.service.jobs import Kind, Member, Outbox, RefusalError, ServiceJob
from controller.service.network import HostSite
from controller.service.records import WorkerRecord
from controller.service.requests import (
    DisagreementError,
    check_join,
    check_quorum_switch,
    check_udp_port,
    check_version,
    check_world,
    host_for,
    read_request,
    same_secret,
)
from controller.service.scheduler import Scheduler
from controller.service.states import JobState, MemberEvent
from host_agent.job_api import jobs_pb2
from host_agent.job_api.jobs_pb2 import ToWorker
from host_agent.wire.constants import UDP_PORT


class JobMembers:
    """The members of all jobs."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.streams = 0  # Number of connected workers.
        self._scheduler = scheduler
        self._registry = scheduler.registry
        self._changes = scheduler.changes

    @property
    def left(self) -> int:
        """Number of workers that have left, over all jobs, since the controller was started."""
        return self._registry.events.counts["member", MemberEvent.LEAVE.value]

    async def join(self, request: jobs_pb2.JoinRequest, outbox: Outbox) -> tuple[ServiceJob, Member]:
        """Make a worker a member of its job; the worker sends its UDP port next.

        Raises RefusalError with the reason.
        """
        check_version(request)
        await self._scheduler.until_gone(request.job)
        host = host_for(
            self._registry.network,
            request,
            self._registry.jobs.values(),
            bool(self._registry.aggregators.hosts),
        )
        job = self._registry.jobs.get(request.job) or self._gather(request, host)
        try:
            member = self._member(job, request, host, outbox)
        except RefusalError as refusal:
            disagrees = isinstance(refusal, DisagreementError) and not request.joins
            if disagrees or (not job.members and not job.record.operated):
                self._scheduler.refuse(job, refusal)
            raise
        if request.joins:
            job.newcomers.append(member)
        else:
            job.add_member(member)
        self._changes.begin(member.subject, "join", member.state, f"from host {host.name}")
        if not job.queue_place and not job.record.running:
            job.timer.stop()  # The job has workers and is no longer idle.
        member.send(
            ToWorker(
                place=jobs_pb2.Place(
                    host=host.name,
                    ip=host.ip,
                    switch=job.record.switch or host.switch or "none",
                    lease=member.worker.lease,
                    grace_s=self._registry.options.grace_s,
                )
            )
        )
        return job, member

    def receive(self, job: ServiceJob, member: Member, udp_port: int) -> None:
        """Store the UDP port of a worker; the last one starts the job.

        Raises RefusalError if the port is invalid, or the job is already running. Raises JobStoreError if it cannot be saved.
        """
        if job.state is JobState.ENDED:
            return
        check_udp_port(udp_port)
        if member in job.newcomers:
            member.worker.udp_port = udp_port
            member.send(ToWorker(gathering=jobs_pb2.Gathering(queued="it waits for the job to be resized")))
            job.send_newcomers()
            return
        if job.record.running:
            raise RefusalError(Kind.WRONG, "a worker sends its receiver once, before its job runs")
        with self._changes.of(job):
            member.worker.udp_port = udp_port
            if not job.missing and job.state is not JobState.CLEARING:
                self._scheduler.enqueue(job)
            job.send_gathering()

    def attach(self, asked: jobs_pb2.Reattachment, outbox: Outbox) -> tuple[ServiceJob, Member]:
        """Reattach a member whose stream broke; `RefusalError` if the worker has left or shows the wrong lease."""
        job = self._registry.jobs.get(asked.job)
        # A job that was resized has given its workers other ranks.
        held = (
            (member for member in job.members.values() if same_secret(member.worker.lease, asked.lease))
            if job
            else iter(())
        )
        member = next(held, job.members.get(asked.rank) if job else None)
        if job is None or member is None:
            raise RefusalError(Kind.UNKNOWN, f"job {asked.job} has ended, or worker {asked.rank} has left it")
        if not same_secret(member.worker.lease, asked.lease):
            raise RefusalError(Kind.FORBIDDEN, f"wrong lease of worker {asked.rank} of job {asked.job}")
        if member.worker.left:
            raise RefusalError(
                Kind.UNKNOWN,
                f"worker {asked.rank} of job {asked.job} reattached too late: {member.worker.left}",
            )
        member.attach(outbox)
        member.sent_epoch = asked.epoch
        member.send(ToWorker(attached=jobs_pb2.Attached()))
        for gone in (each for each in job.members.values() if each.worker.left):
            member.send(_left_message(gone))
        if not job.record.running:
            job.send_gathering()
        elif job.state in (JobState.RUNNING, JobState.HELD):
            job.send_epoch_to(member, self._registry.options.report_s)
            job.send_newcomers()
            self._scheduler.moves.notify(job, member)
            self._scheduler.rebalance_soon()
        return job, member

    def detach(self, job: ServiceJob, member: Member, outbox: Outbox) -> None:
        """Note that a worker's stream broke; it may reattach within the grace period."""
        if member.outbox is not outbox or self._scheduler.closing:
            return
        if member in job.newcomers:
            self._left(job, member, "its connection was lost")
            return
        member.detach()
        self.start_disconnect_timer(job, member, self._registry.options.grace_s)

    def leave(self, job: ServiceJob, member: Member, outbox: Outbox) -> None:
        """Note that a worker leaves on its own."""
        if member.outbox is outbox:
            self._changes.certainly(self._left, job, member, "it left")

    def no_leaf(self, member: Member, answer: jobs_pb2.NoLeaf) -> None:
        """Let jobs proceed without the leaf that ranks on a worker's machine were to share."""
        if answer.name == member.worker.leaf:
            self._scheduler.leaves.fail(
                answer.name, f"{answer.reason} (worker {member.rank} of job {member.job})"
            )

    def held(self, job: ServiceJob, member: Member, held: jobs_pb2.Held) -> None:
        """Process the progress of a worker that is held for a move of its job."""
        self._scheduler.held(job, member, held)

    def again(self, job: ServiceJob, member: Member, asked: jobs_pb2.Again) -> None:
        """Restart a job if a worker's communicator is broken, or all present workers have asked for a new epoch or a resize."""
        if not job.record.running or asked.epoch != job.record.epoch:
            return  # The job already has another epoch, or will have one soon.
        try:
            if asked.resize:
                member.asked_resize = asked.epoch
                self._resize(job)
                return
            member.asked_again = asked.epoch
            if asked.broken:
                self._scheduler.restart(job, f"worker {member.rank} asked for a new epoch after a failure")
            elif all(each.asked_again == asked.epoch for each in job.present()):
                self._scheduler.restart(job, "all workers asked for a new epoch")
        except JobStoreError as fault:  # Workers ask again, about once a second, until they have an epoch.
            member.send(ToWorker(gathering=jobs_pb2.Gathering(queued=str(fault))))

    def _resize(self, job: ServiceJob) -> None:
        """Resize a running job, or tell the workers that have asked which others have not."""
        if not any(member.asked_resize == job.record.epoch for member in job.present()):
            return
        missing = job.not_asked_to_resize
        if not missing:
            self._scheduler.restart(job, "its workers asked to resize it", resized=True)
            return
        waits = jobs_pb2.Gathering(
            missing=missing, queued=f"workers {missing} have not asked to resize it, and have not left"
        )
        for member in job.present():
            if member.rank not in missing:
                member.send(ToWorker(gathering=waits))

    def _gather(self, request: jobs_pb2.JoinRequest, host: HostSite) -> ServiceJob:
        """Create a job from its first worker's request."""
        if request.joins:
            raise RefusalError(Kind.UNKNOWN, f"there is no job named {request.job} to be added to")
        if request.join_token:
            raise RefusalError(
                Kind.UNKNOWN,
                f"there is no job named {request.job}, and the join token belongs to an existing job",
            )
        job = self._registry.jobs[request.job] = self._registry.new_job(read_request(request), host)
        self._changes.begin(job.subject, "create", job.state, f"worker {request.rank} joined")
        return job

    def _member(
        self, job: ServiceJob, request: jobs_pb2.JoinRequest, host: HostSite, outbox: Outbox
    ) -> Member:
        check_join(job, request)
        if request.joins:
            most = self._registry.trees.most_workers(job.record.spread)
            check_world(sum(1 for _ in job.current_and_joining()) + 1, most)
        check_quorum_switch(job.record, request.rank, host)
        lease, leaf = secrets.token_hex(16), ""
        if request.machine and not self._registry.network.any_place:
            leaf = f"leaf-{host.name}-{request.machine[:4]}"
        if not host.switch:  # An aggregator on a host has to add for the worker.
            if job.record.job_id and not job.record.aggregator:
                raise RefusalError(
                    Kind.WRONG,
                    f"worker {request.rank} at {host.ip} is on no host of this controller, and job {job.name} is added on "
                    f"switch {job.record.switch}",
                )
            worker = WorkerRecord(
                request.rank, host.name, host.ip, host.mac, 0, 0, host.ip, UDP_PORT, lease, leaf=leaf
            )
            return Member(worker, job.name, self._changes, outbox)
        switch = host.switch if job.record.spread else job.record.switch
        if job.record.aggregator:
            switch = job.record.home or host.switch
        port = self._registry.network.port_to(switch, host)
        if port is None:
            raise RefusalError(
                Kind.WRONG,
                f"host {host.name} cannot be reached from switch {switch}, where job {job.name} is added",
            )
        ip, udp_port = host.sends_to or (self._registry.network.switches[switch].ip, UDP_PORT)
        worker = WorkerRecord(
            request.rank, host.name, host.ip, host.mac, port, 0, ip, udp_port, lease, leaf=leaf
        )
        return Member(worker, job.name, self._changes, outbox)

    def start_disconnect_timer(self, job: ServiceJob, member: Member, seconds: float) -> None:
        """Start the timer that makes a worker leave unless it reattaches in time."""
        reason = f"its connection was lost for {seconds:g} s"
        member.disconnect_timer.start(seconds, self._changes.certainly, self._lost, job, member, reason)

    def _lost(self, job: ServiceJob, member: Member, reason: str) -> None:
        """Note that a worker which has not reattached has left."""
        if member.outbox is None:
            self._left(job, member, reason)

    def _left(self, job: ServiceJob, member: Member, reason: str) -> None:
        if member in job.newcomers:
            job.newcomers.remove(member)
            member.leave(reason)
            job.send_newcomers()
            return
        if job.state is JobState.ENDED or job.members.get(member.rank) is not member or member.worker.left:
            return
        with self._changes.of(job):
            member.leave(reason)
            if job.record.running:
                if not any(job.present()):
                    self._scheduler.end(job, "all its workers have left")
                    return
                self._changes.after(self._scheduler.moves.give_up, job, f"worker {member.rank} left")
                job.send(_left_message(member))
                self._resize(job)
            elif job.resizing and any(job.present()):  # The remaining workers still wait for the new epoch.
                self._scheduler.restart(job, job.reason, resized=True)
            else:
                self._left_gathering(job, member)

    def _left_gathering(self, job: ServiceJob, member: Member) -> None:
        """Free the rank of a worker that has left a job which does not run."""
        job.send(_left_message(member))
        job.remove_member(member.rank)
        if job.state is not JobState.CLEARING:
            if job.record.job_id and job.record.spread:
                self._scheduler.release(job)
            elif job.record.job_id:
                job.leave_queue()
        if not job.record.operated:
            refusal = RefusalError(Kind.NOT_NOW, f"worker {member.rank} left before all workers had joined")
            self._scheduler.refuse(job, refusal)
            return
        job.send_gathering()
        if job.state is JobState.GATHERING:
            self._scheduler.idle(job)
        else:  # A job on a tree leaves its line when a worker is missing.
            self._scheduler.serve_soon(job.record.queue)


def _left_message(member: Member) -> ToWorker:
    return ToWorker(left=jobs_pb2.Left(rank=member.rank, reason=member.worker.left))
