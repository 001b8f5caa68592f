"""Validation of requests of workers and operators. Every refusal is one sentence.

Failures raise `RefusalError` with the reason.
"""

import secrets
from collections import deque
from collections.abc import Iterable

from google.protobuf.message import Message

from controller.service.jobs import Kind, RefusalError, ServiceJob
from controller.service.network import ControlledNetwork, HostSite
from controller.service.records import JobRecord
from host_agent.job_api import jobs_pb2
from host_agent.job_api.job_request import JobRequest, read_job_request
from host_agent.job_api.tickets import FIRST_VERSION
from host_agent.wire.constants import MAX_CHILDREN, VERSION
from host_agent.words import plural
from netsum_common.names import check_name
from topologies.addresses import mac_int


class DisagreementError(RefusalError):
    """The workers of a job do not agree on its world size, or are not on the one switch of its quorum."""


def host_for(
    network: ControlledNetwork, request: jobs_pb2.JoinRequest, jobs: Iterable[ServiceJob], aggregators: bool
) -> HostSite:
    """Return the host a worker runs on.

    If `ControlledNetwork.any_place` allows any host, the one with the fewest workers of the same job is chosen; among equals,
    the one with the fewest workers of all jobs, then the first one from number `rank` on.

    With `aggregators`, a worker's host need not be on a switch, as workers reach aggregators without one.
    """
    host = network.host_of(request.addresses)
    if host is not None:
        return host
    if network.any_place:
        taken = dict.fromkeys(network.hosts, (0, 0))
        for job in jobs:
            for member in job.current_and_joining():
                of_the_job, of_all = taken[member.worker.host]
                taken[member.worker.host] = of_the_job + (job.name == request.job), of_all + 1
        from_rank = deque(network.hosts)
        from_rank.rotate(-request.rank)
        return network.hosts[min(from_rank, key=taken.__getitem__)]
    if aggregators and request.addresses:
        ip = request.addresses[0]
        mac = request.macs[0] if request.macs else ""
        if mac:
            try:
                mac_int(mac)
            except ValueError as error:
                raise RefusalError(Kind.WRONG, f"worker {request.rank} at {ip}: {error}") from None
        return HostSite(f"host-{ip}", ip, mac, "")
    if not network.switches:
        raise RefusalError(
            Kind.FULL,
            "the network has no switch, and no host adds for jobs: start `netsum aggregator serve` on one",
        )
    known = ", ".join(f"{host.name} ({host.ip})" for host in list(network.hosts.values())[:8])
    has = " and ".join(request.addresses[:4]) or "no address"
    raise RefusalError(
        Kind.WRONG,
        f"worker {request.rank} runs on no host of this controller: its addresses are {has}; the hosts are {known}",
    )


def check_version(request: jobs_pb2.JoinRequest) -> None:
    """Raise RefusalError for a worker whose packets the switches would drop."""
    version = request.packets or FIRST_VERSION
    if version != VERSION:
        raise RefusalError(
            Kind.WRONG,
            f"worker {request.rank} exchanges packets of version {version}, the switches of this controller of version "
            f"{VERSION}: install the same netsum for workers, controller and switches",
        )


def check_join(job: ServiceJob, request: jobs_pb2.JoinRequest) -> None:
    """Refuse a worker that cannot join a job.

    Raises DisagreementError if the worker's world size differs from that of earlier workers, and the job neither was created by
    an operator nor runs. Raises RefusalError if the worker cannot join; the message gives the reason.
    """
    record = job.record
    if record.request.join_token and not same_secret(record.request.join_token, request.join_token):
        raise RefusalError(
            Kind.FORBIDDEN,
            f"job {job.name} requires its join token: "
            + ("the worker sent a different one" if request.join_token else "the worker sent none"),
        )
    if request.joins:
        if not record.running:
            raise RefusalError(
                Kind.NOT_NOW, f"job {job.name} does not run yet: join it with a rank and its world size"
            )
        return
    if request.world_size != record.world_size:
        if record.operated or record.running:
            raise RefusalError(
                Kind.WRONG,
                f"job {job.name} has {plural(record.world_size, 'worker')}, but worker {request.rank} expects "
                f"{request.world_size}",
            )
        raise DisagreementError(
            Kind.WRONG,
            f"the workers of job {job.name} do not agree on its world size: worker {request.rank} expects "
            f"{request.world_size}, earlier ones expect {record.world_size}",
        )
    if request.rank >= record.world_size:
        raise RefusalError(
            Kind.WRONG,
            f"job {job.name} has ranks 0 to {record.world_size - 1}, not {request.rank}",
        )
    member = job.members.get(request.rank)
    if member is None:
        return
    if member.worker.left:
        raise RefusalError(
            Kind.NOT_NOW,
            f"worker {request.rank} of job {job.name} has left ({member.worker.left}): restart the job to let it join again",
        )
    if member.outbox is None and not record.running:
        job.remove_member(request.rank)  # The detached worker comes back without its lease, or is replaced.
        return
    raise RefusalError(
        Kind.TAKEN,
        f"worker {request.rank} of job {job.name} has already joined, on {member.worker.host} ({member.worker.ip})",
    )


