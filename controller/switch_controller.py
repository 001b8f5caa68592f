"""The controller of one switch: gives it its program, its addresses and its jobs over P4Runtime.

It knows of the embedded engine and BMv2 only what P4Runtime says, so it cannot distinguish them. Its jobs live in this
process and are forgotten with it; `controller.service` is the controller that keeps them.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from controller.errors import JobRefusedError
from controller.job_controller import JobController
from controller.jobs import Job, WorkerEndpoint
from controller.ledger import DEFAULT_SLOTS
from controller.p4runtime_writer import P4RuntimeWriter
from controller.program import CompiledFiles
from controller.session import P4RuntimeSession
from controller.switch_tables import SwitchTables
from controller.trees import TreeSwitch, one_switch, sending_to

_SWITCH: Final = "switch"


class SwitchController:
    """One switch's controller; a context manager that ends its session. Not for several threads at once.

    Made by `connect`.
    """

    def __init__(self, session: P4RuntimeSession, election_id: int, files: CompiledFiles) -> None:
        self._election_id = election_id
        self._files = files
        self._tables: dict[str, SwitchTables] = {}
        self._begin(session)
        alone = {_SWITCH: TreeSwitch(_SWITCH, "", "", {})}
        self._controller = JobController(alone, self._tables, files.slots, files.lanes)
        self._switch_ip: str | None = None
        self._programmed = False

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        program: Path,
        p4info: Path,
        device_id: int = 1,
        election_id: int = 1,
        timeout_s: float = 20.0,
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
            return cls(session, election_id, CompiledFiles(program, p4info))
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
        self._writer.session.tear_down()

    def reconnect(self, timeout_s: float | None = None) -> None:
        """Open a new session, to a switch that was restarted; it needs `set_pipeline` and all the rest again.

        The jobs are remembered, with their slots: `restart_job` brings each back.

        Raises
        ------
        SwitchUnreachableError, NotPrimaryError
            As for `connect`.
        """
        old = self._writer.session
        old.tear_down()
        self._programmed = False
        session = P4RuntimeSession(old.address, old.device_id, self._election_id, timeout_s or old.timeout_s)
        self._begin(session)

    def _begin(self, session: P4RuntimeSession) -> None:
        self._writer = P4RuntimeWriter(session, self._files)
        self._tables[_SWITCH] = SwitchTables(self._writer, self._files.path)

    @property
    def lanes(self) -> int:
        """int32 values a packet of the program carries."""
        return self._files.lanes

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that have not ended."""
        return self._controller.ledgers[_SWITCH].jobs

    @property
    def free_slots(self) -> int:
        """How many slots no job holds."""
        return self._controller.ledgers[_SWITCH].free_slots

    def set_pipeline(self) -> None:
        """Give the switch its program; it starts empty, and jobs it had wait for `restart_job`.

        Raises
        ------
        WrongProgramError
            The compiled program cannot be read.
        SwitchRefusedError, SwitchUnreachableError, NotPrimaryError
            The switch did not take it.
        """
        self._writer.set_pipeline()
        self._programmed = True

    def set_switch_address(self, ip: str, mac: str) -> None:
        """Let the switch answer for an address; workers send to it that have no other.

        Raises
        ------
        ControllerError
            The switch did not take it.
        """
        self._tables[_SWITCH].set_switch_address(ip, mac)
        self._switch_ip = ip

    def set_l2(self, stations: Mapping[str, int], flood_ports: Iterable[int] = ()) -> None:
        """Say where each station (MAC address) is, and to which ports frames to other stations go, if to any.

        Raises
        ------
        ControllerError
            The switch did not take it.
        """
        self._tables[_SWITCH].set_l2(stations, flood_ports)

    def set_l3(self, routes: Mapping[str, tuple[int, str, str]]) -> None:
        """Say where each IPv4 network is: (port, source MAC, destination MAC).

        Raises
        ------
        ControllerError
            The switch did not take it.
        """
        self._tables[_SWITCH].set_l3(routes)

    def create_job(
        self, name: str, workers: Sequence[WorkerEndpoint], slots: int = DEFAULT_SLOTS, quorum: int = 0
    ) -> Job:
        """Admit a job.

        Parameters
        ----------
        name
            Unique among the switch's jobs.
        workers
            1 to 32 endpoints.
        slots
            Chunks in flight at most; a power of two.
        quorum
            Contributions that complete a roll call of the job; 0: it has none.

        Raises
        ------
        JobRefusedError
            With the reason.
        ControllerError
            The switch did not take it. Nothing is held then.
        """
        self._require_program()
        children = workers if self._switch_ip is None else sending_to(self._switch_ip, workers)
        return self._controller.admit_job(name, one_switch(_SWITCH, children), slots, quorum).root

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
        return self._controller.restart_job(self._controller.current(job)).root

    def end_job(self, job: Job) -> None:
        """Take a job off the switch and free its slots.

        Raises
        ------
        UnknownJobError
            It has ended already.
        ControllerError
            The switch did not answer; the job keeps its slots then.
        """
        self._controller.end_job(self._controller.current(job))

    def counters(self, job: Job) -> dict[str, int]:
        """Return the packets the switch counted for a job since its creation, by the names of its counters.

        Raises
        ------
        ControllerError
            The switch did not answer.
        """
        return self._controller.counters(self._controller.current(job))[_SWITCH]

    def admitted(self, job: Job) -> dict[int, int]:
        """Return how many packets of each worker, by its id, the switch has admitted since the job began or was restarted.

        Raises
        ------
        ControllerError
            The switch did not answer.
        """
        return self._tables[_SWITCH].admitted(self._controller.current(job).root)

    def _require_program(self) -> None:
        if not self._programmed:
            raise JobRefusedError("the switch has no program yet: call set_pipeline first")
