"""The job API over gRPC: the streams of workers and the calls of operators."""

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from controller.errors import ControllerError
from controller.service.aggregators import AggregatorHost
from controller.service.jobs import Kind, Member, Outbox, RefusalError, ServiceJob
from controller.service.requests import check_message, read_request
from controller.service.scheduler import Scheduler
from controller.service.sessions import Sessions
from controller.service.views import add_rates, event_view, job_view, switch_view
from controller.service.workers import JobMembers
from host_agent.job_api import jobs_pb2, jobs_pb2_grpc

CODES = {
    Kind.WRONG: grpc.StatusCode.INVALID_ARGUMENT,
    Kind.NOT_NOW: grpc.StatusCode.FAILED_PRECONDITION,
    Kind.FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Kind.UNKNOWN: grpc.StatusCode.NOT_FOUND,
    Kind.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    Kind.TAKEN: grpc.StatusCode.ALREADY_EXISTS,
    Kind.TOO_LATE: grpc.StatusCode.DEADLINE_EXCEEDED,
}

LEAST_INTERVAL_S = 0.05

Answer = TypeVar("Answer")


async def _next_message(context: Any) -> Any:
    """Return a stream's next message; None at its end.

    Raises RefusalError if the message cannot be read, or has values that no client of netsum's sends.
    """
    try:
        message = await context.read()
    except (DecodeError, UnicodeDecodeError) as error:  # Only protobuf in pure Python raises the latter.
        raise RefusalError(Kind.WRONG, f"malformed message, expected one of the job API: {error}") from None
    if message is grpc.aio.EOF:
        return None
    check_message(message)
    return message


async def _write_all(context: Any, outbox: asyncio.Queue[Any]) -> None:
    """Send the messages of an outbox until None ends the stream; raise a RefusalError that the outbox holds."""
    while (message := await outbox.get()) is not None:
        if isinstance(message, RefusalError):
            raise message
        await context.write(message)


def _refusal(fault: ControllerError) -> RefusalError:
    """Return the refusal that ends a stream whose last message led to a fault."""
    return fault if isinstance(fault, RefusalError) else RefusalError(Kind.NOT_NOW, str(fault))


def _reporting_errors(call: Callable[..., Awaitable[Answer]]) -> Callable[..., Awaitable[Answer]]:
    """Report errors to the caller by a status code and a sentence."""

    @functools.wraps(call)
    async def checked(self: Any, request: Any, context: Any) -> Answer:
        try:
            if isinstance(request, Message):
                check_message(request)
            return await call(self, request, context)
        except RefusalError as refusal:
            await context.abort(CODES[refusal.kind], str(refusal))
        except ControllerError as fault:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(fault))
        raise AssertionError("abort raises")

    return checked


class WorkersService(jobs_pb2_grpc.WorkersServicer):
    """The service that workers call."""

    def __init__(self, registry: JobMembers) -> None:
        self._registry = registry

    @_reporting_errors
    async def Join(self, requests: Any, context: Any) -> None:
        """Serve one worker's stream to its end."""
        del requests
        self._registry.streams += 1
        try:
            await self._serve_stream(context)
        finally:
            self._registry.streams -= 1

    async def _serve_stream(self, context: Any) -> None:
        outbox: Outbox = asyncio.Queue()
        first = await _next_message(context)
        if first is None:
            return
        match first.WhichOneof("message"):
            case "join":
                job, member = await self._registry.join(first.join, outbox)
            case "attach":
                job, member = self._registry.attach(first.attach, outbox)
            case other:
                raise RefusalError(
                    Kind.WRONG, f"expected join or attach as a worker's first message, got {other}"
                )
        listening = asyncio.create_task(self._listen(context, job, member, outbox))
        try:
            await _write_all(context, outbox)
        finally:
            listening.cancel()
            # This changes nothing if the worker has left or has a new stream.
            self._registry.detach(job, member, outbox)

    async def _listen(self, context: Any, job: ServiceJob, member: Member, outbox: Outbox) -> None:
        """Receive a worker's messages until it leaves or its stream ends."""
        try:
            while (message := await _next_message(context)) is not None:
                match message.WhichOneof("message"):
                    case "receive":
                        self._registry.receive(job, member, message.receive.udp_port)
                    case "report":
                        job.take_report(member, message.report)
                    case "again":
                        self._registry.again(job, member, message.again)
                    case "held":
                        self._registry.held(job, member, message.held)
                    case "no_leaf":
                        self._registry.no_leaf(member, message.no_leaf)
                    case "leave":
                        self._registry.leave(job, member, outbox)
                        break
                    case other:
                        raise RefusalError(Kind.WRONG, f"unexpected message {other} after join")
            outbox.put_nowait(None)
        except ControllerError as fault:
            outbox.put_nowait(_refusal(fault))


