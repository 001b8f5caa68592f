"""The tables, groups and counters of one switch.

`controller.jobs` and `controller.entries` compute the entries of a switch. This module writes them through a `TableWriter`, in
the one order that keeps S4: no packet of a job is admitted before the job's other entries are in place, and no packet of its old
epoch is admitted when its next epoch begins.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from controller import entries
from controller.entries import Entry, MulticastGroup
from controller.errors import JobRefusedError
from controller.jobs import Job
from controller.table_writer import Change, TableWriter
from netsum_common.targets import TARGETS, Target

_OWNED = (
    # Admissions come first: they are deleted before, and inserted after, the entries that admitted packets need.
    entries.WORKER_ADMISSION,
    entries.JOB_PARENT,
    entries.JOB_QUORUM,
    entries.COPY_REWRITE,
    entries.SWITCH_ADDRESS,
    entries.L2_FORWARD,
    entries.L3_ROUTE,
)


@dataclass
class Reconciled:
    """The differences between a switch's entries and the desired ones, which a reconciliation has removed."""

    # kept, removed, written, changed: numbers of entries and groups.
    kept: int = 0
    removed: int = 0
    written: int = 0
    changed: int = 0
    findings: list[str] = field(default_factory=list)  # The differences in words, one for each table.

    def find(self, what: str, **counts: int) -> None:
        """Note a difference, unless all counts are 0."""
        for name, count in counts.items():
            setattr(self, name, getattr(self, name) + count)
        said = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        if said:
            self.findings.append(f"{what}: {said}")


