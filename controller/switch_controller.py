"""The controller of one switch: gives it its program, its addresses and its jobs over P4Runtime.

It knows of the embedded engine and BMv2 only what P4Runtime says, so it cannot tell them apart. What the
switch should hold is worked out apart from it (`controller.jobs`, `controller.entries`); here it is
written, in the one order that keeps S4: nothing of a job is admitted before all the rest of it is in place,
and nothing of its last life when its next begins.
"""

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from controller import entries
from controller.entries import Entry, Group
from controller.errors import ControllerError, JobRefusedError, WrongProgramError
from controller.jobs import Job, JobLedger, WorkerEndpoint
from controller.p4info import ProgramNames, group_message, read_p4info
from controller.program import lanes_of, require_control_surface, slots_of
from controller.session import P4RuntimeSession, Update
from host_agent.wire.constants import UDP_PORT

DEFAULT_SLOTS = 64


class SwitchController:
    """One switch's controller; a context manager that ends its session. Not for several threads at once.

    Made by `connect`.
    """

    def __init__(self, session: P4RuntimeSession, election_id: int, program: Path, p4info: Path) -> None:
        self._session = session
        self._election_id = election_id
        self._program = program
        self._p4info = read_p4info(p4info)
        self._names = ProgramNames(self._p4info)
        require_control_surface(self._names, str(p4info))
        self._ledger = JobLedger(slots_of(self._names), lanes_of(self._names))
        self._switch_ip: str | None = None
        self._programmed = False
        self._groups: set[int] = set()

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        program: Path,
        p4info: Path,
        device_id: int = 1,
        election_id: int = 1,
        timeout_s: float = 5.0,
    ) -> "SwitchController":
        """Become the primary controller of a switch.

        Parameters
        ----------
        address
            gRPC address of its P4Runtime server, such as ``127.0.0.1:9559`` or ``unix:/run/switch.sock``.
        program, p4info
            The compiled program (BMv2 JSON) and its P4Info in protobuf text form.
        device_id
            The switch's P4Runtime device id.
        election_id
            The controller with the highest is primary.
        timeout_s
            Deadline of connecting and of every request, in seconds.

        Raises
        ------
        SwitchUnreachableError
            Nothing answers within the deadline.
        NotPrimaryError
            Another controller is primary.
        WrongProgramError
            The program is not an aggregation program, or cannot be read.
        """
        session = P4RuntimeSession(address, device_id, election_id, timeout_s)
        try:
            return cls(session, election_id, program, p4info)
        except BaseException:
            session.tear_down()
            raise

    def __enter__(self) -> "SwitchController":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session; the switch keeps what it holds."""
        self._session.tear_down()

    def reconnect(self, timeout_s: float | None = None) -> None:
        """Open a new session, to a switch that was restarted; it needs `set_pipeline` and all the rest again.

        The jobs are remembered, with their slots: `restart_job` brings each back.

        Raises
        ------
        SwitchUnreachableError, NotPrimaryError
            As for `connect`.
        """
        old = self._session
        old.tear_down()
        self._programmed = False
        self._session = P4RuntimeSession(
            old.address, old.device_id, self._election_id, timeout_s or old.timeout_s
        )

    @property
    def lanes(self) -> int:
        """int32 values a packet of the program carries."""
        return lanes_of(self._names)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that have not ended."""
        return self._ledger.jobs

    @property
    def free_slots(self) -> int:
        """How many slots no job holds."""
        return self._ledger.free_slots

    def set_pipeline(self) -> None:
        """Give the switch its program; it starts empty, and jobs it had wait for `restart_job`.

        Raises
        ------
        WrongProgramError
            The compiled program cannot be read.
        SwitchRefusedError, SwitchUnreachableError, NotPrimaryError
            The switch did not take it.
        """
        try:
            device_config = self._program.read_bytes()
        except OSError as error:
            raise WrongProgramError(
                f"cannot read the compiled program {self._program}: {error.strerror}"
            ) from None
        self._session.configure(self._p4info, device_config)
        self._groups.clear()
        self._programmed = True

    def set_switch_address(self, ip: str, mac: str) -> None:
        """Let the switch answer for an address; workers send to it that have no other.

        Raises
        ------
        ControllerError
            The switch did not take it.
        """
        self._replace(entries.SWITCH_ADDRESS, [entries.address_entry(ip, mac)])
        self._switch_ip = ip

    def set_l2(self, stations: Mapping[str, int], flood_ports: Iterable[int] = ()) -> None:
        """Say where each station (MAC address) is, and to which ports frames to other stations go, if to any.

        Raises
        ------
        ControllerError
            The switch did not take it.
        """
        group = entries.flood_group(flood_ports)
        self._replace(entries.L2_FORWARD, entries.l2_entries(stations))
        if group.replicas:
            self._set_group(group, "flooding")
        self._write(Update.MODIFY, [entries.l2_default(flood=bool(group.replicas))], "flooding")

    def set_l3(self, routes: Mapping[str, tuple[int, str, str]]) -> None:
        """Say where each IPv4 network is: (port, source MAC, destination MAC).

        Raises
        ------
        ControllerError
            The switch did not take it.
        """
        self._replace(
            entries.L3_ROUTE, [entries.l3_entry(network, *route) for network, route in routes.items()]
        )

    def create_job(self, name: str, workers: Sequence[WorkerEndpoint], slots: int = DEFAULT_SLOTS) -> Job:
        """Admit a job.

        Parameters
        ----------
        name
            Unique among the switch's jobs.
        workers
            1 to 32 endpoints.
        slots
            Chunks in flight at most; a power of two.

        Raises
        ------
        JobRefusedError
            With the reason.
        ControllerError
            The switch did not take it. Nothing is held then.
        """
        self._require_program()
        job = self._ledger.admit(
            name,
            workers,
            slots,
            switch=None if self._switch_ip is None else (self._switch_ip, UDP_PORT),
            token=secrets.randbits(32),
            unix_seconds=int(time.time()),
        )
        try:
            self._install(job)
            self._reset_counters(job)
        except ControllerError:
            self._ledger.end(job)
            raise
        return job

    def restart_job(self, job: Job) -> Job:
        """Give a job a new epoch and token: from then on no packet of its earlier life reaches a slot.

        Raises
        ------
        UnknownJobError
            It has ended.
        ControllerError
            The switch did not take it; the job is not admitted then, and can be restarted again.
        """
        self._require_program()
        renewed = self._ledger.renew(job, token=_another_token(job.token), unix_seconds=int(time.time()))
        self._install(renewed)
        return renewed

    def end_job(self, job: Job) -> None:
        """Take a job off the switch and free its slots.

        Raises
        ------
        UnknownJobError
            It has ended already.
        ControllerError
            The switch did not answer; the job keeps its slots then.
        """
        present = self._ledger.current(job)
        self._remove(present)
        self._ledger.end(present)

    def counters(self, job: Job) -> dict[str, int]:
        """Return the packets the switch counted for a job since its creation, by the names of its counters.

        Raises
        ------
        ControllerError
            The switch did not answer.
        """
        return self._counters(self._ledger.current(job).job_id)

    def counters_of_strangers(self) -> dict[str, int]:
        """Return what the switch counted of packets that name no job.

        Raises
        ------
        ControllerError
            The switch did not answer.
        """
        return self._counters(0)

    def _install(self, job: Job) -> None:
        """Put a job in place of its last life: first out with all old admissions, last in with the new."""
        self._remove(job)
        what = f"job {job.name!r}"
        self._set_group(entries.result_group(job), what)
        self._write(Update.INSERT, entries.rewrite_entries(job), what)
        self._write(Update.INSERT, entries.admission_entries(job), what)

    def _remove(self, job: Job) -> None:
        """Delete what the switch itself says it holds of a job, also if another controller wrote it."""
        for table in (entries.WORKER_ADMISSION, entries.COPY_REWRITE):
            held = [one for one in self._read(table) if one.value("job_id") == job.job_id]
            self._write(Update.DELETE, held, f"the removal of job {job.name!r}")
        if job.job_id in self._groups:
            gone = [group_message(entries.result_group(job))]
            self._session.apply(Update.DELETE, gone, f"the removal of job {job.name!r}")
            self._groups.remove(job.job_id)

    def _reset_counters(self, job: Job) -> None:
        zeros = [self._names.counter_message(name, job.job_id) for name in entries.COUNTERS]
        for zero in zeros:
            zero.counter_entry.data.packet_count = 0
        self._session.apply(Update.MODIFY, zeros, "resetting counters")

    def _counters(self, job_id: int) -> dict[str, int]:
        asked = [self._names.counter_message(name, job_id) for name in entries.COUNTERS]
        answers = self._session.fetch(asked, "reading counters")
        return dict(self._names.read_counter(answer) for answer in answers)

    def _replace(self, table: str, desired: Sequence[Entry]) -> None:
        delete, insert, modify = entries.difference(self._read(table), desired)
        self._write(Update.DELETE, delete, table)
        self._write(Update.INSERT, insert, table)
        self._write(Update.MODIFY, modify, table)

    def _set_group(self, group: Group, what: str) -> None:
        kind = Update.MODIFY if group.group_id in self._groups else Update.INSERT
        self._session.apply(kind, [group_message(group)], f"the multicast group of {what}")
        self._groups.add(group.group_id)

    def _write(self, kind: int, changed: Sequence[Entry], what: str) -> None:
        messages = [self._names.entry_message(one) for one in changed]
        self._session.apply(kind, messages, f"{Update.Type.Name(kind).lower()} for {what}")

    def _read(self, table: str) -> list[Entry]:
        found = self._session.fetch([self._names.table_message(table)], f"reading table {table}")
        return [self._names.read_entry(entity) for entity in found]

    def _require_program(self) -> None:
        if not self._programmed:
            raise JobRefusedError("the switch has no program yet: call set_pipeline first")


def _another_token(than: int) -> int:
    while (token := secrets.randbits(32)) == than:
        pass
    return token
