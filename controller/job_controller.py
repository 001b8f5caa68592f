"""A controller of jobs on switches whose tables it writes: a job is installed on all of its switches or on none.

The jobs live in this process and are lost with it; those of `controller.service` survive a restart. Both controllers reserve
slots through `controller.ledger`, and write and delete a job's parts in one order.

A restart first deletes all admissions, from the leaves to the root, and then writes the new ones, from the root to the leaves.
So no switch admits packets of the old epoch when the first packet of the new epoch is admitted. A packet that a switch passes
up meets a switch that knows the packet's epoch, or admits no packet of the job. A switch that does not answer is skipped; its
error is raised when all other switches are done.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controller.errors import ControllerError, JobRefusedError, UnknownJobError
from controller.jobs import Job, another_token
from controller.ledger import DEFAULT_SLOTS, JobLedger, Ledgers
from controller.switch_tables import SwitchTables
from controller.trees import Place, Tree, TreeSwitch, place_tree
from host_agent.job_api.job_request import JobRequest
from host_agent.wire.admission import Admission
from netsum_common.targets import Capabilities


@dataclass(frozen=True)
class PlacedJob:
    """One epoch of a job on a tree of switches, which may consist of one switch."""

    name: str  # The users' name for the job; unique among the controller's jobs.
    tree: Tree  # The switches, and the children that each adds for.
    parts: dict[str, Job]  # The job's part on each switch, by the switch's name, the root first.

    @property
    def root(self) -> Job:
        """The root's part of the job."""
        return self.parts[self.tree.root]

    @property
    def admissions(self) -> list[Admission]:
        """The admission of each worker, by rank."""
        return self.tree.admissions(self.parts)


class JobController:
    """The jobs of one or several switches. Not for several threads at once.

    `tables`: the tables of each switch, by name; the mapping is only read here, and programs and addresses have been set.
    `capabilities`: those of the switches' programs, the same on all. `new_token`: makes 32 bits that no one can guess.
    `unix_seconds`: returns the Unix time, from which epochs are made.
    """

    def __init__(
        self,
        switches: Mapping[str, TreeSwitch],
        tables: Mapping[str, SwitchTables],
        capabilities: Capabilities,
        *,
        new_token: Callable[[], int] = lambda: secrets.randbits(32),
        unix_seconds: Callable[[], float] = time.time,
    ) -> None:
        # The jobs and reservations of each switch, by the switch's name.
        self.ledgers = Ledgers({name: JobLedger(capabilities) for name in switches})
        self._new_token = new_token
        self._unix_seconds = unix_seconds
        self._switches = switches
        self._tables = tables
        self._jobs: dict[str, PlacedJob] = {}

    @property
    def jobs(self) -> tuple[PlacedJob, ...]:
        """The jobs that have not ended."""
        return tuple(self._jobs.values())

    def load(self, switch: str) -> float:
        """Return the fraction of a switch's slots that jobs hold."""
        return self.ledgers.load(switch)

    def create_job(
        self, name: str, workers: Sequence[Place], slots: int = DEFAULT_SLOTS, **options: Any
    ) -> PlacedJob:
        """Choose a tree for a job and admit it on all its switches.

        `slots`: chunks in flight at most; a power of two. `options`: further fields of `JobRequest`. Raises JobRefusedError if
        there is no tree for the job, a job with a quorum needs several switches, or a switch has no room. Raises ControllerError
        if a switch refused its part or did not answer. After either error, no slots are reserved.
        """
        tree = place_tree(self._switches, workers, self.load)
        return self.admit_job(JobRequest(name, len(workers), slots, **options), tree)

    def admit_job(self, request: JobRequest, tree: Tree) -> PlacedJob:
        """Admit a job on all switches of its tree; raises as `create_job`. `request`: with a number of slots."""
        name, slots = request.name, request.slots
        if name in self._jobs:
            raise JobRefusedError(f"a job named {name!r} is running: end it first, or take another name")
        if not isinstance(slots, int):
            raise JobRefusedError(f"job {name!r}: expected a number of slots, not {slots}")
        names = [branch.switch for branch in tree.branches]
        if request.quorum and len(names) > 1:
            raise JobRefusedError(
                f"a job with a quorum is added on one switch, and {name!r} needs {', '.join(names)}"
            )
        held = self.ledgers.reserve(request, names, slots)
        try:
            parts = self._admitted(request, tree, self._new_token())
            job = PlacedJob(name, tree, parts)
            for switch, part in parts.items():
                self._tables[switch].reset_counters(part)
            self._install(job)
        except ControllerError:
            self.ledgers.discard(name, held)
            raise
        self._jobs[name] = job
        return job

    def _admitted(self, request: JobRequest, tree: Tree, token: int) -> dict[str, Job]:
        """Give a job its next epoch; raises as `Ledgers.admit`."""
        return self.ledgers.admit(request, tree, token=token, unix_seconds=int(self._unix_seconds()))

    def restart_job(self, job: PlacedJob, tree: Tree | None = None, slots: int | None = None) -> PlacedJob:
        """Give a job a new epoch and token on all its switches, as after the restart of any of them.

        `tree`: the same switches with the present endpoints of their children; None: the endpoints are unchanged. `slots`: the
        slots on each switch, or the most that all switches have for the job if fewer; None: the present slots. Raises
        UnknownJobError if the job has ended. Raises ControllerError if a switch refused its part or did not answer; then no
        switch that answers admits the job, which can be restarted again.
        """
        present = self.current(job)
        if slots is not None or len(present.parts) > 1:
            self._withdraw(present)
        if slots is not None:
            self.ledgers.resize(job.name, present.parts, slots)
        token = another_token(present.root.token, self._new_token)
        placed = replace(present, tree=tree or present.tree)
        parts = self._admitted(present.root.request, placed.tree, token)
        renewed = self._jobs[job.name] = replace(placed, parts=parts)
        self._install(renewed)
        return renewed

    def end_job(self, job: PlacedJob) -> None:
        """Take a job off its switches and free its slots.

        Raises UnknownJobError if the job has already ended. Raises ControllerError if a switch did not answer; the job then
        keeps its slots.
        """
        present = self.current(job)
        self._withdraw(present)
        self.ledgers.discard(present.name, present.parts)
        del self._jobs[present.name]

    def counters(self, job: PlacedJob) -> dict[str, dict[str, int]]:
        """Return the packets that each of a job's switches counted for it, by the names of switches and counters.

        Raises ControllerError if a switch did not answer.
        """
        return {
            switch: self._tables[switch].counters([part.job_id])[part.job_id]
            for switch, part in self.current(job).parts.items()
        }

    def current(self, job: PlacedJob | Job) -> PlacedJob:
        """Return the present epoch of a job, given any epoch of it; `UnknownJobError` if it has ended."""
        present = self._jobs.get(job.name)
        if present is None:
            raise UnknownJobError(f"job {job.name!r} has ended, or belongs to another controller")
        return present

    def _install(self, job: PlacedJob) -> None:
        """Write a job's parts; if a switch refuses its part, delete the parts on the other switches."""
        try:
            for switch, part in job.parts.items():
                self._tables[switch].install(part)
        except ControllerError:
            # A switch that does not answer now starts empty later, so its error is ignored.
            with contextlib.suppress(ControllerError):
                self._withdraw(job)
            raise

    def _withdraw(self, job: PlacedJob) -> None:
        faults: list[ControllerError] = []
        for switch, part in reversed(job.parts.items()):
            try:
                self._tables[switch].withdraw(part)
            except ControllerError as fault:
                faults.append(fault)
        if faults:
            raise faults[0]
