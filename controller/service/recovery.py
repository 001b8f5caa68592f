"""Recovery of the jobs of an earlier controller process."""

import logging

from controller.service.jobs import Seat, ServiceJob
from controller.service.registry import JobRegistry
from controller.service.workers import WorkerSeats

log = logging.getLogger(__name__)


def restore_jobs(registry: JobRegistry, workers: WorkerSeats) -> None:
    """Restore the jobs in the store; their workers have the recovery period to reattach.

    The first session with each switch reconciles what it holds of them.
    """
    for record in registry.store.jobs():
        ledger = registry.placement.ledgers.get(record.switch)
        lost = ""
        if ledger is None:
            lost = f"switch {record.switch} is no longer in the network"
        elif record.lanes not in (0, registry.placement.lanes):
            lost = f"the switches' program now has {registry.placement.lanes} lanes"
        if ledger is None or lost:
            log.warning("job %s is dropped: %s", record.name, lost)
            registry.store.forget(record.name)
            continue
        held = record.held()
        if held is not None:
            ledger.restore(held)
        job = ServiceJob(record)
        for worker in record.workers.values():
            job.seats[worker.rank] = Seat(worker)
        registry.jobs[record.name] = job
        if record.running and not any(job.present()):
            registry.end(job, "all its workers have left")
            continue
        for seat in job.present():
            workers.start_disconnect_timer(job, seat, registry.options.recovery_s)
        if not job.record.job_id or not (job.record.running or job.missing):
            registry.placement.ask(job)
        elif not job.seats:
            registry.placement.idle(job)
