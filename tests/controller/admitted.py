"""Jobs of one switch for tests, whose slots are reserved when they are admitted."""

from collections.abc import Sequence

from controller.jobs import Job, ParentLink, WorkerEndpoint
from controller.ledger import JobLedger
from controller.trees import sending_to
from host_agent.job_api.job_request import JobRequest

SWITCH = ("10.0.0.254", 28275)


def admit(
    ledger: JobLedger,
    name: str,
    workers: Sequence[WorkerEndpoint],
    slots: int,
    *,
    token: int = 1,
    unix_seconds: int = 1,
    parent: ParentLink | None = None,
    quorum: int = 0,
) -> Job:
    """Admit a job whose workers send to `SWITCH` unless they name another; no slots are reserved after an error."""
    request = JobRequest(name, len(workers), quorum=quorum)
    ledger.reserve(request, slots)
    try:
        return ledger.admit(
            request,
            sending_to(SWITCH[0], workers, SWITCH[1]),
            token=token,
            unix_seconds=unix_seconds,
            parent=parent,
        )
    except BaseException:
        ledger.discard(name)
        raise
