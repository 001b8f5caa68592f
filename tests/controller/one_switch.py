"""The jobs of one switch, over P4Runtime (`switch_controller`) or in the same process (`sim.programming`)."""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from controller.errors import JobRefusedError
from controller.job_controller import JobController
from controller.jobs import Job, WorkerEndpoint
from controller.ledger import DEFAULT_SLOTS
from controller.switch_tables import SwitchTables
from controller.trees import Branch, Tree, TreeSwitch, sending_to
from host_agent.job_api.job_request import JobRequest
from netsum_common.targets import Capabilities

_SWITCH: Final = "switch"


class OneSwitch:
    """A `JobController` of one switch. Not for several threads at once.

    Parameters
    ----------
    tables
        The switch's tables.
    capabilities
        Those of its program; jobs may have `slots` of them.
    new_token, unix_seconds
        As for `JobController`.

    Attributes
    ----------
    ip, mac
        The address for workers whose endpoint names none; empty before `set_switch_address`.
    """

    def __init__(
        self,
        tables: SwitchTables,
        capabilities: Capabilities,
        *,
        new_token: Callable[[], int] = lambda: secrets.randbits(32),
        unix_seconds: Callable[[], float] = time.time,
    ) -> None:
        self._held = {_SWITCH: tables}
        self.tables = tables
        self.capabilities = capabilities
        self.ip = self.mac = ""
        self.programmed = True  # Whether the switch has its program.
        alone = {_SWITCH: TreeSwitch(_SWITCH, "", "", {})}
        self._controller = JobController(
            alone, self._held, capabilities, new_token=new_token, unix_seconds=unix_seconds
        )
        self.ledger = self._controller.ledgers[_SWITCH]  # The jobs and reservations of the switch.

    def use_tables(self, tables: SwitchTables) -> None:
        """Write to these tables from now on: those of a new session with the switch."""
        self.tables = self._held[_SWITCH] = tables

    def set_switch_address(self, ip: str, mac: str) -> None:
        """Let the switch answer for an address, to which workers send whose endpoint names no other.

        Raises
        ------
        ControllerError
            The switch refused the address or did not answer.
        """
        self.tables.set_switch_address(ip, mac)
        self.ip, self.mac = ip, mac

    def create_job(
        self, name: str, workers: Sequence[WorkerEndpoint], slots: int = DEFAULT_SLOTS, **options: Any
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
        options
            Further fields of `JobRequest`.

        Raises
        ------
        JobRefusedError
            With the reason.
        ControllerError
            The switch refused the job or did not answer; nothing is reserved then.
        """
        self._require_program()
        request = JobRequest(name, len(workers), slots, **options)
        return self._controller.admit_job(request, self._tree(workers)).root

    def restart_job(
        self, job: Job, workers: Sequence[WorkerEndpoint] | None = None, slots: int | None = None
    ) -> Job:
        """Give a job a new epoch and token: from then on no packet of its earlier epoch reaches a slot.

        Parameters
        ----------
        job
            Any epoch of the job.
        workers
            The workers' present endpoints; None: the endpoints are unchanged.
        slots
            The number of slots, or the most that the switch has for the job if fewer; None: the present slots.

        Raises
        ------
        UnknownJobError
            The job has ended.
        ControllerError
            The switch refused the job or did not answer; the job is not admitted then, and can be restarted again.
        """
        self._require_program()
        tree = None if workers is None else self._tree(workers)
        return self._controller.restart_job(self._controller.current(job), tree, slots).root

    def end_job(self, job: Job) -> None:
        """Take a job off the switch and free its slots.

        Raises
        ------
        UnknownJobError
            The job has already ended.
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
        return self.tables.admitted(self._controller.current(job).root)

    def _tree(self, workers: Sequence[WorkerEndpoint]) -> Tree:
        children = sending_to(self.ip, workers) if self.ip else workers
        ranks = tuple((rank,) for rank in range(len(children)))
        return Tree((Branch(_SWITCH, tuple(children), ranks, None),), {})

    def _require_program(self) -> None:
        if not self.programmed:
            raise JobRefusedError("the switch has no program yet: call set_pipeline first")
