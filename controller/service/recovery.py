"""Recovery of the jobs of an earlier controller process."""

import logging

from controller.errors import JobRefusedError
from controller.service.jobs import Member
from controller.service.scheduler import Scheduler
from controller.service.workers import JobMembers

log = logging.getLogger(__name__)


def restore_jobs(scheduler: Scheduler, workers: JobMembers) -> None:
    """Restore the jobs in the store; their workers have the recovery period to reattach.

    The first session with each switch reconciles the jobs' entries there.
    """
    registry = scheduler.registry
    # Jobs that hold slots come first; jobs in line may be thousands.
    for record in sorted(registry.store.jobs(), key=lambda record: (not record.running, not record.job_id)):
        lost, running, admissions, on_disk = "", None, [], record.copy()
        if record.spread and not record.running:
            # The workers, and with them the tree, may have changed since the slots were reserved.
            record.release()
        if record.lanes not in (0, registry.files.capabilities.lanes):
            lost = f"the switches' program now has {registry.files.capabilities.lanes} lanes"
        elif record.switch and record.switch not in registry.trees.ledgers:
            lost = f"switch {record.switch} is no longer in the network"
        else:
            with registry.store.sensible(f"job {record.name}"):
                try:
                    running = registry.trees.restore(record)
                    admissions = running[0].admissions(running[1]) if running is not None else []
                except JobRefusedError as refusal:
                    lost = str(refusal)
        if lost:
            log.warning("dropped: %s", lost, extra={"job": record.name})
            registry.store.delete_job(record.name)
            continue
        job = registry.job_of(record)
        job.on_disk = on_disk
        if record.running:  # Events of thousands of waiting jobs would push out the history.
            registry.events.begin(job.subject, "restore", job.state, "the controller was started again")
        if running is not None:
            job.tree, job.parts = running
            job.admissions = admissions
        for worker in record.workers.values():
            job.members[worker.rank] = Member(worker, job.name, registry.changes)
        registry.jobs[record.name] = job
        if record.running and not any(job.present()):
            registry.changes.certainly(scheduler.end, job, "all its workers have left")
            continue
        for member in job.present():
            workers.start_disconnect_timer(job, member, registry.options.recovery_s)
        if not job.record.job_id or not (job.record.running or job.missing):
            scheduler.enqueue(job)
        elif not job.members:
            scheduler.idle(job)
