"""Jobs, hosts and transitions as rows of the state file, and checks of the values in rows.

A value that no controller writes, left by an editor or a broken disk, raises ValueError; the message names the value.
"""

import json
from dataclasses import asdict, fields
from typing import Any, Final

from controller.service.records import JobRecord
from controller.service.sizing import slots_for
from host_agent.job_api.job_request import JobRequest
from host_agent.job_api.slot_request import BandwidthDelay, Share, Slots
from host_agent.wire.constants import MAX_JOB_ID, MAX_WORLD_SIZE
from netsum_common.channel import check_target
from topologies.addresses import ipv4_int, ipv4_prefix, mac_int

_BOOLEANS: Final = ("operated", "running", "spread")
_WORDS: Final = range(1 << 32)  # Numbers of 32 bits.
_PORTS: Final = range(1 << 16)
_COUNTS: Final = range(1 << 31)
_LONGEST: Final = 1e15  # Limit of a number of seconds.
_REQUEST_COLUMNS: Final = (
    *("name", "world_size", "slots", "if_full", "queue_s", "join_token", "idle_s", "weight", "quorum"),
)
"""The fields of a request that table `job` has columns for; the others are rows of table `option`."""
_DEFAULTS: Final = {field.name: field.default for field in fields(JobRequest)}


def job_row(job: JobRecord) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the columns of a job without its workers, and the options of its request that have no column, as JSON."""
    row, request = _shallow(job), _shallow(job.request)
    del row["request"], row["workers"]
    request["slots"] = json.dumps(job.slots if isinstance(job.slots, int) else asdict(job.slots))
    columns = {name: request.pop(name) for name in _REQUEST_COLUMNS}
    options = {name: json.dumps(value) for name, value in request.items() if value != _DEFAULTS[name]}
    return {**row, **columns, "below": json.dumps(job.below)}, options


def read_job(row: dict[str, Any], options: dict[str, str]) -> JobRecord:
    """Return a job without its workers from its columns and options; skip options of a later netsum."""
    row = {**row}
    asked = {name: row.pop(name) for name in _REQUEST_COLUMNS}
    asked["slots"] = _read_slots(asked["slots"])
    for name, text in options.items():
        if name in _DEFAULTS:
            asked[name] = json.loads(text)
            _require(type(asked[name]) is type(_DEFAULTS[name]), name, asked[name])
    row |= {name: bool(row[name]) for name in _BOOLEANS} | {"below": json.loads(row["below"])}
    return JobRecord(JobRequest(**asked), **row)


def _shallow(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _read_slots(text: str) -> Slots:
    match json.loads(text):
        case {"part": part}:
            return Share(part)
        case {"link_bits_per_s": rate, "rtt_s": rtt}:
            return BandwidthDelay(rate, rtt)
        case count:
            return int(count)


def check_job(job: JobRecord) -> None:
    """Refuse a job with values that no controller writes."""
    ranges = {
        "world_size": range(1, MAX_WORLD_SIZE + 1),
        "job_id": range(1 if job.running else 0, MAX_JOB_ID + 1),
        "lanes": range(1 if job.running else 0, 1 << 16),
        "epoch": _WORDS[1:] if job.running else _WORDS,
        **dict.fromkeys(("token", "moved_from"), _WORDS),
        **dict.fromkeys(("restarts", "moves"), _COUNTS),
    }
    for name, possible in ranges.items():
        _require(getattr(job, name) in possible, name, getattr(job, name))
    _require(0 <= job.created <= _LONGEST, "created", job.created)
    job.request.check()
    slots_for(job.slots, 1, 1)
    _require(all(isinstance(base, int) for base in job.below.values()), "below", job.below)
    _require(bool(job.job_id) or not (job.slot_base or job.slot_count), "job_id", job.job_id)
    for held in job.slots_on.values():
        count = held.count
        aligned = count > 0 and not count & (count - 1) and held.base >= 0 and held.base % count == 0
        _require(aligned, "slots", f"{held.base} to {held.end - 1}")
    ranks = list(range(job.world_size))
    _require(set(job.workers) <= set(ranks), "ranks", sorted(job.workers))
    _require(not job.running or sorted(job.workers) == ranks, "ranks", sorted(job.workers))
    for worker in job.workers.values():
        ipv4_int(worker.ip), ipv4_int(worker.switch_ip)
        _require(worker.switch_port in _PORTS, "switch_port", worker.switch_port)
        if worker.udp_port or job.running:
            # Making the endpoint checks the rest.
            _require(worker.endpoint is not None, "endpoint", worker)


def check_host(row: dict[str, Any]) -> None:
    """Refuse a switch on a host with values that no controller writes."""
    ipv4_int(row["ip"])
    check_target(row["p4runtime"])
    _require(row["device_id"] >= 0, "device_id", row["device_id"])
    _require(row["udp_port"] in _PORTS[1:], "udp_port", row["udp_port"])
    if row["mac"]:
        mac_int(row["mac"])
    if row["workers"]:
        ipv4_prefix(row["workers"])


def check_transition(rank: int) -> None:
    """Refuse a transition with a rank that no job has."""
    _require(rank == -1 or rank in _WORDS, "rank", rank)


def _require(holds: bool, name: str, value: object) -> None:
    if not holds:
        raise ValueError(f"{name} is {value}")
