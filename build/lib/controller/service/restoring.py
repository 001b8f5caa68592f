"""The jobs of the controller before this one, taken up where it left them."""

import logging

from controller.service.desk import Desk
from controller.service.served import Seat, ServedJob
from controller.service.workers import WorkersDesk

log = logging.getLogger(__name__)


def restore_jobs(desk: Desk, workers: WorkersDesk) -> None:
    """Take up the jobs that a controller's memory holds; their workers have a while to attach again.

    What the switches hold of them is put right when the first session with each begins.
    """
    for record in desk.store.jobs():
        ledger = desk.dispatch.ledgers.get(record.switch)
        lost = ""
        if ledger is None:
            lost = f"there is no switch {record.switch} any more"
        elif record.lanes not in (0, desk.dispatch.lanes):
            lost = f"the switches' program has {desk.dispatch.lanes} lanes now"
        if ledger is None or lost:
            log.warning("job %s is given up: %s", record.name, lost)
            desk.store.forget(record.name)
            continue
        held = record.held()
        if held is not None:
            ledger.restore(held)
        job = ServedJob(record, admitted_epoch=0)
        for worker in record.workers.values():
            job.seats[worker.rank] = Seat(worker)
        desk.jobs[record.name] = job
        if record.running and not any(job.present()):
            desk.end(job, "all its workers have left")
            continue
        for seat in job.present():
            workers.fade(job, seat, desk.options.recovery_s)
        if not job.record.job_id or not (job.record.running or job.missing):
            desk.dispatch.ask(job)
        elif not job.seats:
            desk.dispatch.idle(job)
