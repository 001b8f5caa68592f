"""The calls of operators: create, restart and delete jobs."""

from controller.errors import JobRefusedError
from controller.service.jobs import Kind, RefusalError, ServiceJob
from controller.service.registry import JobRegistry
from controller.service.reservations import SlotsComingError
from host_agent.job_api import jobs_pb2


class OperatorActions:
    """Creates, restarts and deletes jobs.

    Parameters
    ----------
    registry
        The jobs.
    """

    def __init__(self, registry: JobRegistry) -> None:
        self._registry = registry

    async def create(self, request: jobs_pb2.CreateJobRequest) -> ServiceJob:
        """Create a job that workers join by name.

        Raises
        ------
        RefusalError
            The job cannot be created; the message gives the reason.
        """
        name = request.name
        await self._registry.until_gone(name)
        if name in self._registry.jobs:
            raise RefusalError(Kind.TAKEN, f"a job named {name} already exists: delete it first")
        job = self._registry.new_job(name, request)
        record = job.record
        record.operated, record.join_token = True, request.join_token
        record.idle_s = request.idle_s or self._registry.options.idle_s
        try:
            if not record.spread:  # Else its switches follow from its workers.
                self._registry.placement.reservations.reserve(job)
        except JobRefusedError as refusal:
            if (
                record.if_full != "queue" and not isinstance(refusal, SlotsComingError)
            ) or not self._registry.placement.reservations.fits_ever(job):
                raise RefusalError(Kind.FULL, str(refusal)) from None
            job.reason = str(refusal)
        if not record.job_id:  # `reserve` has saved the others.
            self._registry.store.save(record)
        self._registry.jobs[name] = job
        job.events.begin(job.subject, "create", job.state, "an operator created it")
        if record.job_id:
            self._registry.placement.idle(job)
        else:
            self._registry.placement.ask(job)
        return job

    async def restart(self, name: str) -> ServiceJob:
        """Give a job a new epoch. If workers have left it, it first waits for their ranks to join again.

        Raises
        ------
        RefusalError
            The job has not started.
        ControllerError
            The switch refused or did not answer.
        """
        job = self._registry.find(name)
        if not job.record.running:
            raise RefusalError(
                Kind.NOT_NOW,
                f"job {name} has not started: {job.reason or f'workers {job.missing} have not joined'}",
            )
        await self._registry.restart(job, "an operator restarted the job")
        return job

    async def delete(self, name: str) -> None:
        """End a job and wait until its slots are free.

        Raises
        ------
        RefusalError
            No such job.
        """
        self._registry.end(self._registry.find(name), "an operator deleted the job")
        await self._registry.until_gone(name)
