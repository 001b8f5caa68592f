"""The calls of operators: create, restart and delete jobs."""

from controller.service.jobs import Kind, RefusalError, ServiceJob
from controller.service.requests import read_request
from controller.service.scheduler import Scheduler
from host_agent.job_api import jobs_pb2


class OperatorActions:
    """Creates, restarts and deletes jobs.

    Parameters
    ----------
    scheduler
        Takes the jobs on.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._registry = scheduler.registry

    async def create(self, message: jobs_pb2.CreateJobRequest) -> ServiceJob:
        """Create a job that workers join by name.

        Raises
        ------
        RefusalError
            The job cannot be created; the message gives the reason.
        """
        name = message.name
        await self._scheduler.until_gone(name)
        if name in self._registry.jobs:
            raise RefusalError(Kind.TAKEN, f"a job named {name} already exists: delete it first")
        job = self._registry.new_job(read_request(message), operated=True)
        self._scheduler.reserve_new(job)
        self._registry.jobs[name] = job
        job.events.begin(job.subject, "create", job.state, "an operator created it")
        if job.record.job_id:
            self._scheduler.idle(job)
        else:
            self._scheduler.ask(job)
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
        await self._scheduler.restart(job, "an operator restarted the job")
        return job

    async def delete(self, name: str) -> None:
        """End a job and wait until its slots are free.

        Raises
        ------
        RefusalError
            No such job.
        """
        self._scheduler.end(self._registry.find(name), "an operator deleted the job")
        await self._scheduler.until_gone(name)
