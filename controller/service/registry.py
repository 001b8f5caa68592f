"""All jobs of one controller: finding, restarting and ending them.

Requests of workers and operators are in `workers` and `operators`; the jobs' slots and table entries in `placement`. All of
it runs in the event loop's thread.
"""

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass

from controller.errors import ControllerError, JobRefusedError
from controller.program import CompiledFiles
from controller.service.aggregators import START_S
from controller.service.events import EventLog
from controller.service.jobs import Kind, RefusalError, ServiceJob
from controller.service.network import HostSite, Network
from controller.service.placement import Placement
from controller.service.records import JobRecord
from controller.service.requests import (
    check_name,
    check_quorum_request,
    check_weight,
    check_world,
    read_slot_request,
)
from controller.service.shares import Sharing
from controller.service.states import JobEvent
from controller.service.store import Store
from controller.sharing import Policy
from host_agent.job_api import jobs_pb2
from host_agent.job_api.jobs_pb2 import ToWorker

ENDED_JOBS_KEPT = 100
MAX_JOBS = 10_000
"""Jobs that have not ended, at most; nearly all of them wait, as a switch has slots for a few hundred."""


@dataclass(frozen=True)
class RegistryOptions:
    """Sizes and times.

    Attributes
    ----------
    slots
        Slots of a job whose request does not state a number.
    grace_s
        How long a worker whose stream broke may take to reattach, in seconds.
    recovery_s
        The same after a restart of the controller, in seconds.
    idle_s
        How long a created job waits for its first worker, in seconds.
    report_s
        Interval of the workers' reports, in seconds.
    share
        By what jobs share slots.
    least_slots
        The fewest slots that a job gets where jobs share them; a power of two.
    move_s
        How long a move to other slots may wait for a worker, in seconds.
    start_s
        How long an aggregator on a host may take to start, in seconds.
    """

    slots: int = 64
    grace_s: float = 2.0
    recovery_s: float = 30.0
    idle_s: float = 600.0
    report_s: float = 1.0
    share: Policy = "fixed"
    least_slots: int = 1
    move_s: float = 5.0
    start_s: float = START_S


