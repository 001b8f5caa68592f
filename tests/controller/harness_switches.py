"""Embedded switches behind the controller's sessions, which break, stand by and refuse as a test says."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pytest

from controller.entries import COUNTERS, WORKER_ADMISSION
from controller.errors import NotPrimaryError, SwitchRefusedError, SwitchUnreachableError
from controller.jobs import Job
from controller.service import link
from controller.service.network import SwitchSite
from controller.switch_tables import Reconciled, SwitchTables
from controller.table_writer import Change
from netsum.programs import compiled_program
from netsum_common.targets import TARGETS, Target
from sim.programming import InProcessWriter
from sim.switch import Switch, load_program
from sim.switch.ir import Program

LANES = 64
PROGRAM = compiled_program(LANES)
_FREE: list[InProcessWriter] = []
"""Embedded switches that no test uses any more: to make one takes long."""


@cache
def _program() -> Program:
    return load_program(PROGRAM.json)


def wipe(writer: InProcessWriter) -> None:
    """Empty the tables of a switch, and delete its groups."""
    for table in writer.tables:
        present = writer.read(table)
        if present:
            writer.write(Change.DELETE, present, "a test")
    writer.delete_groups(list(writer.groups()), "a test")


class HarnessSwitch:
    """An embedded switch, whether it can be reached, and the jobs that a controller has installed."""

    def __init__(self) -> None:
        self.writer = _FREE.pop() if _FREE else InProcessWriter(Switch(_program()))
        weakref.finalize(self, _FREE.append, self.writer)
        wipe(self.writer)
        self.lock = threading.RLock()
        self.cookie = 0
        self.jobs: dict[int, Job] = {}
        self.programs_set = 0
        self.sessions = 0
        self.reachable = True
        self.primary = True
        self.refusal = ""
        self.tofino = False
        self.address = ("", "")
        self.log: list[str] = []
        self.on_change: Callable[[], None] | None = None

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name in ("reachable", "primary", "sessions"):
            on_change = self.__dict__.get("on_change")
            if on_change is not None:
                on_change()

    def restart(self) -> None:
        """Come back with nothing."""
        with self.lock:
            self.cookie = 0
            self.jobs.clear()
            wipe(self.writer)
        self.sessions += 1

    def install(self, job: Job) -> None:
        """Install a job, as another controller would."""
        with self.lock:
            SwitchTables(self.writer).install(job)
            self.jobs[job.job_id] = job

    def count(self, job_id: int, packets: int) -> None:
        """Set the counters of the only job, of whose worker 0 the switch has admitted 100 packets, of worker 1 101, …."""
        engine = self.writer.switch
        (table,) = (name for name in engine.program.tables if name.endswith(WORKER_ADMISSION))
        with self.lock:
            for name in COUNTERS:
                engine.counter_write(self.writer.counter_name(name), job_id, packets, 0)
            for entry, named in zip(
                engine.table_entries(table), self.writer.read(WORKER_ADMISSION), strict=True
            ):
                worker_id = named.value("worker_id")
                assert isinstance(worker_id, int)
                engine.direct_counter_write(table, entry, 100 + worker_id, 0)


class HarnessSession:
    """Stands for a `P4RuntimeSession`."""

    switches: Mapping[str, HarnessSwitch] = {}

    def __init__(self, address: str, *rest: Any) -> None:
        self.switch = self.switches[address]
        self.switch.on_change = rest[-1]
        if not self.switch.reachable:
            raise SwitchUnreachableError(f"no P4Runtime server answers at {address}")
        if not self.switch.primary:
            raise NotPrimaryError(f"another controller is primary at {address}")
        self._number = self.switch.sessions

    @property
    def lost(self) -> bool:
        return not self.switch.reachable or self.switch.sessions != self._number

    @property
    def primary(self) -> bool:
        return self.switch.primary

    def tear_down(self) -> None:
        self.switch.on_change = None


class HarnessWriter:
    """The `TableWriter` of a switch over a session, as `P4RuntimeWriter` is."""

    def __init__(self, session: HarnessSession, files: object) -> None:
        del files
        self.session = session

    @contextlib.contextmanager
    def reached(self) -> Iterator[HarnessSwitch]:
        """Hold the switch during a request; raise if it does not answer or refuses."""
        with self.session.switch.lock:
            if self.session.lost:
                raise SwitchUnreachableError("the switch is gone")
            if self.session.switch.refusal:
                raise SwitchRefusedError(self.session.switch.refusal)
            yield self.session.switch

    def cookie(self) -> int:
        with self.reached() as switch:
            return switch.cookie

    def set_pipeline(self, cookie: int) -> None:
        with self.reached() as switch:
            wipe(switch.writer)
            switch.cookie = cookie
            switch.jobs.clear()
            switch.programs_set += 1

    def __getattr__(self, name: str) -> Any:
        """Return a method of `InProcessWriter` that first reaches the switch."""
        to = getattr(self.session.switch.writer, name)

        def call(*arguments: Any) -> Any:
            with self.reached():
                return to(*arguments)

        return call if callable(to) else to


class HarnessTables(SwitchTables):
    """The shipped `SwitchTables`, which notes the jobs that the switch has, and checks that none share slots."""

    def __init__(self, writer: Any, target: Target) -> None:
        self._site: HarnessSwitch = writer.session.switch
        super().__init__(writer, TARGETS["tofino"] if self._site.tofino else target)

    def install(self, job: Job) -> None:
        overlapping = [
            one for one in self._site.jobs.values() if one.slots.overlaps(job.slots) and one.name != job.name
        ]
        assert not overlapping, f"{job} on the slots of {overlapping}"
        super().install(job)
        self._site.jobs[job.job_id] = job
        self._site.log.append(f"install {job.name}")

    def withdraw(self, job: Job) -> None:
        super().withdraw(job)
        self._site.jobs.pop(job.job_id, None)
        self._site.log.append(f"withdraw {job.name}")

    def reset_counters(self, job: Job) -> None:
        assert self._site.jobs.get(job.job_id) is None
        super().reset_counters(job)

    def reconcile(
        self,
        jobs: Sequence[Job],
        address: tuple[str, str],
        stations: Mapping[str, int],
        flood_ports: Iterable[int],
    ) -> Reconciled:
        found = super().reconcile(jobs, address, stations, flood_ports)
        self._site.jobs, self._site.address = {job.job_id: job for job in jobs}, address
        return found


def use_switches(
    patch: pytest.MonkeyPatch,
    sites: Collection[SwitchSite],
    last_backoff_s: float,
    kinds: tuple[type[HarnessSwitch], type[HarnessWriter]] = (HarnessSwitch, HarnessWriter),
) -> dict[str, HarnessSwitch]:
    """Have services open sessions with embedded switches; return these by name."""
    switches = {site.name: kinds[0]() for site in sites}
    patch.setattr(HarnessSession, "switches", {site.p4runtime: switches[site.name] for site in sites})
    patch.setattr(link, "P4RuntimeSession", HarnessSession)
    patch.setattr(link, "P4RuntimeWriter", kinds[1])
    patch.setattr(link, "SwitchTables", HarnessTables)
    patch.setattr(link, "FIRST_BACKOFF_S", 0.02)
    patch.setattr(link, "LAST_BACKOFF_S", last_backoff_s)
    return switches
