"""The number of slots that each job of a service is to have if jobs share slots. No I/O."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial

from controller.errors import JobRefusedError
from controller.moves import next_count
from controller.service.jobs import ServiceJob
from controller.service.sizing import slots_for
from controller.service.trees import JobTrees
from controller.sharing import Claim, Policy, jain, share_out


class Shares:
    """The shares of a controller's jobs.

    `least_slots`: the fewest slots that a job gets, a power of two. `jobs`: the jobs that have not ended, by name.
    """

    def __init__(
        self, policy: Policy, least_slots: int, trees: JobTrees, jobs: Mapping[str, ServiceJob]
    ) -> None:
        self.policy = policy
        self._least = least_slots
        self._trees = trees
        self._jobs = jobs

    @property
    def active(self) -> bool:
        """Whether jobs share slots."""
        return self.policy != "fixed"

    def plan(self, ready: Collection[str], also: ServiceJob | None = None) -> dict[str, int]:
        """Return how many slots each job that holds or awaits slots is to have; `also` counts as awaiting some."""
        holding = [job for job in self._jobs.values() if job.record.job_id and not job.record.aggregator]
        # Jobs on hosts return only if switches have room for them beside all other jobs.
        on_hosts = [job for job in self._jobs.values() if job.record.aggregator]
        asking = [job for job in self._jobs.values() if job.queue_place and not job.record.job_id]
        if also is not None and also not in asking and not also.record.job_id:
            asking.append(also)
        last = 1 + max((job.queue_place for job in asking), default=0)
        ordered = [
            *sorted(holding, key=lambda job: job.record.created),
            *sorted(asking, key=lambda job: job.queue_place or last),
            *sorted(on_hosts, key=lambda job: job.record.created),
        ]
        claims = [claim for job in ordered if (claim := self._claim(job, ready)) is not None]
        capacities = {name: ledger.capacity for name, ledger in self._trees.ledgers.items()}
        return share_out(claims, capacities, self._least)

    def changes(self, ready: Collection[str], waiting: bool) -> Iterator[tuple[ServiceJob, int]]:
        """Iterate over (job, new number of slots) of jobs whose number is to change; there are none if jobs do not share.

        `waiting`: whether a job waits for slots; if so, no other job gets more. The caller changes each job before it takes the
        next.
        """
        plan = self.plan(ready) if self.active else {}
        for job in list(self._jobs.values()):
            record, share = job.record, plan.get(job.name, 0)
            if record.job_id and not record.aggregator and share:
                slots = next_count(
                    record.slot_count,
                    share,
                    waiting,
                    partial(self._trees.ledgers.would_have, record.name, record.slots_on),
                )
                if slots != record.slot_count:
                    yield job, slots

    def jain(self) -> float:
        """Return Jain's index of slots per weight over running jobs; jobs with all the slots that they can use do not count."""
        short = []
        for job in self._jobs.values():
            counts = job.record.running and not job.record.aggregator
            claim = self._claim(job, ()) if counts else None
            if claim is not None and job.record.slot_count < claim.most:
                short.append(job.record.slot_count / claim.weight)
        return jain(short)

    def _claim(self, job: ServiceJob, ready: Collection[str]) -> Claim | None:
        record = job.record.at_home() if job.record.aggregator else job.record
        if record.request.on_host:
            return None
        switches: Collection[str] = record.slots_on.keys()
        try:
            if not switches and record.spread:
                if job.missing:
                    return None
                tree = self._trees.place(replace(record, switch=""), ready)
                switches = [branch.switch for branch in tree.branches]
            switches = switches or [record.switch]
            capacity = min(self._trees.ledgers[switch].capacity for switch in switches)
            most = min(slots_for(record.slots, self._trees.lanes, capacity), capacity)
        except JobRefusedError:
            return None
        weight = {"weighted": record.request.weight, "demand": float(most)}.get(self.policy, 1.0)
        return Claim(record.name, switches, most, weight)