class AggregatorsService(jobs_pb2_grpc.AggregatorsServicer):
    """The service that agents of aggregator hosts call."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @_reporting_errors
    async def Register(self, requests: Any, context: Any) -> None:
        """Serve one agent's stream to its end."""
        del requests
        first = await _next_message(context)
        if first is None or first.WhichOneof("message") != "offer":
            raise RefusalError(Kind.WRONG, "expected an offer as an agent's first message")
        host = self._sessions.register(first.offer)
        listening = asyncio.create_task(self._listen(context, host))
        try:
            await context.write(jobs_pb2.ToAggregator(registered=jobs_pb2.Registered()))
            await _write_all(context, host.outbox)
        finally:
            listening.cancel()
            self._sessions.lost(host)

    async def _listen(self, context: Any, host: AggregatorHost) -> None:
        """Receive an agent's messages until its stream ends."""
        try:
            while (message := await _next_message(context)) is not None:
                self._sessions.started(host, message.started)
            host.outbox.put_nowait(None)
        except ControllerError as fault:
            host.outbox.put_nowait(_refusal(fault))


class OperatorsService(jobs_pb2_grpc.OperatorsServicer):
    """The service that operators call."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._registry = scheduler.registry

    @_reporting_errors
    async def ListJobs(self, request: Any, context: Any) -> jobs_pb2.ListJobsReply:
        """Return all jobs."""
        jobs = [*(self._registry.ended if request.ended else ()), *self._registry.jobs.values()]
        counted = await self._registry.switches.counted(jobs)
        shares = self._registry.shares
        return jobs_pb2.ListJobsReply(
            jobs=list(map(job_view, jobs, counted)),
            share=shares.policy if shares.active else "",
            jain=shares.jain(),
        )

    @_reporting_errors
    async def GetJob(self, request: Any, context: Any) -> jobs_pb2.JobView:
        """Return one job."""
        return await self._view(self._registry.find(request.name))

    @_reporting_errors
    async def JobEvents(self, request: Any, context: Any) -> jobs_pb2.JobEventsReply:
        """Return the transitions of a job, which may have ended."""
        events = self._registry.events.of_job(request.name)
        if not events:
            # Raises if there is no such job; the transitions of a job that exists may be older than the log.
            self._registry.find(request.name)
        return jobs_pb2.JobEventsReply(events=map(event_view, events))

    @_reporting_errors
    async def CreateJob(self, request: Any, context: Any) -> jobs_pb2.JobView:
        """Create a job that workers join by name."""
        name = request.name
        await self._scheduler.until_gone(name)
        if name in self._registry.jobs:
            raise RefusalError(Kind.TAKEN, f"a job named {name} already exists: delete it first")
        job = self._registry.new_job(read_request(request), operated=True)
        self._scheduler.add(job)
        return await self._view(job)

    @_reporting_errors
    async def RestartJob(self, request: Any, context: Any) -> jobs_pb2.JobView:
        """Give a job a new epoch. If workers have left it, it first waits for their ranks to join again."""
        job = self._registry.find(request.name)
        if not job.record.running:
            reason = job.reason or f"workers {job.missing} have not joined"
            raise RefusalError(Kind.NOT_NOW, f"job {job.name} has not started: {reason}")
        await asyncio.wait([self._scheduler.restart(job, "an operator restarted the job")])
        return await self._view(job)

    @_reporting_errors
    async def DeleteJob(self, request: Any, context: Any) -> jobs_pb2.DeleteJobReply:
        """End a job and wait until its slots are free."""
        self._scheduler.end(self._registry.find(request.name), "an operator deleted the job")
        await self._scheduler.until_gone(request.name)
        return jobs_pb2.DeleteJobReply()

    async def WatchJob(self, request: Any, context: Any) -> AsyncIterator[jobs_pb2.JobView]:
        """Send views of a job until it has ended."""
        try:
            check_message(request)
            job = self._registry.find(request.name)
        except RefusalError as refusal:
            await context.abort(CODES[refusal.kind], str(refusal))
            return
        interval_s = max(request.interval_s or 1.0, LEAST_INTERVAL_S)
        before, then = None, 0.0
        while True:
            view, now = await self._view(job), time.monotonic()
            if before is not None:
                add_rates(view, before, now - then)
            yield view
            if view.state == jobs_pb2.ENDED:
                return
            before, then = view, now
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(job.ended.wait(), interval_s)

    @_reporting_errors
    async def ListSwitches(self, request: Any, context: Any) -> jobs_pb2.ListSwitchesReply:
        """Return all switches."""
        views = [await switch_view(self._registry, link) for link in self._registry.switches.links.values()]
        return jobs_pb2.ListSwitchesReply(switches=views)

    @_reporting_errors
    async def GetSwitch(self, request: Any, context: Any) -> jobs_pb2.SwitchView:
        """Return one switch; without a name, the only switch."""
        links = self._registry.switches.links
        name = request.name or (next(iter(links)) if len(links) == 1 else "")
        if name not in links:
            known = ", ".join(links)
            raise RefusalError(
                Kind.UNKNOWN,
                f"there is no switch {name}: the switches are {known}"
                if name
                else f"name one of the switches {known}",
            )
        return await switch_view(self._registry, links[name])

    async def _view(self, job: ServiceJob) -> jobs_pb2.JobView:
        (counted,) = await self._registry.switches.counted([job])
        return job_view(job, counted)
