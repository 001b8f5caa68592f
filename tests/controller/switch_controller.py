"""The controller of one switch, which gets its program, its addresses and its jobs over P4Runtime.

The controller sees a switch only through P4Runtime, so it cannot distinguish the embedded engine and BMv2. Its jobs live in
this process and are lost with it; those of `controller.service` survive a restart.
"""

from pathlib import Path

from controller.p4runtime_writer import P4RuntimeWriter
from controller.program import CompiledFiles
from controller.session import P4RuntimeSession
from controller.switch_tables import SwitchTables
from netsum_common.closing import Closing
from tests.controller.one_switch import OneSwitch


class SwitchController(OneSwitch, Closing):
    """One switch's controller; a context manager that ends its session. Not for several threads at once.

    `connect` makes one.
    """

    def __init__(self, session: P4RuntimeSession, election_id: int, files: CompiledFiles) -> None:
        self._election_id = election_id
        self._files = files
        super().__init__(self._begin(session), files.capabilities)
        self.programmed = False

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
            The controller with the highest election id is primary.
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

    def close(self) -> None:
        """End the session; the switch keeps its entries."""
        self._writer.session.tear_down()

    def reconnect(self, timeout_s: float | None = None) -> None:
        """Open a new session to a restarted switch, which then needs `set_pipeline` and all its entries again.

        The controller keeps the jobs and their slots; `restart_job` installs each job again.

        Raises
        ------
        SwitchUnreachableError, NotPrimaryError
            As for `connect`.
        """
        old = self._writer.session
        old.tear_down()
        self.programmed = False
        session = P4RuntimeSession(old.address, old.device_id, self._election_id, timeout_s or old.timeout_s)
        self.use_tables(self._begin(session))

    def _begin(self, session: P4RuntimeSession) -> SwitchTables:
        self._writer = P4RuntimeWriter(session, self._files)
        return SwitchTables(self._writer, self._files.target)

    def set_pipeline(self) -> None:
        """Give the switch its program, which starts without entries; earlier jobs wait for `restart_job`.

        Raises
        ------
        WrongProgramError
            The compiled program cannot be read.
        SwitchRefusedError, SwitchUnreachableError, NotPrimaryError
            The switch refused the program or did not answer, or another controller is primary.
        """
        self._writer.set_pipeline()
        self.programmed = True
