"""The admissions that this process has used: each serves one communicator, once.

A second communicator would start at the first chunk number again, in the same epoch, and the switch would answer it from slots
that hold the sums of the first one.
"""

import threading

from host_agent.errors import UsedAdmissionError
from host_agent.wire import Admission

_used: set[Admission] = set()
_lock = threading.Lock()


def is_used(admission: Admission) -> bool:
    """Return whether a communicator of this process has used an admission."""
    with _lock:
        return admission in _used


def claim(admission: Admission) -> None:
    """Note that a communicator uses an admission from now on; a forked child inherits its parent's notes.

    Raises UsedAdmissionError if one has used it before.
    """
    with _lock:
        if admission in _used:
            raise UsedAdmissionError(
                f"the admission of worker {admission.worker_id} of job {admission.job_id} (epoch {admission.epoch}) has served "
                "a communicator already, and serves only one, as chunk numbers of an epoch are used once: keep that "
                "communicator for all collectives, or get a new admission by Membership.start_again or a restart of the job"
            )
        _used.add(admission)


def unclaim(admission: Admission) -> None:
    """Note that the communicator that claimed an admission was not made."""
    with _lock:
        _used.discard(admission)
