"""The calls of operators: create, restart and delete jobs."""

import time

from controller.errors import JobRefusedError
from controller.service.jobs import Kind, RefusalError, ServiceJob
from controller.service.records import JobRecord
from controller.service.registry import JobRegistry
from controller.service.requests import check_name, check_quorum_request, check_weight, check_world
from controller.service.reservations import SlotsComingError
from host_agent.job_api.slot_request import IfFull, Slots


class OperatorActions:
    """Creates, restarts and deletes jobs.

    Parameters
    ----------
    registry
        The jobs.
    """

    def __init__(self, registry: JobRegistry) -> None:
        self._registry = registry

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
        weight: float = 1.0,
        quorum: int = 0,
    ) -> ServiceJob:
        """Create a job that workers join by name.

        Raises
        ------
        RefusalError
            The job cannot be created; the message gives the reason.
        """
        await self._registry.until_gone(name)
        if name in self._registry.jobs:
            raise RefusalError(Kind.TAKEN, f"a job named {name} already exists: delete it first")
        check_name(name)
        self._registry.check_room()
        trees = self._registry.placement.trees
        check_quorum_request(quorum, world_size, self._registry.placement.files)
        spread = trees.spreads(switch) and not quorum
        check_world(world_size, trees.most_workers(spread))
        record = JobRecord(
            name=name,
            switch=self._registry.switch_for(switch, None, spread),
            world_size=world_size,
            slots=self._registry.options.slots if slots is None else slots,
            if_full=if_full,
            queue_s=queue_s,
            join_token=join_token,
            idle_s=idle_s or self._registry.options.idle_s,
            operated=True,
            created=time.time(),
            spread=spread,
            weight=check_weight(weight),
            quorum=quorum,
        )
        job = ServiceJob(record, self._registry.placement.queues.on)
        try:
            self._registry.placement.reservations.check(record)
            if not spread:  # Else its switches follow from its workers.
                self._registry.placement.reservations.reserve(job)
        except JobRefusedError as refusal:
            if (
                if_full != "queue" and not isinstance(refusal, SlotsComingError)
            ) or not self._registry.placement.reservations.fits_ever(job):
                raise RefusalError(Kind.FULL, str(refusal)) from None
            job.reason = str(refusal)
        if not record.job_id:  # `reserve` has saved the others.
            self._registry.store.save(record)
        self._registry.jobs[name] = job
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
