"""What a worker is given when it joins a job."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from host_agent.errors import AdmissionError
from host_agent.wire.constants import LANE_COUNTS, MAX_JOB_ID, MAX_WORKERS, POOL_SLOTS, UDP_PORT


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
        0…`num_workers` − 1.
    num_workers : int
        1…32.
    slot_count : int
        Slots of this job, a power of two; as many chunks are in flight.
    lanes : int
        32-bit elements of a packet: 64 or 256, as the switch's program was compiled.
    switch : (str, int)
        IPv4 address (or name) and UDP port of the switch.

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

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "switch" and (not isinstance(value, int) or isinstance(value, bool)):
                raise AdmissionError(f"admission: {field.name} must be an integer, got {value!r}")
        _check_range("job_id", self.job_id, 1, MAX_JOB_ID)
        _check_range("token", self.token, 0, 0xFFFFFFFF)
        _check_range("epoch", self.epoch, 1, 0xFFFFFFFF)
        _check_range("num_workers", self.num_workers, 1, MAX_WORKERS)
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

    def to_json(self) -> str:
        """Return the admission as a JSON object, for handing to another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Admission:
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
        required = names - {"switch"}
        if not required <= members.keys() <= names:
            wrong = sorted((required - members.keys()) | (members.keys() - names))
            raise AdmissionError(f"admission: missing or unknown members {', '.join(wrong)}")
        return cls(**{name: _as_tuple(value) for name, value in members.items()})


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise AdmissionError(f"admission: {name} must be {low}…{high}, got {value}")
