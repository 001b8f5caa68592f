"""Joining a job."""

import os
from collections.abc import Sequence

from host_agent.errors import MisuseError
from host_agent.job_api import CONTROLLER_VARIABLE
from host_agent.job_api.job_request import JobRequest
from host_agent.job_api.slot_request import IfFull, Slots
from host_agent.joining.addresses import hardware_addresses, own_addresses
from host_agent.joining.join_errors import JoinError
from host_agent.joining.leaf import machine, wants_leaf
from host_agent.joining.membership import Membership
from netsum_common.channel import TlsFiles


def join(
    controller: str | None = None,
    *,
    job: str,
    rank: int | None = None,
    world_size: int | None = None,
    slots: Slots | None = None,
    if_full: IfFull = "refuse",
    queue_s: float = 0.0,
    addresses: Sequence[str] | None = None,
    join_token: str = "",
    switch: str = "",
    weight: float = 1.0,
    quorum: int = 0,
    host_leaf: bool | None = None,
    tls: TlsFiles | None = None,
    timeout_s: float = 60.0,
    start: bool = True,
) -> Membership:
    """Join a job, and return when all its workers have joined.

    Parameters
    ----------
    controller : str, optional
        "HOST:PORT" or "unix:PATH" of the controller service; None takes ``NETSUM_CONTROLLER``.
    job : str
        Name of the job; the same for all its workers, and for no other job: letters, digits, dots, dashes and underscores.
    rank, world_size : int, optional
        Which worker this is, of how many. None: it is added to a running job, which has it from the next `Membership.resize` on.
    slots : int, BandwidthDelay or Share, optional
        How many chunks may be in flight; a number must be a power of two. The first worker's request counts, unless an
        operator created the job. None leaves it to the controller.
    if_full : {"refuse", "queue", "take less"}
        What to do if too few are free.
    queue_s : float
        With "queue", how long the job may wait; 0: as long as `timeout_s` allows.
    addresses : sequence of str, optional
        IPv4 addresses of this machine; the controller takes the first that is one of its hosts. None finds them out.
    join_token : str
        Of a job that an operator created with one.
    switch : str
        On which switch to add, where there are several; the controller chooses.
    weight : float
        Of the job, where jobs share slots by weight; the first worker's counts.
    quorum : int
        Number of workers whose arrays end a round of the job (`Communicator.begin_round`), which is then on one switch; 0: it
        has no rounds. The first worker's counts, unless an operator created the job.
    host_leaf : bool, optional
        Whether this worker shares a switch on its machine with other ranks of the job there, if the job spans machines; None
        takes ``NETSUM_HOST_LEAF``, or else yes.
    tls : TlsFiles, optional
        Certificates; None takes the ``NETSUM_TLS_*`` variables.
    timeout_s : float
        How long to wait for the controller and for the other workers.
    start : bool
        False returns as soon as the worker has its place. The job starts, and takes slots of the switch, when all its
        workers have called `Membership.start`.

    Raises
    ------
    NoSlotsError
        (a JoinError) The switch has no slots free, and `if_full` does not say to wait.
    AbsentWorkersError
        (a JoinError) Some workers did not join in time.
    JoinError
        With the reason; after `timeout_s` it says who was missing.

    Examples
    --------
    >>> with join(job="digits", rank=0, world_size=4) as membership, membership.communicator() as comm:  # doctest: +SKIP
    ...     total = comm.allreduce(gradients)
    """
    target = controller or os.environ.get(CONTROLLER_VARIABLE)
    if not target:
        raise JoinError(f"no controller is configured: set {CONTROLLER_VARIABLE} to HOST:PORT or unix:PATH")
    if (rank is None) != (world_size is None):
        raise MisuseError("pass both rank and world_size, or neither to be added to a running job")
    request = JobRequest(job, world_size or 0, slots, if_full, queue_s, switch, join_token, weight, quorum)
    joining = request.join_message(rank or 0, own_addresses() if addresses is None else addresses)
    joining.joins = rank is None
    joining.macs.extend(hardware_addresses(joining.addresses))
    if wants_leaf() if host_leaf is None else host_leaf:
        joining.machine = machine()
    return Membership(target, joining, TlsFiles.from_environment() if tls is None else tls, timeout_s, start)
