"""Entries and groups that a switch should hold for jobs, addresses and forwarding, as plain values. No I/O.

The names are those of the P4 program; `controller.p4info` turns them into the numbers of a compiled program.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controller.jobs import Job
from host_agent.wire.constants import POOL_VERSIONS
from topologies.addresses import ipv4_int, ipv4_prefix, mac_int

WORKER_ADMISSION = "worker_admission"
SWITCH_ADDRESS = "switch_address"
COPY_REWRITE = "copy_rewrite"
JOB_PARENT = "job_parent"
JOB_QUORUM = "job_quorum"
L2_FORWARD = "l2_forward"
L3_ROUTE = "l3_route"

COUNTERS = (
    "contributions",
    "results",
    "duplicates_answered",
    "duplicates_dropped",
    "stale",
    "not_admitted",
    "out_of_range",
    "mismatches",
    "malformed",
    "probes",
    "late",
)

TREE_COUNTERS = (
    "passed_up",
    "duplicates_passed_up",
    "probes_passed_up",
    "results_taken",
    "statuses_passed_down",
)
"""Further counters of programs that support a parent switch."""

FLOOD_GROUP = 256
"""The multicast group of frames to unknown stations; jobs use the groups of their ids, 1 to 255."""


@dataclass(frozen=True, order=True)
class Prefix:
    """The value of a longest-prefix-match field."""

    value: int
    length: int


Match = int | Prefix


@dataclass(frozen=True)
class Entry:
    """One table entry by name."""

    # table, action: last components of the names in the P4 program.
    table: str
    # (field, value) of every key field, in the table's order. Empty: the table's default action.
    match: tuple[tuple[str, Match], ...]
    action: str
    params: tuple[tuple[str, int], ...]  # (parameter, value) of the action.

    @property
    def key(self) -> tuple[str, tuple[tuple[str, Match], ...]]:
        """The entry's match key; a switch holds at most one entry with it."""
        return self.table, self.match

    def value(self, field: str) -> Match:
        """Return the value of a key field."""
        return dict(self.match)[field]


@dataclass(frozen=True)
class MulticastGroup:
    """A multicast group: a copy of the packet for every (port, replica id)."""

    group_id: int
    replicas: tuple[tuple[int, int], ...]


def entry(table: str, match: Mapping[str, Match], action: str, params: Mapping[str, int]) -> Entry:
    """Return an entry from mappings of key fields and action parameters, in their order."""
    return Entry(table, tuple(match.items()), action, tuple(params.items()))


def admission_entries(job: Job) -> list[Entry]:
    """Return the entries that admit packets of the job's workers and parent; without them, no packet reaches a slot."""
    full_mask = (1 << len(job.workers)) - 1
    places = [
        (worker.port, worker.ip, worker_id, 1 << worker_id) for worker_id, worker in enumerate(job.workers)
    ]
    if job.parent is not None:
        places.append((job.parent.port, job.parent.ip, job.parent.worker_id, 0))
    return [
        entry(
            WORKER_ADMISSION,
            {
                "ingress_port": port,
                "ipv4_src": ipv4_int(ip),
                "job_id": job.job_id,
                "worker_id": worker_id,
                "token": job.token,
            },
            "admit",
            {
                "worker_bit": worker_bit,
                "full_mask": full_mask,
                "num_workers": len(job.workers),
                "epoch": job.epoch,
                "pool_base": job.slots.base * POOL_VERSIONS,
                "pool_indices": job.slots.count * POOL_VERSIONS,
                "mcast_group": job.job_id,
            },
        )
        for port, ip, worker_id, worker_bit in places
    ]


def ports(job: Job) -> list[int]:
    """List the switch ports on which the job's packets arrive: the workers' ports, and the port to the parent."""
    above = [] if job.parent is None else [job.parent.port]
    return [*(worker.port for worker in job.workers), *above]


def parent_entries(job: Job) -> list[Entry]:
    """Return the entry that sends the job's sums to the switch above; none if there is no such switch."""
    if job.parent is None:
        return []
    parent = job.parent
    return [
        entry(
            JOB_PARENT,
            {"job_id": job.job_id},
            "pass_up",
            {
                "port": parent.port,
                "dst_mac": mac_int(parent.mac),
                "dst_ip": ipv4_int(parent.ip),
                "worker_id": parent.worker_id,
            },
        )
    ]


def quorum_entries(job: Job) -> list[Entry]:
    """Return the entry that sets how many contributions complete a quorum chunk; none if the job has no quorum."""
    if not job.request.quorum:
        return []
    return [entry(JOB_QUORUM, {"job_id": job.job_id}, "set_quorum", {"workers": job.request.quorum})]


def rewrite_entries(job: Job) -> list[Entry]:
    """Return the entries that address each copy of a result to its worker."""
    return [
        entry(
            COPY_REWRITE,
            {"job_id": job.job_id, "worker_id": worker_id},
            "rewrite",
            {"dst_mac": mac_int(worker.mac), "dst_ip": ipv4_int(worker.ip), "dst_port": worker.udp_port},
        )
        for worker_id, worker in enumerate(job.workers)
    ]


def result_group(job: Job) -> MulticastGroup:
    """Return the multicast group of the job's results; replica ids are `worker_id + 1`, never 0."""
    return MulticastGroup(
        job.job_id, tuple((worker.port, worker_id + 1) for worker_id, worker in enumerate(job.workers))
    )


def address_entry(ip: str, mac: str) -> Entry:
    """Return the entry for an address that the switch answers for."""
    return entry(SWITCH_ADDRESS, {"address": ipv4_int(ip)}, "own_address", {"mac": mac_int(mac)})


def l2_entries(stations: Mapping[str, int]) -> list[Entry]:
    """Return the entries that forward to stations; `stations`: MAC address to switch port."""
    return [
        entry(L2_FORWARD, {"dst": mac_int(mac)}, "forward", {"port": port}) for mac, port in stations.items()
    ]


def l2_default(flood: bool) -> Entry:
    """Return the default action for frames to unknown stations: flood them to the flood group, or drop them."""
    return (
        entry(L2_FORWARD, {}, "flood", {"mcast_group": FLOOD_GROUP})
        if flood
        else entry(L2_FORWARD, {}, "drop", {})
    )


def flood_group(ports: Iterable[int]) -> MulticastGroup:
    """Return the group that floods frames to unknown stations; the switch leaves out the port of arrival."""
    return MulticastGroup(FLOOD_GROUP, tuple((port, 0) for port in sorted(set(ports))))


def l3_entry(network: str, port: int, src_mac: str, dst_mac: str) -> Entry:
    """Return the entry that routes an IPv4 network out of a port."""
    value, length = ipv4_prefix(network)
    return entry(
        L3_ROUTE,
        {"dst": Prefix(value, length)},
        "route",
        {"port": port, "src_mac": mac_int(src_mac), "dst_mac": mac_int(dst_mac)},
    )


def difference(
    present: Iterable[Entry], desired: Iterable[Entry]
) -> tuple[list[Entry], list[Entry], list[Entry]]:
    """Return the changes that turn the entries `present` of a switch into `desired`.

    Returns (entries to delete, to insert, to modify).
    """
    held = {one.key: one for one in present}
    wanted = {one.key: one for one in desired}
    delete = [one for key, one in held.items() if key not in wanted]
    insert = [one for key, one in wanted.items() if key not in held]
    modify = [one for key, one in wanted.items() if key in held and held[key] != one]
    return delete, insert, modify
