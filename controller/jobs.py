"""A job on one switch: its id, epoch, token and slot range, and its workers."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from controller.slots import SlotRange
from host_agent.job_api.job_request import JobRequest
from host_agent.wire.admission import Admission
from netsum_common.targets import Capabilities
from topologies.addresses import ipv4_int, mac_int


@dataclass(frozen=True)
class WorkerEndpoint:
    """A worker's port and addresses, as its switch sees them."""

    port: int  # The switch port on which the worker's packets arrive.
    # ip, mac: the worker's addresses, to which results are sent.
    ip: str
    mac: str
    udp_port: int  # The UDP port on which the worker receives.
    worker_id: int | None = None  # The worker's bit in the worker bitmap; None: its position in the list.
    # (address, UDP port) to which the worker sends; None: the switch's own address.
    switch: tuple[str, int] | None = None
    # Whether the endpoint is a switch below this one. Switches distinguish jobs by their ids, so several jobs may have the
    # same switch as a child.
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
    """The link to the parent in the job's tree of switches, to which a switch sends its sums."""

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

    request: JobRequest  # The request of the job's first worker or its operator.
    # job_id, epoch, token: carried by the job's packets; the switch admits no packet with others.
    job_id: int
    epoch: int
    token: int
    slots: SlotRange  # The job's slots on the switch.
    capabilities: Capabilities  # The capabilities of the switch's program.
    # The switch's children in order of their worker ids: workers and, in a tree, switches below. `worker_id` and `switch`
    # are always filled in.
    workers: tuple[WorkerEndpoint, ...]
    # The switch above in the job's tree; None: this switch is the root, which makes the results.
    parent: ParentLink | None = None

    @property
    def name(self) -> str:
        """The users' name for the job; unique among the switch's jobs."""
        return self.request.name

    @property
    def admissions(self) -> list[Admission]:
        """The admission of each worker, in order of worker ids."""
        return [
            Admission(
                job_id=self.job_id,
                token=self.token,
                epoch=self.epoch,
                worker_id=worker_id,
                num_workers=len(self.workers),
                slot_count=self.slots.count,
                lanes=self.capabilities.lanes,
                switch=worker.switch or ("", 0),  # Refused; the ledger admits no worker without one.
                quorum=self.request.quorum,
                header_only=int(self.capabilities.header_only),
            )
            for worker_id, worker in enumerate(self.workers)
        ]


def another_token(than: int, new_token: Callable[[], int] = lambda: secrets.randbits(32)) -> int:
    """Return a token that differs from an old one."""
    while (token := new_token()) == than:
        pass
    return token
