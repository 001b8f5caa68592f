"""How the processes of a group meet, through torch's store, before they join a job.

The first one finds or starts a service; all learn of it and of the job's name. Each says how large a world it was
started with, so that those who cannot become one group hear why, and who has not come, before the job begins.
"""

import contextlib
import json
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

import torch.distributed as dist

from host_agent import joining
from host_agent.errors import NetsumError
from host_agent.joining import JoinError, Membership
from host_agent.joining.invitation import invite, refuse_elsewhere
from host_agent.words import plural

_KEY: Final = "job"
_EXCHANGE_S: Final = 10.0


def join(
    store: dist.Store,
    rank: int,
    ranks: Sequence[int],
    *,
    places: int,
    group: str,
    timeout: timedelta,
    start: bool = True,
) -> Membership:
    """Join the job of a process group.

    `ranks`: the ranks in the world of the group's ranks. `places`: size of the world: how many ports a switch needs that is
    started for it. `start`: whether to wait until the job has started, which takes slots; see `Membership.start`. Raises
    JoinError: at all ranks, if the first one finds no service, if a rank does not come, or was started with another size of
    the world; else at those that cannot join.
    """
    if rank == 0:
        try:
            message = invite(places, f"torch-{group}")
        except NetsumError as error:
            store.set(_KEY, json.dumps({"error": str(error)}))
            raise
        store.set(_KEY, json.dumps(message))
    # Starting a switch is not waiting for the others.
    until = time.monotonic() + timeout.total_seconds()
    size = len(ranks)
    store.set(f"size/{rank}", str(size))
    if not _comes(store, _KEY, until):
        raise JoinError(f"group {group}: rank {ranks[0]} did not come within {timeout.total_seconds():g} s")
    message = json.loads(store.get(_KEY))
    if "error" in message:
        raise JoinError(f"rank {ranks[0]}: {message['error']}")
    missing = [ranks[each] for each in range(size) if not _comes(store, f"size/{each}", until)]
    sizes = {each: int(store.get(f"size/{each}")) for each in range(size) if ranks[each] not in missing}
    others = {each: other for each, other in sizes.items() if other != size}
    if others:
        other, its_size = next(iter(others.items()))
        _wait_for_readers(store, rank, sizes)
        raise JoinError(
            f"group {group}: rank {ranks[rank]} was started for {plural(size, 'rank')}, rank {ranks[other]} for {its_size}: all "
            "must be given the same world size"
        )
    if missing:
        names = ", ".join(map(str, missing))
        _wait_for_readers(store, rank, sizes)
        raise JoinError(
            f"group {group}: rank {names} of {size} did not come within {timeout.total_seconds():g} s"
        )
    refuse_elsewhere(message, ranks[rank], ranks[0])
    return joining.join(
        message["service"],
        job=message["job"],
        rank=rank,
        world_size=size,
        if_full="take less",
        timeout_s=max(1.0, until - time.monotonic()),
        start=start,
    )


def _comes(store: dist.Store, key: str, until: float) -> bool:
    """Wait for a key of the store; False if it is not there in time."""
    try:
        store.wait([key], timedelta(seconds=max(0.001, until - time.monotonic())))
    except RuntimeError:  # DistStoreError, and what else the kinds of stores raise
        return False
    return True


def _wait_for_readers(store: dist.Store, rank: int, there: Iterable[int]) -> None:
    """Let all who are there learn why there will be no group: the first one mostly holds the store, and ends with it."""
    with contextlib.suppress(RuntimeError):
        store.set(f"done/{rank}", "")
    until = time.monotonic() + _EXCHANGE_S
    for each in there if rank == 0 else ():
        _comes(store, f"done/{each}", until)
