"""A job as the store keeps it: its request, its workers, what it holds on its switch."""

from dataclasses import dataclass, field

from controller.jobs import Job, Reservation, WorkerEndpoint
from controller.slots import SlotRange
from host_agent.wire.slot_request import IfFull, Slots


@dataclass
class WorkerRecord:
    """A worker of a job.

    Attributes
    ----------
    rank
        Its rank in the job.
    host, ip, mac
        Its host, and that host's addresses.
    port
        The port of the job's switch that leads to the worker.
    udp_port
        The UDP port it receives on; 0 until it has sent it.
    switch_ip, switch_port
        The address and UDP port that it sends to.
    lease
        The secret with which it reattaches.
    left
        Why it has left; empty if it has not.
    """

    rank: int
    host: str
    ip: str
    mac: str
    port: int
    udp_port: int
    switch_ip: str
    switch_port: int
    lease: str
    left: str = ""

    @property
    def endpoint(self) -> WorkerEndpoint:
        """The worker as the switch sees it."""
        return WorkerEndpoint(
            port=self.port,
            ip=self.ip,
            mac=self.mac,
            udp_port=self.udp_port,
            worker_id=self.rank,
            switch=(self.switch_ip, self.switch_port),
        )


@dataclass
class JobRecord:
    """A job that has not ended.

    Attributes
    ----------
    name, switch, world_size, slots, if_full, queue_s, join_token, idle_s
        The request.
    operated
        Whether an operator created it; else its first worker did.
    created
        Unix time in seconds.
    running
        Whether the switch holds, or may hold, the current epoch.
    restarts
        Number of earlier epochs.
    job_id, slot_base, slot_count
        Its id and slots; 0 while it has none.
    epoch, token
        The current epoch and its token; epoch 0 before the first.
    lanes
        Of the switch's program.
    workers
        The workers that have joined, by rank.
    """

    name: str
    switch: str
    world_size: int
    slots: Slots
    if_full: IfFull
    queue_s: float
    join_token: str
    idle_s: float
    operated: bool
    created: float
    running: bool = False
    restarts: int = 0
    job_id: int = 0
    slot_base: int = 0
    slot_count: int = 0
    epoch: int = 0
    token: int = 0
    lanes: int = 0
    workers: dict[int, WorkerRecord] = field(default_factory=dict)

    def hold(self, held: Job | Reservation) -> None:
        """Store what the job holds on its switch."""
        self.job_id, self.slot_base, self.slot_count = held.job_id, held.slots.base, held.slots.count
        if isinstance(held, Job):
            self.epoch, self.token, self.lanes = held.epoch, held.token, held.lanes

    def held(self) -> Job | Reservation | None:
        """Return what the job holds on its switch."""
        if not self.job_id:
            return None
        slots = SlotRange(self.slot_base, self.slot_count)
        if not self.epoch:
            return Reservation(self.name, self.job_id, slots)
        workers = tuple(self.workers[rank].endpoint for rank in sorted(self.workers))
        return Job(self.name, self.job_id, self.epoch, self.token, slots, self.lanes, workers)
