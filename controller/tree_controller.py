"""The controller of jobs on trees of switches: it gives each job's switches their part, all of them or none.

No packet of a job's old epoch is admitted anywhere when the first of its new one is: a restart deletes all admissions,
from the leaves to the root, before it writes the first, from the root to the leaves. So each packet meets switches above it
that know its epoch, or none that admits it.

Its jobs live in this process and are forgotten with it, as those of `controller.switch_controller`.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.errors import ControllerError, JobRefusedError, UnknownJobError
from controller.jobs import Job
from controller.ledger import DEFAULT_SLOTS, JobLedger
from controller.switch_tables import SwitchTables
from controller.trees import Branch, Place, Tree, TreeSwitch, place_tree
from host_agent.wire.admission import Admission
from host_agent.wire.constants import UDP_PORT


@dataclass(frozen=True)
class TreeJob:
    """One epoch of a job on a tree of switches.

    Attributes
    ----------
    name
        For people; unique among the controller's jobs.
    tree
        Which switch does what.
    parts
        What each switch holds, by its name.
    """

    name: str
    tree: Tree
    parts: Mapping[str, Job]

    @property
    def admissions(self) -> list[Admission]:
        """What each worker needs to take part, by rank."""
        return self.tree.admissions(self.parts)


class TreeController:
    """The jobs of several switches. Not for several threads at once.

    Parameters
    ----------
    switches
        All switches, by name.
    tables
        The tables of each. Their programs and addresses have been set.
    slot_capacity
        Number of slots that each switch's program has.
    lanes
        int32 values a packet carries, the same on all switches.
    new_token
        Makes 32 bits that no one can guess.
    unix_seconds
        Tells the time, which epochs follow.
    """

    def __init__(
        self,
        switches: Mapping[str, TreeSwitch],
        tables: Mapping[str, SwitchTables],
        slot_capacity: int,
        lanes: int,
        *,
        new_token: Callable[[], int] = lambda: secrets.randbits(32),
        unix_seconds: Callable[[], float] = time.time,
    ) -> None:
        self._new_token = new_token
        self._unix_seconds = unix_seconds
        self._switches = switches
        self._tables = dict(tables)
        self._ledgers = {name: JobLedger(slot_capacity, lanes) for name in switches}
        self._jobs: dict[str, TreeJob] = {}

    @property
    def jobs(self) -> tuple[TreeJob, ...]:
        """The jobs that have not ended."""
        return tuple(self._jobs.values())

    def load(self, switch: str) -> float:
        """Return which part of a switch's slots jobs hold."""
        ledger = self._ledgers[switch]
        return 1 - ledger.free_slots / ledger.capacity

    def create_job(
        self, name: str, workers: Sequence[Place], slots: int = DEFAULT_SLOTS, quorum: int = 0
    ) -> TreeJob:
        """Choose a tree for a job and admit it on all its switches.

        Parameters
        ----------
        name
            Unique among the controller's jobs.
        workers
            Where they are, by rank.
        slots
            Chunks in flight at most; a power of two.
        quorum
            So many contributions complete a roll call of the job, whose tree is then one switch; 0: it has none.

        Raises
        ------
        JobRefusedError
            There is no tree for it, it has a quorum and needs several switches, or one of its switches has no room. Nothing
            is held then.
        ControllerError
            A switch did not take it. Nothing is held then.
        """
        if name in self._jobs:
            raise JobRefusedError(f"a job named {name!r} is running: end it first, or take another name")
        tree = place_tree(self._switches, workers, self.load)
        if quorum and len(tree.branches) > 1:
            names = ", ".join(branch.switch for branch in tree.branches)
            raise JobRefusedError(f"a job with a quorum is added on one switch, and {name!r} needs {names}")
        parts = self._admit(name, tree, slots, quorum)
        job = TreeJob(name, tree, parts)
        try:
            for branch in tree.branches:
                self._tables[branch.switch].reset_counters(parts[branch.switch])
                self._tables[branch.switch].install(parts[branch.switch])
        except ControllerError:
            self._withdraw(job)
            for switch, part in parts.items():
                self._ledgers[switch].end(part)
            raise
        self._jobs[name] = job
        return job

    def restart_job(self, job: TreeJob) -> TreeJob:
        """Give a job a new epoch and token on all its switches, as after the restart of any of them.

        Raises
        ------
        UnknownJobError
            It has ended.
        ControllerError
            A switch did not take it: the job is admitted on no switch that answers, and can be restarted again.
        """
        present = self._current(job)
        for branch in reversed(present.tree.branches):
            self._tables[branch.switch].withdraw(present.parts[branch.switch])
        last_token = next(iter(present.parts.values())).token
        while (token := self._new_token()) == last_token:
            pass
        epoch = self._next_epoch(present.tree)
        parts = {
            switch: self._ledgers[switch].renew(part, token=token, unix_seconds=epoch)
            for switch, part in present.parts.items()
        }
        renewed = replace(present, parts=parts)
        self._jobs[job.name] = renewed
        try:
            for branch in renewed.tree.branches:
                self._tables[branch.switch].install(parts[branch.switch])
        except ControllerError:
            self._withdraw(renewed)
            raise
        return renewed

    def end_job(self, job: TreeJob) -> None:
        """Take a job off its switches and free its slots.

        Raises
        ------
        UnknownJobError
            It has ended already.
        ControllerError
            A switch did not answer; the job keeps its slots then.
        """
        present = self._current(job)
        for branch in reversed(present.tree.branches):
            self._tables[branch.switch].withdraw(present.parts[branch.switch])
        for switch, part in present.parts.items():
            self._ledgers[switch].end(part)
        del self._jobs[present.name]

    def counters(self, job: TreeJob) -> dict[str, dict[str, int]]:
        """Return the packets that each of a job's switches counted for it, by the names of switches and counters.

        Raises
        ------
        ControllerError
            A switch did not answer.
        """
        present = self._current(job)
        return {
            switch: self._tables[switch].counters([part.job_id])[part.job_id]
            for switch, part in present.parts.items()
        }

    def _current(self, job: TreeJob) -> TreeJob:
        present = self._jobs.get(job.name)
        if present is None:
            raise UnknownJobError(f"job {job.name!r} has ended, or belongs to another controller")
        return present

    def _admit(self, name: str, tree: Tree, slots: int, quorum: int) -> dict[str, Job]:
        """Let each switch's ledger hold its part, with one job id, token and epoch; all of them or none."""
        free = [set(self._ledgers[branch.switch].free_job_ids) for branch in tree.branches]
        common = set.intersection(*free)
        if not common:
            raise JobRefusedError(
                f"no job id is free on all of {', '.join(branch.switch for branch in tree.branches)}: end a job first"
            )
        job_id, token, epoch = min(common), self._new_token(), self._next_epoch(tree)
        parts: dict[str, Job] = {}
        try:
            for branch in tree.branches:
                parts[branch.switch] = self._admit_branch(name, branch, slots, job_id, token, epoch, quorum)
        except JobRefusedError:
            for switch, part in parts.items():
                self._ledgers[switch].end(part)
            raise
        return parts

    def _admit_branch(
        self, name: str, branch: Branch, slots: int, job_id: int, token: int, epoch: int, quorum: int
    ) -> Job:
        ledger = self._ledgers[branch.switch]
        try:
            ledger.reserve(name, slots, job_id)
            try:
                return ledger.admit(
                    name,
                    branch.children,
                    slots,
                    switch=(self._switches[branch.switch].ip, UDP_PORT),
                    token=token,
                    unix_seconds=epoch,
                    parent=branch.parent,
                    quorum=quorum,
                )
            except JobRefusedError:
                ledger.release(name)
                raise
        except JobRefusedError as refusal:
            raise JobRefusedError(f"switch {branch.switch}: {refusal}") from None

    def _next_epoch(self, tree: Tree) -> int:
        """Return an epoch that is new on all switches of a tree."""
        last = max(self._ledgers[branch.switch].last_epoch for branch in tree.branches)
        return max(last + 1, int(self._unix_seconds()))

    def _withdraw(self, job: TreeJob) -> None:
        for branch in reversed(job.tree.branches):
            with contextlib.suppress(ControllerError):  # It does not answer: it begins empty when it is back.
                self._tables[branch.switch].withdraw(job.parts[branch.switch])