class JobRegistry:
    """All jobs of one controller.

    Parameters
    ----------
    network
        Its switches and hosts.
    store
        Its persistent state.
    files
        The program for its switches.
    options
        Sizes and times.
    election_id
        Its election id at all switches.

    Attributes
    ----------
    jobs
        The jobs that have not ended, by name.
    ended
        The jobs that ended last.
    placement
        Their slots and table entries.
    events
        The transitions of jobs, seats and links.
    closing
        Whether the controller is stopping. Streams that break then make no worker leave.
    """

    def __init__(
        self,
        network: Network,
        store: Store,
        files: CompiledFiles,
        options: RegistryOptions,
        election_id: int = 1,
    ) -> None:
        self.network = network
        self.options = options
        self.jobs: dict[str, ServiceJob] = {}
        self.ended: deque[ServiceJob] = deque(maxlen=ENDED_JOBS_KEPT)
        self.events = EventLog(store)
        self.placement = Placement(
            network,
            store,
            files,
            election_id,
            options.report_s,
            self.jobs,
            self.end,
            Sharing(options.share, options.least_slots, options.move_s, options.start_s),
            self.restart,
            self.events,
        )
        self.store = store
        self.closing = False
        self._ending: dict[str, asyncio.Task[None]] = {}

    def find(self, name: str) -> ServiceJob:
        """Return a job that has not ended.

        Raises
        ------
        RefusalError
            No such job or switch.
        """
        if name not in self.jobs:
            ended = next((job for job in reversed(self.ended) if job.name == name), None)
            raise RefusalError(
                Kind.UNKNOWN,
                f"job {name} has ended: {ended.reason}" if ended else f"there is no job named {name}",
            )
        return self.jobs[name]

    def new_job(
        self,
        name: str,
        request: jobs_pb2.CreateJobRequest | jobs_pb2.JoinRequest,
        host: HostSite | None = None,
    ) -> ServiceJob:
        """Return a job as a request describes it; it holds nothing, and is not among `jobs` yet.

        Parameters
        ----------
        name
            Its name.
        request
            Of an operator, or of its first worker.
        host
            Where that worker is.

        Raises
        ------
        RefusalError
            No switch could take it, or the controller has `MAX_JOBS`.
        """
        check_name(name)
        if len(self.jobs) >= MAX_JOBS:
            raise RefusalError(
                Kind.FULL,
                f"the controller has {MAX_JOBS} jobs that have not ended, and takes no more: delete some that wait",
            )
        trees = self.placement.trees
        check_quorum_request(request.quorum, request.world_size, self.placement.files)
        spread = trees.spreads(request.switch) and not request.quorum
        check_world(request.world_size, trees.most_workers(spread))
        slots, if_full = read_slot_request(request.slots, request.if_full)
        record = JobRecord(
            name=name,
            switch=self.switch_for(request.switch, host, spread),
            world_size=request.world_size,
            slots=self.options.slots if slots is None else slots,
            if_full=if_full,
            queue_s=request.queue_s,
            join_token="",
            idle_s=0.0,
            operated=False,
            created=time.time(),
            spread=spread,
            weight=check_weight(request.weight),
            quorum=request.quorum,
        )
        try:
            self.placement.reservations.check(record)
        except JobRefusedError as refusal:
            raise RefusalError(Kind.FULL, str(refusal)) from None
        return ServiceJob(record, self.placement.queues.on, self.events)

    def switch_for(self, asked: str, host: HostSite | None, spread: bool) -> str:
        """Return the switch that adds a job: the requested one, else that of its first worker's host, else the first.

        Empty for a job that is spread over a tree of switches, whose root is chosen when all its workers have come.

        Raises
        ------
        RefusalError
            There is no such switch.
        """
        if spread:
            return ""
        if asked and asked not in self.network.switches:
            raise RefusalError(
                Kind.WRONG, f"there is no switch {asked}: the switches are {', '.join(self.network.switches)}"
            )
        return asked or (host.switch if host else "") or next(iter(self.network.switches))

    def end(self, job: ServiceJob, reason: str, refusal: RefusalError | None = None) -> None:
        """End a job. Its workers receive the refusal if there is one, else the reason."""
        if job.ended.is_set():
            return
        job.on(JobEvent.END, reason)
        self.placement.moves.drop(job)
        job.ended.set()
        job.reason = reason
        job.stop_timer()
        del self.jobs[job.name]
        self.ended.append(job)
        self.store.forget(job.name)
        for seat in job.present():
            seat.stop_disconnect_timer()
            seat.send(refusal or ToWorker(ended=jobs_pb2.Ended(reason=reason)))
            seat.send(None)
            seat.outbox = None
        self._ending[job.name] = asyncio.get_running_loop().create_task(self._clear(job))

    async def restart(self, job: ServiceJob, reason: str) -> None:
        """Give a running job a new epoch. If workers have left it, it first waits for their ranks to join again.

        Raises
        ------
        ControllerError
            The switch refused or did not answer.
        """
        gone = [rank for rank, seat in job.seats.items() if seat.worker.left]
        job.on(JobEvent.RESTART, reason)
        self.placement.moves.drop(job)
        job.record.restarts += 1
        job.record.operated = True  # From now on its workers may leave and join like those of a created job.
        job.reason = reason
        for rank in gone:
            job.vacate(rank)
        self.store.save(job.record)
        if gone:
            with contextlib.suppress(ControllerError):  # The reconciliation of the next session removes it.
                await self.placement.installation.withdraw(job)
            if job.record.spread:
                self.placement.release(job)
                self.store.save(job.record)
            job.send_gathering()
        else:
            self.placement.ask(job)
            await self.placement.advance(job.record.queue)

    async def _clear(self, job: ServiceJob) -> None:
        try:
            await self.placement.clear(job)
        finally:
            del self._ending[job.name]

    async def until_gone(self, name: str) -> None:
        """Wait until the name of an ended job is free."""
        while name in self._ending:  # A later job of that name may have ended in the meantime.
            await asyncio.wait([self._ending[name]])

    def end_all(self, reason: str) -> None:
        """End all jobs."""
        for job in list(self.jobs.values()):
            self.end(job, reason)

    def close(self) -> None:
        """End the streams but not the jobs: workers reattach to the next controller."""
        self.closing = True
        for job in self.jobs.values():
            job.stop_timer()
            for seat in job.seats.values():
                seat.stop_disconnect_timer()
                seat.send(None)
        for task in self._ending.values():
            task.cancel()
        self.placement.close()
        self.events.save()
