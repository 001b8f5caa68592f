"""The jobs of one controller: which there are, and how one ends.

What workers and operators may do with them is in `workers` and `operators`, what they hold on switches in `placement`. All of
it runs in the event loop's thread.
"""

import asyncio
import contextlib
import logging
from collections import deque
from dataclasses import dataclass

from controller.errors import ControllerError
from controller.jobs import Job
from controller.service.jobs import Kind, RefusalError, ServiceJob
from controller.service.network import HostSite, Network
from controller.service.placement import Placement
from controller.service.states import JobEvent
from controller.service.store import Store
from controller.switch_tables import CompiledFiles
from host_agent.wire import jobs_pb2
from host_agent.wire.jobs_pb2 import ToWorker

log = logging.getLogger(__name__)

ENDED_JOBS_KEPT = 100


@dataclass(frozen=True)
class RegistryOptions:
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


class JobRegistry:
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

    Attributes
    ----------
    jobs
        Those that have not ended, by name.
    ended
        The last ones that have.
    placement
        What they hold on which switch.
    closing
        Whether the controller is being stopped: its streams break then, and nobody leaves by that.
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
        self.placement = Placement(network, store, files, election_id, options.report_s, self.jobs, self.end)
        self.store = store
        self.closing = False
        self._ending: dict[str, asyncio.Task[None]] = {}

    def find(self, name: str) -> ServiceJob:
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

    def switch_for(self, asked: str, host: HostSite | None) -> str:
        """Return the switch on which a job is added: the one asked for, else its first host's, else the first.

        Raises
        ------
        RefusalError
            There is none of that name.
        """
        if asked and asked not in self.network.switches:
            raise RefusalError(
                Kind.WRONG, f"there is no switch {asked}: the switches are {', '.join(self.network.switches)}"
            )
        return asked or (host.switch if host else next(iter(self.network.switches)))

    def end(self, job: ServiceJob, reason: str, refusal: RefusalError | None = None) -> None:
        """End a job; its workers are refused if there is a refusal, else told the reason."""
        if job.ended.is_set():
            return
        log.info("job %s ends: %s", job.name, reason)
        job.on(JobEvent.END)
        job.ended.set()
        job.reason = reason
        job.queue_place = 0
        job.stop_timer()
        del self.jobs[job.name]
        self.ended.append(job)
        self.store.forget(job.name)
        for seat in job.present():
            seat.stop_disconnect_timer()
            seat.tell(refusal or ToWorker(ended=jobs_pb2.Ended(reason=reason)))
            seat.tell(None)
            seat.outbox = None
        self._ending[job.name] = asyncio.get_running_loop().create_task(self._clear(job))

    async def restart(self, job: ServiceJob, reason: str) -> None:
        """Give a running job a new epoch; if workers have left it, they may come again first.

        Raises
        ------
        ControllerError
            The switch did not take it.
        """
        gone = [rank for rank, seat in job.seats.items() if seat.worker.left]
        job.on(JobEvent.RESTART)
        job.queue_place = 0
        job.record.restarts += 1
        job.record.operated = True  # Its workers come and go now as those of a job that was created.
        job.reason = reason
        for rank in gone:
            job.vacate(rank)
        self.store.save(job.record)
        if gone:
            held = job.record.held()
            assert isinstance(held, Job)
            with contextlib.suppress(ControllerError):  # Then its next session begins by removing it.
                await self.placement.links[job.record.switch].call(lambda tables: tables.withdraw(held))
            job.tell_gathering()
        else:
            self.placement.ask(job)
            await self.placement.advance(job.record.switch)

    async def _clear(self, job: ServiceJob) -> None:
        try:
            await self.placement.clear(job)
        finally:
            del self._ending[job.name]

    async def until_gone(self, name: str) -> None:
        """Wait until a job that has ended has given its name up."""
        while name in self._ending:  # The next of that name may have ended meanwhile.
            await asyncio.wait([self._ending[name]])

    def end_all(self, reason: str) -> None:
        """End all jobs."""
        for job in list(self.jobs.values()):
            self.end(job, reason)

    def close(self) -> None:
        """End the streams, not the jobs: their workers attach to the next controller."""
        self.closing = True
        for job in self.jobs.values():
            job.stop_timer()
            for seat in job.seats.values():
                seat.stop_disconnect_timer()
                seat.tell(None)
        for task in self._ending.values():
            task.cancel()
        self.placement.close()
