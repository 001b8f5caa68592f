"""What one switch holds, written and read over one P4Runtime session.

What it should hold is worked out apart from it (`controller.jobs`, `controller.entries`); here it is written, in the one
order that keeps S4: nothing of a job is admitted before all the rest of it is in place, and nothing of its last life when
its next begins.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from controller import entries
from controller.entries import Entry, Group
from controller.errors import JobRefusedError, SwitchRefusedError
from controller.jobs import Job
from controller.p4info import ProgramNames, group_message, read_group, read_p4info
from controller.program import lanes_of, require_control_surface, slots_of
from controller.session import P4RuntimeSession, Update
from controller.targets import device_config, require_reach

_OWNED = (
    # First what lets packets in, so that nothing is half gone while it still is let in.
    entries.WORKER_ADMISSION,
    entries.JOB_PARENT,
    entries.COPY_REWRITE,
    entries.SWITCH_ADDRESS,
    entries.L2_FORWARD,
    entries.L3_ROUTE,
)


class CompiledFiles:
    """A compiled aggregation program: the files a switch is given, and the names in them.

    Parameters
    ----------
    program, p4info
        The compiled program (see `controller.targets.device_config`) and its P4Info in protobuf text form.

    Raises
    ------
    WrongProgramError
        The P4Info cannot be read, or is not an aggregation program's.
    """

    def __init__(self, program: Path, p4info: Path) -> None:
        self.path = program
        self.p4info = read_p4info(p4info)
        self.names = ProgramNames(self.p4info)
        require_control_surface(self.names, str(p4info))
        self.lanes = lanes_of(self.names)
        self.slots = slots_of(self.names)

    def device_config(self) -> bytes:
        """Return what the switch is given.

        Raises
        ------
        WrongProgramError
            The file cannot be read.
        """
        return device_config(self.path)


@dataclass
class Reconciled:
    """How a switch differed from what it should hold, before it was made to hold that.

    Attributes
    ----------
    kept, removed, written, changed
        Numbers of entries and groups.
    findings
        The differences in words, one for each table.
    """

    kept: int = 0
    removed: int = 0
    written: int = 0
    changed: int = 0
    findings: list[str] = field(default_factory=list)

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

    Parameters
    ----------
    session
        Of the primary controller.
    files
        The program the switch runs, or is to be given.
    """

    def __init__(self, session: P4RuntimeSession, files: CompiledFiles) -> None:
        self.session = session
        self._files = files
        self._names = files.names
        self._groups: set[int] = set()
        self._owned = [table for table in _OWNED if table in self._names.tables]

    def cookie(self) -> int:
        """Return what the switch's program was marked with when it was set; 0 if it has none, or no mark."""
        return self.session.pipeline_cookie()

    def set_pipeline(self, cookie: int = 0) -> None:
        """Give the switch its program; it starts empty.

        Parameters
        ----------
        cookie
            A mark that the switch keeps for as long as it keeps its program.
        """
        self.session.configure(self._files.p4info, self._files.device_config(), cookie)
        self._groups.clear()

    def set_switch_address(self, ip: str, mac: str) -> None:
        """Let the switch answer for an address."""
        self._replace(entries.SWITCH_ADDRESS, [entries.address_entry(ip, mac)])

    def set_l2(self, stations: Mapping[str, int], flood_ports: Iterable[int]) -> None:
        """Say where each station (MAC address) is, and to which ports frames to other stations go."""
        self._replace(entries.L2_FORWARD, entries.l2_entries(stations))
        self._set_flooding(entries.flood_group(flood_ports))

    def set_l3(self, routes: Mapping[str, tuple[int, str, str]]) -> None:
        """Say where each IPv4 network is: (port, source MAC, destination MAC)."""
        self._replace(
            entries.L3_ROUTE, [entries.l3_entry(network, *route) for network, route in routes.items()]
        )

    def install(self, job: Job) -> None:
        """Put a job in place of its last life: first out with all old admissions, last in with the new."""
        require_reach(self._files.path, (worker.port for worker in job.workers))
        if job.parent is not None and entries.JOB_PARENT not in self._owned:
            raise JobRefusedError(
                f"job {job.name!r} needs a tree of switches, and the program {self._files.path} has none: take workers of one "
                "switch, or v1model's program"
            )
        self.withdraw(job)
        what = f"job {job.name!r}"
        self._set_group(entries.result_group(job), what)
        self._write(Update.INSERT, entries.rewrite_entries(job), what)
        self._write(Update.INSERT, entries.parent_entries(job), what)
        self._write(Update.INSERT, entries.admission_entries(job), what)

    def withdraw(self, job: Job) -> None:
        """Delete what the switch itself says it holds of a job, also if another controller wrote it."""
        for table in (entries.WORKER_ADMISSION, entries.COPY_REWRITE, entries.JOB_PARENT):
            if table not in self._owned:
                continue
            held = [one for one in self._read(table) if one.value("job_id") == job.job_id]
            self._write(Update.DELETE, held, f"the removal of job {job.name!r}")
        if job.job_id in self._groups:
            gone = [group_message(Group(job.job_id, ()))]
            self.session.apply(Update.DELETE, gone, f"the removal of job {job.name!r}")
            self._groups.remove(job.job_id)

    def reset_counters(self, job: Job) -> None:
        """Begin to count from zero for a job."""
        zeros = [self._names.counter_message(name, job.job_id) for name in entries.COUNTERS]
        for zero in zeros:
            zero.counter_entry.data.packet_count = 0
        self.session.apply(Update.MODIFY, zeros, "resetting counters")

    def counters(self, job_ids: Sequence[int]) -> dict[int, dict[str, int]]:
        """Return the packets counted for some jobs by the names of the counters; job 0 is those of no job."""
        asked = [self._names.counter_message(name, each) for each in job_ids for name in entries.COUNTERS]
        counted: dict[int, dict[str, int]] = {each: {} for each in job_ids}
        for answer in self.session.fetch(asked, "reading counters") if asked else ():
            name, job_id, packets = self._names.read_counter(answer)
            counted[job_id][name] = packets
        return counted

    def admitted(self, job: Job) -> dict[int, int]:
        """Return how many packets of each worker, by its id, were admitted in the present life of a job.

        None of any worker if the switch's program does not count them.
        """
        if not self._names.counts_entries(entries.WORKER_ADMISSION):
            return {}
        asked = [self._names.entry_counter_message(one) for one in entries.admission_entries(job)]
        answers = self.session.fetch(asked, "reading what was admitted")
        counted: dict[int, int] = {}
        for key, packets in map(self._names.read_entry_counter, answers):
            worker_id, from_port = key["worker_id"], key["ingress_port"]
            assert isinstance(worker_id, int)
            if job.parent is None or from_port != job.parent.port:
                counted[worker_id] = packets
        return counted

    def reconcile(
        self,
        jobs: Sequence[Job],
        address: tuple[str, str],
        stations: Mapping[str, int],
        flood_ports: Iterable[int],
    ) -> Reconciled:
        """Make the switch hold these jobs, this address (IP, MAC), these stations, and nothing else.

        What it holds already is not touched, so that running jobs notice nothing.
        """
        desired: dict[str, list[Entry]] = {
            entries.WORKER_ADMISSION: [one for job in jobs for one in entries.admission_entries(job)],
            entries.JOB_PARENT: [one for job in jobs for one in entries.parent_entries(job)],
            entries.COPY_REWRITE: [one for job in jobs for one in entries.rewrite_entries(job)],
            entries.SWITCH_ADDRESS: [entries.address_entry(*address)],
            entries.L2_FORWARD: entries.l2_entries(stations),
            entries.L3_ROUTE: [],
        }
        found = Reconciled()
        to_insert, to_modify = {}, {}
        for table in self._owned:
            present = self._read(table)
            delete, insert, modify = entries.difference(present, desired[table])
            self._write(Update.DELETE, delete, f"what {table} should not hold")
            to_insert[table], to_modify[table] = insert, modify
            found.kept += len(present) - len(delete) - len(modify)
            found.find(f"table {table}", removed=len(delete), written=len(insert), changed=len(modify))
        self._reconcile_groups([entries.result_group(job) for job in jobs], found)
        self._set_flooding(entries.flood_group(flood_ports))
        for table in reversed(self._owned):  # Admissions last.
            self._write(Update.INSERT, to_insert[table], table)
            self._write(Update.MODIFY, to_modify[table], table)
        return found

    def _reconcile_groups(self, desired: Sequence[Group], found: Reconciled) -> None:
        held = self._read_groups()
        wanted = {group.group_id: group for group in desired}
        stray = [Group(each, ()) for each in held if each not in wanted and each != entries.FLOOD_GROUP]
        self._groups = set(held)
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
            self._set_group(group, "a job's results")
        self.session.apply(Update.DELETE, [group_message(group) for group in stray], "stray multicast groups")
        self._groups -= {group.group_id for group in stray}
        found.find("multicast groups", removed=len(stray), written=written, changed=changed)

    def _read_groups(self) -> dict[int, Group]:
        try:
            answers = self.session.fetch([group_message(Group(0, ()))], "reading multicast groups")
        except SwitchRefusedError:  # Not every switch can say; then all are written anew.
            return {}
        groups = [read_group(answer) for answer in answers]
        return {group.group_id: group for group in groups}

    def _replace(self, table: str, desired: Sequence[Entry]) -> None:
        delete, insert, modify = entries.difference(self._read(table), desired)
        self._write(Update.DELETE, delete, table)
        self._write(Update.INSERT, insert, table)
        self._write(Update.MODIFY, modify, table)

    def _set_flooding(self, group: Group) -> None:
        if group.replicas:
            self._set_group(group, "flooding")
        self._write(Update.MODIFY, [entries.l2_default(flood=bool(group.replicas))], "flooding")

    def _set_group(self, group: Group, what: str) -> None:
        message = [group_message(group)]
        purpose = f"the multicast group of {what}"
        if group.group_id in self._groups:
            self.session.apply(Update.MODIFY, message, purpose)
            return
        try:
            self.session.apply(Update.INSERT, message, purpose)
        except SwitchRefusedError:  # Left by another controller, at a switch that could not say so.
            self.session.apply(Update.MODIFY, message, purpose)
        self._groups.add(group.group_id)

    def _write(self, kind: "Update.Type", changed: Sequence[Entry], what: str) -> None:
        messages = [self._names.entry_message(one) for one in changed]
        self.session.apply(kind, messages, f"{Update.Type.Name(kind).lower()} for {what}")

    def _read(self, table: str) -> list[Entry]:
        found = self.session.fetch([self._names.table_message(table)], f"reading table {table}")
        return [self._names.read_entry(entity) for entity in found]
