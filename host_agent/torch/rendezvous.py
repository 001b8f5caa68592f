"""The first process of a group finds or starts a service; all learn of it, and of the job's name, through torch's store."""

from __future__ import annotations

import json
import os
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Final

import torch.distributed as dist

from host_agent.torch.joining import CONTROLLER_VARIABLE, JoinError, Seat, service_in_use, start_service

_KEY: Final = "job"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def join(
    store: dist.Store, rank: int, size: int, *, place: int, places: int, group: str, timeout: timedelta
) -> Seat:
    """Join the job of a process group.

    Parameters
    ----------
    store : torch.distributed.Store
        The group's own.
    rank, size : int
        In the group.
    place, places : int
        Rank in the world and its size: which port of the switch, of how many.
    group : str
        The group's name, for people.
    timeout : timedelta
        How long to wait for the others.

    Raises
    ------
    JoinError
        At all ranks, if the first one finds no service; else at those that cannot join.
    """
    if rank == 0:
        try:
            message = _invitation(places, group)
        except JoinError as error:
            store.set(_KEY, json.dumps({"error": str(error)}))
            raise
        store.set(_KEY, json.dumps(message))
    try:
        store.wait([_KEY], timeout)
    except RuntimeError as error:
        raise JoinError(
            f"rank 0 of group {group} did not say within {timeout} where the switch is"
        ) from error
    message = json.loads(store.get(_KEY))
    if "error" in message:
        raise JoinError(f"rank 0: {message['error']}")
    if message["machine"] not in ("", _machine()):
        raise JoinError(
            f"rank {rank} runs on another machine than rank 0, whose switch is on loopback: set {CONTROLLER_VARIABLE} "
            "on all ranks"
        )
    return Seat(
        message["service"],
        job=message["job"],
        worker_id=rank,
        num_workers=size,
        place=place,
        timeout_s=timeout.total_seconds(),
    )


def _invitation(places: int, group: str) -> dict[str, str]:
    named = os.environ.get(CONTROLLER_VARIABLE)
    service = named or service_in_use() or start_service(places)
    job = f"torch {group} {secrets.token_hex(4)}"
    return {"service": service, "job": job, "machine": "" if named else _machine()}


def _machine() -> str:
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else os.uname().nodename
