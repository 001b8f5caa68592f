"""Which jobs move: those on hosts back to switches, and those with more or less than their share of the slots."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from controller.moves import next_count
from controller.service.installation import Installation
from controller.service.jobs import ServiceJob
from controller.service.moves import Moves
from controller.service.queues import JobQueues
from controller.service.reservations import Reservations
from controller.service.shares import Shares
from controller.service.store import Store
from controller.service.trees import JobTrees


class Balance:
    """Begins the moves that bring every job to its switches and to its share.

    Parameters
    ----------
    jobs
        The jobs that have not ended, by name; only read here.
    queues
        Those of them that wait.
    store
        The persistent state.
    reservations
        What jobs could have.
    installation
        The links to the switches.
    trees
        Where jobs can be placed.
    shares
        How jobs share slots.
    moves
        Carries the moves out.
    room_on
        Called with a switch that has free slots now.
    """

    def __init__(
        self,
        jobs: dict[str, ServiceJob],
        queues: JobQueues,
        store: Store,
        reservations: Reservations,
        installation: Installation,
        trees: JobTrees,
        shares: Shares,
        moves: Moves,
        room_on: Callable[[str], None],
    ) -> None:
        self._jobs = jobs
        self._queues = queues
        self._store = store
        self._reservations = reservations
        self._installation = installation
        self._trees = trees
        self._shares = shares
        self._moves = moves
        self._room_on = room_on

    def restore(self) -> None:
        """Let jobs return from hosts; where jobs share slots, let those with more than their share give up some to others."""
        self._return_home()
        if not self._shares.active:
            return
        plan = self._shares.plan(self._installation.ready)
        waiting = self._queues.some_wait
        for job in list(self._jobs.values()):
            record = job.record
            share = plan.get(record.name, 0)
            if not record.job_id or record.aggregator or not share or share == record.slot_count:
                continue
            share = next_count(record.slot_count, share, waiting, partial(self._trees.most_slots, record))
            if share == record.slot_count:
                continue
            if not record.running:
                self._trees.resize(record, share)
                self._store.save(record)
                for switch in record.slots_on:
                    self._room_on(switch)
            elif self._moves.possible(job):
                self._moves.begin(job, share)

    def _return_home(self) -> None:
        """Move jobs from aggregator hosts to switches that have room for them, the oldest first."""
        if self._queues.some_wait:
            return
        for job in sorted(self._jobs.values(), key=lambda job: job.record.created):
            if job.record.aggregator and self._moves.possible(job):
                slots = self._reservations.room_at_home(job)
                if slots:
                    self._moves.begin(job, slots, home=True)
                    return
