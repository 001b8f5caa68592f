"""Jobs that change size: the default group goes on without ranks that have left, and with ranks that were started meanwhile.

The controller agrees with all ranks on who they are: each resizing is a new epoch of the job. The store must outlive every
rank, as torchrun's does.
"""

import json
import os
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist

from host_agent import joining
from host_agent.errors import MisuseError
from host_agent.joining import JoinError, Membership
from host_agent.torch.options import Options

_KEY: Final = "netsum/running"
_TIMEOUT: Final = timedelta(seconds=60)

adopted: list[Membership] = []
"""The membership of the next default group, which is in its job already."""


def announce(store: dist.Store, membership: Membership) -> None:
    """Write the address and name of the default group's job into a store, so that a process can be added to it."""
    _root(store).set(_KEY, json.dumps({"service": membership.controller, "job": membership.job}))


def newcomers() -> int:
    """Return how many ranks wait to be added to the default group; other ranks may see another number for a moment."""
    return int(_default_group().newcomers)


def resize(timeout: timedelta = _TIMEOUT) -> None:
    """Make the default group anew, without the ranks that have left and with those that wait to be added.

    All ranks that are there call it: after a collective has failed because a rank left, or between two steps, when `newcomers`
    is not zero at some rank. They keep their order; newcomers follow. ``get_rank`` and ``get_world_size`` change. Other groups
    are destroyed, and what holds the old groups, as DDP does, has to be made anew.

    Parameters
    ----------
    timeout : timedelta
        How long to wait for the other ranks; also the new group's timeout.

    Raises
    ------
    JoinError
        A rank is there and has not called it in time, or the job has ended.
    MisuseError
        The default group is not netsum's, or has no slots of a switch.
    """
    group = _default_group()
    store = _root(group.store)
    membership, options = group.hand_over()
    try:
        membership.resize(timeout.total_seconds())
    except JoinError:
        membership.close()
        raise
    dist.destroy_process_group()
    _begin_group(membership, store, options, timeout)


def join_running(
    store: dist.Store | None = None, options: Options | None = None, timeout: timedelta = _TIMEOUT
) -> None:
    """Add this process to a running job, in place of ``init_process_group``; returns when its ranks have called `resize`.

    Parameters
    ----------
    store : torch.distributed.Store, optional
        That of the job; None: the TCPStore at MASTER_ADDR and MASTER_PORT.
    options : Options, optional
        Those of the job's default group; None: of the environment.
    timeout : timedelta
        How long to wait for the job, and for its ranks; also the group's timeout.

    Raises
    ------
    JoinError
        There is no running job in the store, or its ranks did not call `resize` in time.
    """
    if store is None:
        address = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
        if not address[0] or not address[1].isdecimal():
            raise MisuseError(
                "set MASTER_ADDR and MASTER_PORT to the store of the running job, or pass a store"
            )
        store = dist.TCPStore(address[0], int(address[1]), is_master=False, timeout=timeout)
    root = _root(store)
    try:
        root.wait([_KEY], timeout)
    except RuntimeError:
        raise JoinError(
            f"no job over netsum was announced in this store within {timeout.total_seconds():g} s"
        ) from None
    running = json.loads(root.get(_KEY))
    membership = joining.join(running["service"], job=running["job"], timeout_s=timeout.total_seconds())
    _begin_group(membership, root, options or Options.from_environment(), timeout)


def _begin_group(membership: Membership, store: dist.Store, options: Options, timeout: timedelta) -> None:
    admission = membership.admission
    adopted.append(membership)
    try:
        dist.init_process_group(
            "netsum",
            store=dist.PrefixStore(f"netsum/{membership.job}/{admission.epoch}", store),
            rank=admission.rank,
            world_size=admission.world_size,
            timeout=timeout,
            pg_options=options,
        )
    except BaseException:
        membership.close()
        raise
    finally:
        adopted.clear()


def _default_group() -> Any:
    group = dist.group.WORLD if dist.is_initialized() else None
    if not hasattr(group, "hand_over"):
        raise MisuseError('only a default group of init_process_group("netsum") changes its size')
    return group


def _root(store: dist.Store) -> dist.Store:
    return store._underlying_non_prefix_store if isinstance(store, dist.PrefixStore) else store