def same_secret(held: str, shown: str) -> bool:
    """Compare two secrets in constant time."""
    return secrets.compare_digest(held.encode(), shown.encode())


MAX_NUMBER = 1e15  # Limit of the durations, rates, weights and shares in a message.
MAX_TEXT = 1000
"""Limit of the characters of a text and the elements of a list in a message; errors quote them and must fit a gRPC trailer."""


def check_message(message: Message) -> None:
    """Refuse a message with an invalid value at any depth.

    Invalid are floating-point numbers that are NaN or too large, negative durations, and texts or lists that are too long or not
    printable.
    """
    for field, value in message.ListFields():
        several = not isinstance(value, str | bytes | Message) and hasattr(value, "__len__")
        if several and len(value) > MAX_TEXT:
            raise RefusalError(
                Kind.WRONG, f"expected at most {MAX_TEXT} elements as {field.name}, not {len(value)}"
            )
        for each in value if several else (value,):
            _check_value(field.name, each)


def _check_value(name: str, value: object) -> None:
    if isinstance(value, Message):
        check_message(value)
    elif isinstance(value, str) and (len(value) > MAX_TEXT or not value.isprintable()):
        raise RefusalError(
            Kind.WRONG, f"expected at most {MAX_TEXT} printable characters as {name}, not {value[:40]!r}"
        )
    elif isinstance(value, float):
        least = 0.0 if name.endswith("_s") else -MAX_NUMBER
        if not least <= value <= MAX_NUMBER:
            raise RefusalError(
                Kind.WRONG, f"expected a number from {least:g} to {MAX_NUMBER:g} as {name}, not {value:g}"
            )


def check_new_name(name: str, of: str) -> None:
    """Refuse an invalid name of a new job or aggregator; known names are not checked, as older state files may have others."""
    try:
        check_name(name)
    except ValueError as expected:
        raise RefusalError(Kind.WRONG, f"{of}: {expected}") from None


def check_udp_port(port: int) -> None:
    """Refuse an invalid UDP port."""
    if not 0 < port < 0x10000:
        raise RefusalError(Kind.WRONG, f"a UDP port is 1 to 65535, not {port}")


def check_request(request: JobRequest) -> None:
    """Refuse a request with an invalid value."""
    try:
        request.check()
    except ValueError as expected:
        raise RefusalError(Kind.WRONG, str(expected)) from None


def check_quorum_switch(record: JobRecord, rank: int, host: HostSite) -> None:
    """Refuse a worker of a job with a quorum that is on another switch than the job.

    Raises DisagreementError, which ends the job, if no operator created it, as its workers would wait for each other in vain.
    Raises RefusalError if an operator created it, as another worker may take this one's place.
    """
    if not record.request.quorum or host.switch in ("", record.home or record.switch):
        return
    kind = RefusalError if record.operated else DisagreementError
    raise kind(
        Kind.WRONG,
        f"a job with a quorum is added on one switch: worker {rank} of job {record.name} is on switch {host.switch}, not on "
        f"{record.home or record.switch}",
    )


def check_world(world_size: int, most: int) -> None:
    """Refuse an invalid world size.

    `most`: the number of workers for which the switches can add.
    """
    if not 1 <= world_size <= most:
        of_a_tree = f" here, {MAX_CHILDREN} at each switch" if most > MAX_CHILDREN else ""
        raise RefusalError(Kind.WRONG, f"a job has 1 to {most} workers{of_a_tree}, not {world_size}")


def read_request(message: jobs_pb2.CreateJobRequest | jobs_pb2.JoinRequest) -> JobRequest:
    """Read an operator's or a joining worker's request for a job; raise RefusalError if a value is unknown."""
    try:
        return read_job_request(message)
    except ValueError as unknown:
        raise RefusalError(Kind.WRONG, str(unknown)) from None
