"""Requests for a job: one value from the caller to the messages of the job API, and from those to the job's record."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from google.protobuf.message import Message

from host_agent.job_api import jobs_pb2
from host_agent.job_api.slot_request import IF_FULL, IfFull, Slots, read_slots, slots_message
from host_agent.wire.constants import VERSION

_LONGEST_S: Final = 1e15
LEAST_QUORUM_SLOTS: Final = 2  # For a job with a quorum; docs/protocol.md gives the reason.


@dataclass(frozen=True)
class JobRequest:
    """A job as its first worker or an operator requests it.

    The controller settles what a request leaves to it, and its records and the parts of jobs on switches keep the request: a
    further option is a field here, a field of the messages in jobs.proto, and its use.

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

    def check(self) -> None:
        """Raise ValueError, one sentence, for a value that no job has."""
        if not 0 <= self.quorum <= self.world_size:
            raise ValueError(f"a quorum is 1 to {self.world_size}, the job's workers, not {self.quorum}")
        if not 0 <= self.weight < 1e6:
            raise ValueError(f"a job's weight is above 0 and below 1,000,000, not {self.weight:g}")
        if not (0 <= self.queue_s <= _LONGEST_S and 0 <= self.idle_s <= _LONGEST_S):
            raise ValueError(f"a job waits 0 s at least, not {min(self.queue_s, self.idle_s):g} s")
        if self.if_full not in IF_FULL:
            raise ValueError(f"if_full is one of {', '.join(IF_FULL)}, not {self.if_full!r}")

    @property
    def least_slots(self) -> int:
        """The fewest slots that the job can run with; the reuse of slots needs more with a quorum."""
        return LEAST_QUORUM_SLOTS if self.quorum else 1

    def create_message(self) -> jobs_pb2.CreateJobRequest:
        """Return the message with which an operator creates the job."""
        return jobs_pb2.CreateJobRequest(**self._fields_of(jobs_pb2.CreateJobRequest))

    def join_message(self, rank: int, addresses: Sequence[str]) -> jobs_pb2.JoinRequest:
        """Return the message with which a worker joins the job; `addresses` are its machine's, the best first."""
        return jobs_pb2.JoinRequest(
            job=self.name,
            rank=rank,
            addresses=addresses,
            packets=VERSION,
            **self._fields_of(jobs_pb2.JoinRequest),
        )

    def _fields_of(self, kind: type[Message]) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in plain_fields(kind)}
        return {**plain, "slots": slots_message(self.slots), "if_full": IF_FULL[self.if_full]}


def plain_fields(kind: type[Message]) -> set[str]:
    """Return the names of the fields that a message and `JobRequest` both have, with the same meaning and form."""
    names = {field.name for field in fields(JobRequest)} - {"slots", "if_full"}
    return names.intersection(kind.DESCRIPTOR.fields_by_name)


def read_job_request(message: jobs_pb2.CreateJobRequest | jobs_pb2.JoinRequest) -> JobRequest:
    """Return the request of a message; ValueError if its value of `if_full` is unknown."""
    word = next((word for word, number in IF_FULL.items() if number == message.if_full), None)
    if word is None:
        raise ValueError(f"unknown value {message.if_full} of if_full: expected REFUSE, QUEUE or TAKE_LESS")
    plain: dict[str, Any] = {name: getattr(message, name) for name in plain_fields(type(message))}
    if isinstance(message, jobs_pb2.JoinRequest):
        plain["name"] = message.job
    return JobRequest(slots=read_slots(message.slots), if_full=word, **plain)
