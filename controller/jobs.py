"""A job of one switch and what it holds: id, epoch, token, slot range."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from controller.addresses import ipv4_int, mac_int
from controller.errors import JobRefusedError
from controller.slots import SlotRange
from host_agent.wire.admission import Admission

LEAST_QUORUM_SLOTS = 2  # Of a job with a quorum: docs/protocol.md says why.


@dataclass(frozen=True)
class WorkerEndpoint:
    """Where a worker is, as the switch sees it."""

    port: int  # The switch port its packets come in on.
    # ip, mac: its addresses; results are sent to them.
    ip: str
    mac: str
    udp_port: int  # The UDP port it receives on.
    worker_id: int | None = None  # Its bit in the worker bitmap; None takes its place in the list.
    # (address, UDP port) this worker sends to; None takes the switch's own address.
    switch: tuple[str, int] | None = None
    # It is a switch below this one. Switches distinguish jobs by their numbers, so several jobs may name the same one.
    is_switch: bool = False

    def __post_init__(self) -> None:
        ipv4_int(self.ip)
        mac_int(self.mac)
        if not 0 <= self.port < 510:
            raise ValueError(f"a switch port is 0 to 509 (510 is the CPU, 511 drops), not {self.port}")
        if not 0 < self.udp_port < 65536:
            raise ValueError(f"a UDP port is 1 to 65535, not {self.udp_port}")


@dataclass(frozen=True)
class ParentLink:
    """Where a switch sends what its children have added: its parent in the job's tree of switches."""

    port: int  # The switch port that leads to the parent.
    # ip, mac: the parent's addresses.
    ip: str
    mac: str
    worker_id: int  # The switch's worker id at the parent.


@dataclass(frozen=True)
class Reservation:
    """A job id and slots, held for a job whose workers are not known yet."""

    name: str
    job_id: int
    slots: SlotRange


@dataclass(frozen=True)
class Job:
    """One epoch of a job on a switch; a restart makes a new one with another epoch and token."""

    name: str  # As users know it; unique among the switch's jobs.
    # job_id, epoch, token: what its packets carry and what the switch admits them by.
    job_id: int
    epoch: int
    token: int
    slots: SlotRange  # Its slot range.
    lanes: int  # int32 values a packet carries, fixed by the switch's program.
    # Its workers, in order of their ids; `worker_id` and `switch` are always filled in. In a tree these are the
    # children of the switch, workers and switches below it.
    workers: tuple[WorkerEndpoint, ...]
    # The switch above in the job's tree; None: there is none, the switch makes the results.
    parent: ParentLink | None = None
    quorum: int = 0  # Contributions that complete a roll call; 0: the job has none.
    cuts_copies: bool = (
        False  # Whether the switch's program leaves out lanes of a RESULT that a worker does not need.
    )

    @property
    def admissions(self) -> list[Admission]:
        """What each worker needs to take part, in order of worker ids."""
        return [
            Admission(
                job_id=self.job_id,
                token=self.token,
                epoch=self.epoch,
                worker_id=worker_id,
                num_workers=len(self.workers),
                slot_count=self.slots.count,
                lanes=self.lanes,
                switch=switch_of(worker),
                quorum=self.quorum,
                cuts_copies=int(self.cuts_copies),
            )
            for worker_id, worker in enumerate(self.workers)
        ]


def check_quorum(quorum: int, workers: int, slots: int) -> None:
    """Refuse a quorum that a job cannot have.

    Raises JobRefusedError if it is not one of its workers, or the job has fewer slots than the reuse of slots then needs.
    """
    if not 0 <= quorum <= workers:
        raise JobRefusedError(f"a quorum is 1 to {workers}, the job's workers, not {quorum}")
    if quorum and slots < LEAST_QUORUM_SLOTS:
        raise JobRefusedError(f"a job with a quorum needs {LEAST_QUORUM_SLOTS} slots, not {slots}")


def another_token(than: int, new_token: Callable[[], int] = lambda: secrets.randbits(32)) -> int:
    """Return a token that differs from an old one."""
    while (token := new_token()) == than:
        pass
    return token


def switch_of(worker: WorkerEndpoint) -> tuple[str, int]:
    """Return the address a worker of a job sends to.

    Raises ValueError if the worker is not one of a `Job`, which has it filled in.
    """
    if worker.switch is None:
        raise ValueError("only the workers of a Job have the switch's address filled in")
    return worker.switch
