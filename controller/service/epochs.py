"""A job's epochs: each is on disk before it is on the switches, and there before the workers are notified.

After a crash in between, the reconciliation at the beginning of the next session with a switch repairs the difference.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from controller.errors import ControllerError, JobRefusedError, SwitchRefusedError
from controller.jobs import another_token
from controller.service.installation import Installation
from controller.service.jobs import Kind, RefusalError, ServiceJob
from controller.service.link import SwitchLink
from controller.service.moves import Moves
from controller.service.states import JobEvent
from controller.service.store import Store
from controller.service.trees import JobTrees

log = logging.getLogger(__name__)


class End(Protocol):
    """Ends a job. Its workers receive the refusal if there is one, else the reason."""

    def __call__(self, job: ServiceJob, reason: str, refusal: RefusalError | None = None) -> None:
        """End it."""


class Epochs:
    """Gives jobs their epochs, on their switches and to their workers.

    Parameters
    ----------
    jobs
        The jobs that have not ended, by name; only read here.
    store
        The persistent state.
    installation
        The links to the switches.
    trees
        Where jobs can be placed.
    moves
        The moves under way, which a new epoch ends.
    report_s
        Interval of the workers' reports, in seconds.
    program
        A number for the switches' program; a switch with another one gets it.
    end
        Ends a job.
    begin
        Runs a coroutine in the background.
    on_running
        Called when a job runs.
    room_on
        Called with a switch that is ready.
    """

    def __init__(
        self,
        jobs: dict[str, ServiceJob],
        store: Store,
        installation: Installation,
        trees: JobTrees,
        moves: Moves,
        report_s: float,
        program: int,
        end: End,
        begin: Callable[[Coroutine[Any, Any, None]], None],
        on_running: Callable[[], None],
        room_on: Callable[[str], None],
    ) -> None:
        self._jobs = jobs
        self._store = store
        self._installation = installation
        self._trees = trees
        self._moves = moves
        self._report_s = report_s
        self._program = program
        self._end = end
        self._begin = begin
        self._on_running = on_running
        self._room_on = room_on

    async def start(self, job: ServiceJob) -> None:
        """Give a complete job its next epoch, install it on all its switches, and notify its workers."""
        if len(job.parts) > 1:
            # No switch takes a packet of the old epoch when the first takes one of the new.
            await self._installation.withdraw(job)
        fresh = not job.record.restarts
        self.renew(job)
        if fresh:
            await self._installation.reset_counters(job)
        await self.install(job)

    def renew(self, job: ServiceJob, goes_on: bool = False) -> None:
        """Give a job its next epoch, on disk first; its workers go on in it, or are notified of a restart."""
        record = job.record
        self._moves.drop(job)
        record.moved_from = record.epoch if goes_on else 0
        record.moves += goes_on
        tree = self._trees.place(record)
        token = another_token(record.token)
        job.parts = self._trees.renew(record, tree, token, int(time.time()))
        job.admissions = tree.admissions(job.parts)
        job.tree = tree
        job.installed = {}
        record.hold(job.parts)
        job.on(JobEvent.RENEW, job.reason)
        self._store.save(record)

    async def install(self, job: ServiceJob) -> None:
        """Write a job's epoch to its switches, then notify its workers; raises as `Installation.write`."""
        if await self._installation.write(job):
            self._admitted(job)

    async def _install_rest(self, job: ServiceJob) -> None:
        """Install a job on its other switches, after one of them has been reconciled."""
        try:
            await self.install(job)
        except SwitchRefusedError as refusal:
            self._end(job, str(refusal), RefusalError(Kind.NOT_NOW, str(refusal)))
        except ControllerError:
            pass  # The next session with that switch installs the rest.

    def _admitted(self, job: ServiceJob) -> None:
        """Note that all switches hold a job's epoch, and send its workers their admissions."""
        record = job.record
        held = (
            f"slots {slots.base} to {slots.end - 1} of switch {switch}"
            for switch, slots in record.slots_on.items()
        )
        job.on(JobEvent.ADMIT, f"epoch {record.epoch}, {', '.join(held)}")
        job.admitted_epoch = record.epoch
        job.stop_timer()
        if job.waited_s is None:
            job.waited_s = job.waited_so_far_s
        for seat in job.present():
            knows = seat.told_epoch == record.epoch
            job.send_epoch_to(seat, self._report_s)
            if knows:  # An earlier controller may have held it.
                self._moves.notify(job, seat)
        self._on_running()

    async def bring_up(self, link: SwitchLink) -> None:
        """Reconcile a switch at the beginning of a session with it."""
        name, site = link.site.name, link.site
        mark = self._store.switch(name)[1]
        cookie = await link.cookie()
        running = [job for job in self._jobs.values() if name in job.parts and job.record.running]
        if cookie == 0 or cookie != mark or mark >> 31 != self._program:
            new_mark = self._program << 31 | secrets.randbits(31)
            await link.set_pipeline(new_mark)
            self._store.mark_switch(name, new_mark)
            if mark:
                link.restarts += 1
                log.warning(
                    "switch %s restarted without its state: %d jobs begin a new epoch", name, len(running)
                )
            for job in running:
                job.reason = f"switch {name} was restarted"
                job.record.restarts += 1
                try:
                    self.renew(job)
                except JobRefusedError as refusal:
                    self._end(job, str(refusal), RefusalError(Kind.NOT_NOW, str(refusal)))
        held = [(job, job.parts[name]) for job in running if job.record.running]
        flood = {*site.stations.values(), *site.ports} - site.spare_ports
        found = await link.do(
            lambda tables: tables.reconcile(
                [part for _, part in held], (site.ip, site.mac), site.stations, flood
            )
        )
        link.reconciled = time.time(), found
        for finding in found.findings:
            log.info("switch %s: %s", name, finding)
        for job, part in held:
            if not job.record.running or job.record.epoch != part.epoch:
                continue  # It ended, or another of its switches was restarted, in the meantime.
            job.installed[name] = part.epoch
            if job.installed.keys() >= job.parts.keys():
                self._admitted(job)
            else:
                self._begin(self._install_rest(job))
        self._room_on(name)