class SwitchTables:
    """One switch's tables, groups and counters. Not for several threads at once.

    Every method that reads or writes raises `ControllerError` if the switch refuses or does not answer.

    `target`: the kind of the switch, which says which ports can share memory.
    """

    def __init__(self, writer: TableWriter, target: Target = TARGETS["embedded"]) -> None:
        self._writer = writer
        self._target = target
        self._owned = [table for table in _OWNED if table in writer.tables]
        self._counters: tuple[str, ...] = entries.COUNTERS
        if entries.JOB_PARENT in writer.tables:
            self._counters += entries.TREE_COUNTERS

    def set_switch_address(self, ip: str, mac: str) -> None:
        """Let the switch answer for an address."""
        self._replace(entries.SWITCH_ADDRESS, [entries.address_entry(ip, mac)])

    def set_l2(self, stations: Mapping[str, int], flood_ports: Iterable[int] = ()) -> None:
        """Write the port of each station (MAC address), and the ports that frames to other stations go to."""
        self._replace(entries.L2_FORWARD, entries.l2_entries(stations))
        self._set_flooding(entries.flood_group(flood_ports))

    def set_l3(self, routes: Mapping[str, tuple[int, str, str]]) -> None:
        """Write the route to each IPv4 network: (port, source MAC, destination MAC)."""
        self._replace(
            entries.L3_ROUTE, [entries.l3_entry(network, *route) for network, route in routes.items()]
        )

    def install(self, job: Job) -> None:
        """Replace a job's old epoch by its new one: delete all old admissions first, insert the new ones last."""
        apart = self._target.why_apart(entries.ports(job))
        if apart is not None:
            raise JobRefusedError(apart)
        if job.parent is not None and entries.JOB_PARENT not in self._owned:
            raise JobRefusedError(
                f"job {job.name!r} needs a tree of switches, and the program has none: take workers of one switch, or "
                "v1model's program"
            )
        self.withdraw(job)
        what = f"job {job.name!r}"
        self._writer.set_group(entries.result_group(job), what)
        self._write(Change.INSERT, entries.rewrite_entries(job), what)
        self._write(Change.INSERT, entries.parent_entries(job), what)
        self._write(Change.INSERT, entries.quorum_entries(job), what)
        self._write(Change.INSERT, entries.admission_entries(job), what)

    def withdraw(self, job: Job) -> None:
        """Delete a job's entries, including those of another controller, and the job's multicast group if it is known."""
        what = f"the removal of job {job.name!r}"
        for table in (entries.WORKER_ADMISSION, entries.COPY_REWRITE, entries.JOB_PARENT, entries.JOB_QUORUM):
            if table in self._owned:
                held = [one for one in self._writer.read(table) if one.value("job_id") == job.job_id]
                self._write(Change.DELETE, held, what)
        self._writer.delete_groups([job.job_id], what)

    def reset_counters(self, job: Job) -> None:
        """Set a job's counters to zero."""
        self._writer.reset_counters(self._counters, job.job_id)

    def counters(self, job_ids: Sequence[int]) -> dict[int, dict[str, int]]:
        """Return the packets counted for some jobs by the names of the counters; job 0 counts the packets of no job."""
        return self._writer.counters(self._counters, job_ids)

    def admitted(self, job: Job) -> dict[int, int]:
        """Return how many packets of each worker, by its id, the switch has admitted in the present epoch of a job.

        The result is empty if the switch's program does not count admitted packets.
        """
        counted: dict[int, int] = {}
        for (_, match), packets in self._writer.entry_counts(entries.admission_entries(job)).items():
            key = dict(match)
            worker_id = key["worker_id"]
            assert isinstance(worker_id, int)
            if job.parent is None or key["ingress_port"] != job.parent.port:
                counted[worker_id] = packets
        return counted

    def reconcile(
        self,
        jobs: Sequence[Job],
        address: tuple[str, str],
        stations: Mapping[str, int],
        flood_ports: Iterable[int],
    ) -> Reconciled:
        """Make the switch hold the entries of the jobs, the address (IP, MAC) and the stations, and no others.

        Entries that the switch already has are not touched, so that running jobs notice nothing.
        """
        desired: dict[str, list[Entry]] = {
            entries.WORKER_ADMISSION: [one for job in jobs for one in entries.admission_entries(job)],
            entries.JOB_PARENT: [one for job in jobs for one in entries.parent_entries(job)],
            entries.JOB_QUORUM: [one for job in jobs for one in entries.quorum_entries(job)],
            entries.COPY_REWRITE: [one for job in jobs for one in entries.rewrite_entries(job)],
            entries.SWITCH_ADDRESS: [entries.address_entry(*address)],
            entries.L2_FORWARD: entries.l2_entries(stations),
            entries.L3_ROUTE: [],
        }
        found = Reconciled()
        to_insert, to_modify = {}, {}
        for table in self._owned:
            present = self._writer.read(table)
            delete, insert, modify = entries.difference(present, desired[table])
            self._write(Change.DELETE, delete, f"what {table} should not hold")
            to_insert[table], to_modify[table] = insert, modify
            found.kept += len(present) - len(delete) - len(modify)
            found.find(f"table {table}", removed=len(delete), written=len(insert), changed=len(modify))
        self._reconcile_groups([entries.result_group(job) for job in jobs], found)
        self._set_flooding(entries.flood_group(flood_ports))
        for table in reversed(self._owned):  # Admissions come last.
            self._write(Change.INSERT, to_insert[table], table)
            self._write(Change.MODIFY, to_modify[table], table)
        return found

    def _reconcile_groups(self, desired: Sequence[MulticastGroup], found: Reconciled) -> None:
        held = self._writer.groups()
        wanted = {group.group_id: group for group in desired}
        stray = [each for each in held if each not in wanted and each != entries.FLOOD_GROUP]
        written = changed = 0
        for group in desired:
            present = held.get(group.group_id)
            if present is None:
                written += 1
            elif sorted(present.replicas) != sorted(group.replicas):
                changed += 1
            else:
                found.kept += 1
                continue
            self._writer.set_group(group, "a job's results")
        self._writer.delete_groups(stray, "the removal of stray multicast groups")
        found.find("multicast groups", removed=len(stray), written=written, changed=changed)

    def _replace(self, table: str, desired: Sequence[Entry]) -> None:
        delete, insert, modify = entries.difference(self._writer.read(table), desired)
        self._write(Change.DELETE, delete, table)
        self._write(Change.INSERT, insert, table)
        self._write(Change.MODIFY, modify, table)

    def _set_flooding(self, group: MulticastGroup) -> None:
        if group.replicas:
            self._writer.set_group(group, "flooding")
        self._write(Change.MODIFY, [entries.l2_default(flood=bool(group.replicas))], "flooding")

    def _write(self, change: Change, changed: Sequence[Entry], what: str) -> None:
        if changed:
            self._writer.write(change, changed, what)
