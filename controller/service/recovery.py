"""Recovery of the jobs of an earlier controller process."""

import logging

from controller.errors import JobRefusedError
from controller.service.jobs import Seat, ServiceJob
from controller.service.registry import JobRegistry
from controller.service.workers import WorkerSeats

log = logging.getLogger(__name__)


def restore_jobs(registry: JobRegistry, workers: WorkerSeats) -> None:
    """Restore the jobs in the store; their workers have the recovery period to reattach.

    The first session with each switch reconciles what it holds of them.
    """
    # The jobs in line, of which there may be thousands, after those that hold slots.
    for record in sorted(registry.store.jobs(), key=lambda record: (not record.running, not record.job_id)):
        trees = registry.placement.trees
        lost, running = "", None
        if record.lanes not in (0, registry.placement.lanes):
            lost = f"the switches' program now has {registry.placement.lanes} lanes"
        elif record.switch and record.switch not in registry.network.switches:
            lost = f"switch {record.switch} is no longer in the network"
        else:
            try:
                running = trees.restore(record)
            except JobRefusedError as refusal:
                lost = str(refusal)
        if lost:
            log.warning("job %s is dropped: %s", record.name, lost)
            registry.store.forget(record.name)
            continue
        job = ServiceJob(record, registry.placement.queues.on, registry.events)
        if record.running:  # Thousands that wait would leave no room for what happened.
            registry.events.begin(job.subject, "restore", job.state, "the controller was started again")
        if running is not None:
            job.tree, job.parts = running
            job.admissions = job.tree.admissions(job.parts)
        for worker in record.workers.values():
            job.seats[worker.rank] = Seat(worker, job.name, job.events)
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
