"""Requests for a job: one value from the caller to the messages of the job API, and from those to the job's record."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from host_agent.job_api import jobs_pb2
from host_agent.job_api.slot_request import IF_FULL, IfFull, Slots, slots_message


@dataclass
class JobRequest:
    """A job as its first worker or an operator requests it.

    Attributes
    ----------
    name
        Unique among the jobs that have not ended.
    world_size
        How many workers it has.
    slots
        A power of two, `BandwidthDelay` or `Share`; None: the controller's default.
    if_full
        Action if too few slots are free.
    queue_s
        With "queue", how long it may wait, in seconds; 0: as long as it takes.
    switch
        The switch that adds; empty: the controller chooses.
    join_token
        Secret that its workers must have; empty: none.
    weight
        Among jobs that share slots by weight; 0 stands for 1.
    quorum
        Number of contributions that complete a quorum chunk (`Communicator.begin_round`); 0: it has none.
    idle_s
        How long a job that an operator created waits for a worker, in seconds; 0: the controller's default.
    on_host
        Whether an aggregator on a host is to add for it, not a switch of the network; of a job that an operator creates.
    """

    name: str
    world_size: int
    slots: Slots | None = None
    if_full: IfFull = "refuse"
    queue_s: float = 0.0
    switch: str = ""
    join_token: str = ""
    weight: float = 1.0
    quorum: int = 0
    idle_s: float = 0.0
    on_host: bool = False

    def create_message(self) -> jobs_pb2.CreateJobRequest:
        """Return the message with which an operator creates the job."""
        return jobs_pb2.CreateJobRequest(
            name=self.name, idle_s=self.idle_s, on_host=self.on_host, **self._common_fields()
        )

    def join_message(self, rank: int, addresses: Sequence[str]) -> jobs_pb2.JoinRequest:
        """Return the message with which a worker joins the job; `addresses` are its machine's, the best first."""
        return jobs_pb2.JoinRequest(job=self.name, rank=rank, addresses=addresses, **self._common_fields())

    def _common_fields(self) -> dict[str, Any]:
        plain = {field: getattr(self, field) for field in _PLAIN_FIELDS}
        return {**plain, "slots": slots_message(self.slots), "if_full": IF_FULL[self.if_full]}


_PLAIN_FIELDS = ("world_size", "queue_s", "switch", "join_token", "weight", "quorum")
"""Fields of both messages, with the same meaning as in `JobRequest`."""


def read_job_request(
    message: jobs_pb2.CreateJobRequest | jobs_pb2.JoinRequest, slots: Slots | None, if_full: IfFull
) -> JobRequest:
    """Return the request of a message, given its slots and the action without them."""
    plain: dict[str, Any] = {field: getattr(message, field) for field in _PLAIN_FIELDS}
    if isinstance(message, jobs_pb2.CreateJobRequest):
        plain |= {"name": message.name, "idle_s": message.idle_s, "on_host": message.on_host}
    else:
        plain["name"] = message.job
    return JobRequest(slots=slots, if_full=if_full, **plain)
