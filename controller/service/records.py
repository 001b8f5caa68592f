"""A job as the service keeps it: what was asked for, who has come, what it holds on its switch."""

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
        Its worker id.
    host, ip, mac
        Where it is.
    port
        The port of the job's switch it is reached by.
    udp_port
        Where it receives; 0 until it has said so.
    switch_ip, switch_port
        Where it sends to.
    lease
        The secret by which it attaches again.
    left
        Why it has left; empty while it has not.
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
        """Where it is, as the switch sees it."""
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
        As asked for.
    operated
        Whether an operator created it; else its first worker did.
    created
        Unix time in seconds.
    running
        Whether its present epoch is, or may be, in the switch.
    restarts
        Epochs it had before the present one.
    job_id, slot_base, slot_count
        What it holds; 0 while it holds nothing.
    epoch, token
        Of its present life; epoch 0 before the first.
    lanes
        Of the switch's program.
    workers
        Who has come, by rank.
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
        """Take down what it holds on its switch."""
        self.job_id, self.slot_base, self.slot_count = held.job_id, held.slots.base, held.slots.count
        if isinstance(held, Job):
            self.epoch, self.token, self.lanes = held.epoch, held.token, held.lanes

    def held(self) -> Job | Reservation | None:
        """Return what it holds on its switch."""
        if not self.job_id:
            return None
        slots = SlotRange(self.slot_base, self.slot_count)
        if not self.epoch:
            return Reservation(self.name, self.job_id, slots)
        workers = tuple(self.workers[rank].endpoint for rank in sorted(self.workers))
        return Job(self.name, self.job_id, self.epoch, self.token, slots, self.lanes, workers)
