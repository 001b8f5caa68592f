"""A job as the store keeps it: its request, its workers, what it holds on its switch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controller.jobs import Job, Reservation, WorkerEndpoint
from controller.slots import SlotRange
from host_agent.job_api.job_request import JobRequest
from host_agent.job_api.slot_request import Slots


@dataclass
class WorkerRecord:
    """A worker of a job."""

    rank: int  # Its rank in the job.
    # host, ip, mac: its host, and that host's addresses.
    host: str
    ip: str
    mac: str
    port: int  # The port of the switch that leads to the worker.
    udp_port: int  # The UDP port it receives on; 0 until it has sent it.
    # switch_ip, switch_port: the address and UDP port that it sends to.
    switch_ip: str
    switch_port: int
    lease: str  # The secret with which it reattaches.
    left: str = ""  # Why it has left; empty if it has not.
    leaf: str = ""  # The switch on its machine that ranks of the job there can share, by name; empty: none.

    @property
    def endpoint(self) -> WorkerEndpoint:
        """The worker as the switch that adds for it sees it."""
        return WorkerEndpoint(
            port=self.port,
            ip=self.ip,
            mac=self.mac,
            udp_port=self.udp_port,
            switch=(self.switch_ip, self.switch_port),
        )


@dataclass
class JobRecord(JobRequest):
    """A job that has not ended: its request, and what has become of it.

    `switch`: the switch that adds for it; the root of its tree of switches, empty until that is chosen.
    """

    slots: Slots = 0  # As requested, or the controller's default.
    operated: bool = False  # Whether an operator created it; else its first worker did.
    created: float = 0.0  # Unix time in seconds.
    running: bool = False  # Whether the switch holds, or may hold, the current epoch.
    restarts: int = 0  # Number of earlier epochs.
    # job_id, slot_base, slot_count: its id and slots; 0 while it has none.
    job_id: int = 0
    slot_base: int = 0
    slot_count: int = 0
    # epoch, token: the current epoch and its token; epoch 0 before the first.
    epoch: int = 0
    token: int = 0
    lanes: int = 0  # Of the switch's program.
    spread: bool = False  # Whether each switch with workers of the job adds for them, in a tree of switches.
    # The first slot on each switch below `switch` in its tree, by the switch's name.
    below: dict[str, int] = field(default_factory=dict)
    moves: int = 0  # How often it has got other slots while it ran.
    # The epoch before the current one, if its workers go on from that without a restart; else 0.
    moved_from: int = 0
    aggregator: str = ""  # The host that adds for it in place of switches; empty: none does.
    home: str = ""  # The switch that it returns to from there; empty: whichever its tree has then.
    workers: dict[int, WorkerRecord] = field(default_factory=dict)  # The workers that have joined, by rank.

    @property
    def queue(self) -> str:
        """The queue it waits in: that of its switch, or the one of all jobs on trees."""
        return "" if self.spread or self.on_host else self.home or self.switch

    @property
    def slots_on(self) -> dict[str, SlotRange]:
        """What it holds on each of its switches, the root first; nothing while it has no id."""
        if not self.job_id:
            return {}
        bases = {self.switch: self.slot_base, **self.below}
        return {switch: SlotRange(base, self.slot_count) for switch, base in bases.items()}

    def hold(self, held: Mapping[str, Job | Reservation]) -> None:
        """Store what the job holds on its switches, by their names, the root first."""
        self.switch, root = next(iter(held.items()))
        self.job_id, self.slot_base, self.slot_count = root.job_id, root.slots.base, root.slots.count
        self.below = {switch: part.slots.base for switch, part in held.items() if switch != self.switch}
        if isinstance(root, Job):
            self.epoch, self.token, self.lanes = root.epoch, root.token, root.lanes

    def release(self) -> None:
        """Note that the job holds nothing, on no switch."""
        self.job_id = self.slot_base = self.slot_count = 0
        self.below = {}
        if self.aggregator:
            self.switch, self.aggregator, self.home = self.home, "", ""
        if self.spread:
            self.switch = ""

    def copy(self) -> "JobRecord":
        """Return a record that later changes of this one leave as it is."""
        workers = {rank: replace(worker) for rank, worker in self.workers.items()}
        return replace(self, below=dict(self.below), workers=workers)

    def at_home(self) -> "JobRecord":
        """Return the record as it would be if the job held nothing; this one stays as it is."""
        home = replace(self, below={})
        home.release()
        return home
