"""Writing, deleting and counting of a job's entries over its switches' links, in the order of `controller.job_controller`."""

import contextlib
from collections.abc import Sequence

from controller.entries import COUNTERS
from controller.errors import ControllerError, SwitchRefusedError, SwitchUnreachableError
from controller.jobs import Job
from controller.service.jobs import Counted, ServiceJob
from controller.service.link import SwitchLink
from controller.service.states import LinkState
from controller.switch_tables import SwitchTables


class Installation:
    """The links to the switches, and the jobs' entries on them."""

    def __init__(self) -> None:
        self.links: dict[str, SwitchLink] = {}  # The link to each switch, by its name.

    @property
    def ready(self) -> set[str]:
        """The switches that answer and have been reconciled."""
        return {name for name, link in self.links.items() if link.state is LinkState.READY}

    def link(self, switch: str) -> SwitchLink:
        """Return the link to a switch.

        Raises SwitchUnreachableError if the switch is on an aggregator host whose agent is gone.
        """
        if switch not in self.links:
            raise SwitchUnreachableError(f"aggregator {switch} is gone")
        return self.links[switch]

    async def write(self, job: ServiceJob) -> bool:
        """Write a job's epoch to the switches that do not have it.

        Returns whether all its switches hold the epoch; False if the job has ended, or is being restarted, meanwhile. Raises
        ControllerError if a switch refused or did not answer; the next session with it installs the rest.
        """
        epoch = job.record.epoch
        if not job.record.running:
            return False
        for switch, part in job.parts.items():
            if job.installed.get(switch) == epoch:
                continue

            def install(tables: SwitchTables, switch: str = switch, part: Job = part) -> None:
                if job.installed.get(switch) != epoch:  # Otherwise a new session has written the epoch.
                    tables.install(part)

            await self.link(switch).call(install)
            if not job.record.running or job.record.epoch != epoch:
                return False
            job.installed[switch] = epoch
        return True

    async def vacate(self, job: ServiceJob) -> None:
        """Delete a job's entries from its switches: now, or by the reconciliation at the beginning of a switch's next session."""
        for switch, part in reversed(job.parts.items()):

            def withdraw(tables: SwitchTables, switch: str = switch, part: Job = part) -> None:
                if job.parts.get(switch) is part:  # Otherwise the switch has a later epoch, which must stay.
                    tables.withdraw(part)

            try:
                await self.link(switch).call(withdraw)
            except SwitchRefusedError as fault:  # No job may use these slots before a reconciliation.
                await self.link(switch).lose(fault)
            except ControllerError:
                pass  # There is no session; the reconciliation of the next one removes the job.

    async def reset_counters(self, job: ServiceJob) -> None:
        """Zero the counters of a job's id, which still hold the counts of the id's previous job.

        Raises ControllerError if a switch refused or did not answer.
        """
        for switch, part in job.parts.items():
            await self.link(switch).call(lambda tables, part=part: tables.reset_counters(part))  # type: ignore[misc]

    async def counted(self, jobs: Sequence[ServiceJob]) -> list[Counted]:
        """Return the switches' counts for each job; unavailable counters are omitted."""
        return [await self._counted(job) for job in jobs]

    async def _counted(self, job: ServiceJob) -> Counted:
        if job.ended.is_set():
            return job.last_counted
        if not job.parts:  # The counters of its id still count for the previous job.
            return Counted(dict.fromkeys(COUNTERS, 0))
        try:
            return await self.count(job)
        except ControllerError:
            return Counted()

    async def count(self, job: ServiceJob) -> Counted:
        """Read the counters of a job's switches; `packets` are those of the root.

        Raises ControllerError if a switch refused or did not answer.
        """
        assert job.tree is not None
        tree, parts = job.tree, dict(job.parts)  # The job may move to other switches meanwhile.
        by_switch: dict[str, dict[str, int]] = {}
        admitted: dict[int, int] = {}
        for branch in tree.branches:
            part = parts[branch.switch]
            packets, of_children = await self.link(branch.switch).read(
                lambda tables, part=part: _counted(tables, part)  # type: ignore[misc]
            )
            by_switch[branch.switch] = packets
            admitted |= {
                rank: of_children[child]
                for rank, child in tree.workers_of(branch).items()
                if child in of_children
            }
        return Counted(by_switch[tree.root], admitted, by_switch)


def _counted(tables: SwitchTables, part: Job) -> tuple[dict[str, int], dict[int, int]]:
    admitted: dict[int, int] = {}
    with contextlib.suppress(SwitchRefusedError):  # The job is being restarted, so it has no entries now.
        admitted = tables.admitted(part)
    return tables.counters([part.job_id])[part.job_id], admitted
