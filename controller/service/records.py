"""A job as the store keeps it: its request, its workers, and its id, epoch and slots."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controller.jobs import Job, Reservation, WorkerEndpoint
from controller.slots import SlotRange
from host_agent.job_api.job_request import JobRequest
from host_agent.job_api.slot_request import Slots


@dataclass
class WorkerRecord:
    """A worker of a job."""

    rank: int  # The worker's rank in the job.
    # host, ip, mac: the worker's host, and the host's addresses.
    host: str
    ip: str
    mac: str
    port: int  # The port of the switch that leads to the worker.
    udp_port: int  # The UDP port on which the worker receives; 0 until the worker has sent it.
    # switch_ip, switch_port: the address and UDP port to which the worker sends.
    switch_ip: str
    switch_port: int
    lease: str  # The secret with which the worker reattaches.
    left: str = ""  # Why the worker has left; empty if it has not.
    leaf: str = ""  # Name of the leaf that ranks of the job on the machine can share; empty: none.

    @property
    def endpoint(self) -> WorkerEndpoint:
        """The worker's endpoint, as its switch sees it."""
        return WorkerEndpoint(
            port=self.port,
            ip=self.ip,
            mac=self.mac,
            udp_port=self.udp_port,
            switch=(self.switch_ip, self.switch_port),
        )


@dataclass
class JobRecord:
    """A job that has not ended: its request and its state."""

    request: JobRequest  # The request, with the controller's defaults; a resize changes its world size.
    switch: str = (
        ""  # The switch that adds for the job; in a tree of switches the root, empty until it is chosen.
    )
    operated: bool = False  # Whether an operator created the job, or it was restarted.
    created: float = 0.0  # Unix time in seconds.
    running: bool = False  # Whether the switch holds, or may hold, the current epoch.
    restarts: int = 0  # Number of earlier epochs.
    # job_id, slot_base, slot_count: the job's id and slots; 0 while it has none.
    job_id: int = 0
    slot_base: int = 0
    slot_count: int = 0
    # epoch, token: the current epoch and its token; epoch 0 before the first.
    epoch: int = 0
    token: int = 0
    lanes: int = 0  # The lanes of the switch's program.
    spread: bool = False  # Whether each switch with workers of the job adds for them, in a tree of switches.
    # The first slot on each switch below `switch` in its tree, by the switch's name.
    below: dict[str, int] = field(default_factory=dict)
    moves: int = 0  # How often the job has got other slots while it ran.
    # The epoch from which the workers moved to the current one without a restart; 0: none.
    moved_from: int = 0
    aggregator: str = ""  # The host that adds for the job in place of switches; empty: none does.
    home: str = ""  # The switch to which a job on a host returns; empty: the root of a tree chosen then.
    workers: dict[int, WorkerRecord] = field(default_factory=dict)  # The workers that have joined, by rank.

    @property
    def name(self) -> str:
        """The job's name."""
        return self.request.name

    @property
    def world_size(self) -> int:
        """How many workers the job has."""
        return self.request.world_size

    @property
    def slots(self) -> Slots:
        """The slots that the job is to have: as requested, or the controller's default."""
        assert self.request.slots is not None, "the controller has settled it"
        return self.request.slots

    @property
    def queue(self) -> str:
        """The name of the job's queue: its switch, or empty for all jobs on trees and on hosts."""
        return "" if self.spread or self.request.on_host else self.home or self.switch

    @property
    def slots_on(self) -> dict[str, SlotRange]:
        """The job's slots on each of its switches, the root first; empty while the job has no id."""
        if not self.job_id:
            return {}
        bases = {self.switch: self.slot_base, **self.below}
        return {switch: SlotRange(base, self.slot_count) for switch, base in bases.items()}

    def hold(self, held: Mapping[str, Job | Reservation]) -> None:
        """Record the job's parts or reservations, by the switches' names, the root first."""
        self.switch, root = next(iter(held.items()))
        self.job_id, self.slot_base, self.slot_count = root.job_id, root.slots.base, root.slots.count
        self.below = {switch: part.slots.base for switch, part in held.items() if switch != self.switch}
        if isinstance(root, Job):
            self.epoch, self.token, self.lanes = root.epoch, root.token, root.capabilities.lanes

    def release(self) -> None:
        """Record that the job holds no slots on any switch."""
        self.job_id = self.slot_base = self.slot_count = 0
        self.below = {}
        if self.aggregator:
            self.switch, self.aggregator, self.home = self.home, "", ""
        if self.spread:
            self.switch = ""

    def copy(self) -> "JobRecord":
        """Return a copy that shares nothing with this record."""
        workers = {rank: replace(worker) for rank, worker in self.workers.items()}
        return replace(self, below=dict(self.below), workers=workers)

    def at_home(self) -> "JobRecord":
        """Return a copy of the record in which the job holds no slots."""
        home = replace(self, below={})
        home.release()
        return home
