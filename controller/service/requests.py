"""What a worker or an operator asks for, held against what there is; every refusal is one sentence."""

import secrets
from collections.abc import Iterable

from controller.service.jobs import Kind, RefusalError, ServiceJob
from controller.service.network import HostSite, Network
from host_agent.wire import jobs_pb2
from host_agent.wire.constants import MAX_CHILDREN
from host_agent.wire.slot_request import IF_FULL, IfFull, Slots, read_slots


class DisagreementError(RefusalError):
    """The workers of a job do not agree how many they are."""


def host_for(network: Network, request: jobs_pb2.Wish, jobs: Iterable[ServiceJob]) -> HostSite:
    """Return the host a worker is on; where any place will do, the one with the fewest workers.

    Raises
    ------
    RefusalError
        It is on none.
    """
    host = network.host_of(request.addresses)
    if host is not None:
        return host
    if network.any_place:
        taken = dict.fromkeys(network.hosts, 0)
        for job in jobs:
            for seat in job.present():
                taken[seat.worker.host] += 1
        return network.hosts[min(taken, key=lambda name: taken[name])]
    known = ", ".join(f"{host.name} ({host.ip})" for host in list(network.hosts.values())[:8])
    has = " and ".join(request.addresses[:4]) or "no address"
    raise RefusalError(
        Kind.WRONG,
        f"worker {request.rank} runs on no host of this controller: its addresses are {has}; the hosts are {known}",
    )


def check_join(job: ServiceJob, request: jobs_pb2.Wish) -> None:
    """Refuse a worker that cannot sit in a job.

    Raises
    ------
    DisagreementError
        It says another world size than the others: there is no telling who is right.
    RefusalError
        With the reason.
    """
    record = job.record
    if record.join_token and not same_secret(record.join_token, request.join_token):
        raise RefusalError(
            Kind.FORBIDDEN,
            f"job {job.name} requires its join token: "
            + ("the worker sent a different one" if request.join_token else "the worker sent none"),
        )
    if request.world_size != record.world_size:
        if record.operated or record.running:
            raise RefusalError(
                Kind.WRONG,
                f"job {job.name} has {record.world_size} workers, but worker {request.rank} expects {request.world_size}",
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
    seat = job.seats.get(request.rank)
    if seat is None:
        return
    if seat.worker.left:
        raise RefusalError(
            Kind.NOT_NOW,
            f"worker {request.rank} of job {job.name} has left ({seat.worker.left}): restart the job to let it join again",
        )
    if seat.outbox is None and not record.running:
        job.vacate(request.rank)  # The same worker, who forgot its lease, or another in its place.
        return
    raise RefusalError(
        Kind.TAKEN,
        f"worker {request.rank} of job {job.name} has already joined, on {seat.worker.host} ({seat.worker.ip})",
    )


def same_secret(held: str, shown: str) -> bool:
    """Compare in a time that does not tell where two secrets differ."""
    return secrets.compare_digest(held.encode(), shown.encode())


def check_name(name: str) -> None:
    """Refuse a name that no job can have.

    Raises
    ------
    RefusalError
        It is such a name.
    """
    if not name or len(name) > 200 or not name.isprintable():
        raise RefusalError(Kind.WRONG, "a job needs a name of 1 to 200 printable characters")


def check_world(world_size: int) -> None:
    """Refuse a number of workers that no job can have.

    Raises
    ------
    RefusalError
        It is such a number.
    """
    if not 1 <= world_size <= MAX_CHILDREN:
        raise RefusalError(Kind.WRONG, f"a job has 1 to {MAX_CHILDREN} workers, not {world_size}")


def read_slot_request(slots: jobs_pb2.Slots, if_full: int) -> tuple[Slots | None, IfFull]:
    """Read what a job is to get, and what is to be done if that is not free.

    Raises
    ------
    RefusalError
        What is to be done is none of the things that can be.
    """
    word = next((word for word, number in IF_FULL.items() if number == if_full), None)
    if word is None:
        raise RefusalError(
            Kind.WRONG, f"unknown value {if_full} of if_full: expected REFUSE, QUEUE or TAKE_LESS"
        )
    return read_slots(slots), word
