"""The first rank's invitation to a job: which service, which job, and on which machine a service on loopback runs."""

import os
import secrets
from pathlib import Path
from typing import Final

from host_agent.job_api import CONTROLLER_VARIABLE
from host_agent.joining.join_errors import JoinError
from host_agent.joining.local import service_in_use, start_service
from netsum_common.names import as_name

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def invite(places: int, job: str) -> dict[str, str]:
    """Find or start a service, and return what the other ranks of a new job need to join it.

    `places`: how many ports a switch needs that is started for it. `job`: what the name of the job begins with. Raises JoinError
    if no service could be started.
    """
    named = os.environ.get(CONTROLLER_VARIABLE)
    service = named or service_in_use() or start_service(places)
    name = f"{as_name(job)}-{secrets.token_hex(4)}"
    return {"service": service, "job": name, "machine": "" if named else machine()}


def refuse_elsewhere(invitation: dict[str, str], rank: int, first: int) -> None:
    """Raise JoinError if the service is on the loopback of another machine.

    `rank`: this one. `first`: that sent the invitation.
    """
    if invitation["machine"] not in ("", machine()):
        raise JoinError(
            f"rank {rank} runs on another machine than rank {first}, whose switch is on loopback: set "
            f"{CONTROLLER_VARIABLE} on all ranks"
        )


def machine() -> str:
    """Return what only this machine is called, until it starts anew."""
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else os.uname().nodename
