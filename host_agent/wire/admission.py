"""The admission that a worker is given when it joins a job."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from host_agent.errors import AdmissionError
from host_agent.wire.constants import MAX_CHILDREN, MAX_JOB_ID, POOL_SLOTS, UDP_PORT
from host_agent.wire.path import Path, check_path, one_switch, path_of
from netsum_common.lane_counts import LANE_COUNTS


@dataclass(frozen=True, slots=True)
class Admission:
    """A worker's place in one epoch of a job, as the controller wrote it into the switch.

    Parameters
    ----------
    job_id : int
        1…255.
    token : int
        Random, 32 bits, new in every epoch.
    epoch : int
        1…2^32 − 1; unique on the switch. Not sent: the switch knows it.
    worker_id : int
        The worker's at its switch, 0…`num_workers` − 1; its bit in the switch's worker bitmap.
    num_workers : int
        Of its switch, 1…32.
    slot_count : int
        Slots of this job, a power of two; as many chunks are in flight.
    lanes : int
        32-bit elements of a packet, one of `LANE_COUNTS`, as the switch's program was compiled.
    switch : (str, int)
        IPv4 address (or name) and UDP port of the switch.
    path : tuple of Level
        The switches from the worker's own to the root of the job's tree. Empty: the job is on one switch, where
        worker ids are ranks.
    quorum : int
        Number of contributions that complete a quorum chunk of the job; 0: it has none.
    header_only : int
        1 if the job's switches leave the lanes out of a RESULT for a worker that says it needs none (FLAG_HEADER_ONLY).

    Raises
    ------
    AdmissionError
        If a value is out of range or has another type.
    """

    job_id: int
    token: int
    epoch: int
    worker_id: int
    num_workers: int
    slot_count: int
    lanes: int
    switch: tuple[str, int] = ("127.0.0.1", UDP_PORT)
    path: Path = ()
    quorum: int = 0
    header_only: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in ("switch", "path") and (
                not isinstance(value, int) or isinstance(value, bool)
            ):
                raise AdmissionError(f"admission: {field.name} must be an integer, got {value!r}")
        _check_range("job_id", self.job_id, 1, MAX_JOB_ID)
        _check_range("token", self.token, 0, 0xFFFFFFFF)
        _check_range("epoch", self.epoch, 1, 0xFFFFFFFF)
        _check_range("num_workers", self.num_workers, 1, MAX_CHILDREN)
        _check_range("worker_id", self.worker_id, 0, self.num_workers - 1)
        _check_range("slot_count", self.slot_count, 1, POOL_SLOTS)
        if self.slot_count & (self.slot_count - 1):
            raise AdmissionError(f"admission: slot_count must be a power of two, got {self.slot_count}")
        if self.lanes not in LANE_COUNTS:
            choices = " or ".join(map(str, LANE_COUNTS))
            raise AdmissionError(f"admission: lanes must be {choices}, got {self.lanes}")
        match self.switch:
            case (str(host), int(port)) if host and 1 <= port <= 0xFFFF:
                pass
            case _:
                raise AdmissionError(
                    f"admission: switch must be (address, UDP port), such as ('127.0.0.1', {UDP_PORT}), got {self.switch!r}"
                )

        _check_range("quorum", self.quorum, 0, self.num_workers)
        _check_range("header_only", self.header_only, 0, 1)
        if self.quorum and self.slot_count < 2:
            raise AdmissionError("admission: a job with a quorum has two slots at least")
        if not self.path:
            object.__setattr__(self, "path", one_switch(self.worker_id, self.num_workers))
        check_path(self.path)
        if self.quorum and len(self.path) > 1:
            raise AdmissionError("admission: a job with a quorum is on one switch")
        own = self.path[0]
        if (own.worker_id, len(own.children)) != (self.worker_id, self.num_workers):
            raise AdmissionError(
                f"admission: path begins at worker {own.worker_id} of {len(own.children)}, but worker_id is "
                f"{self.worker_id} of {self.num_workers}"
            )

    @property
    def rank(self) -> int:
        """The worker's number in its job, 0…`world_size` − 1."""
        return self.path[0].children[self.worker_id][0]

    @property
    def world_size(self) -> int:
        """How many workers the job has."""
        return len(self.path[-1].ranks)

    def to_json(self) -> str:
        """Return the admission as a JSON object, for handing to another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> "Admission":
        """Read what `to_json` wrote.

        Raises
        ------
        AdmissionError
            If it is not a JSON object with exactly these members, each in its range.
        """
        try:
            members = json.loads(text)
        except (ValueError, UnicodeDecodeError) as error:
            raise AdmissionError(f"admission: not JSON ({error})") from None
        if not isinstance(members, dict):
            raise AdmissionError(f"admission: expected a JSON object, got {type(members).__name__}")
        names = {field.name for field in fields(cls)}
        required = names - {"switch", "path", "quorum", "header_only"}
        if not required <= members.keys() <= names:
            wrong = sorted((required - members.keys()) | (members.keys() - names))
            raise AdmissionError(f"admission: missing or unknown members {', '.join(wrong)}")
        if "path" in members:
            members["path"] = path_of(members["path"])
        return cls(**{name: _as_tuple(value) for name, value in members.items()})


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise AdmissionError(f"admission: {name} must be {low}…{high}, got {value}")
