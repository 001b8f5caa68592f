"""Embedded switches of this process that answer late, refuse, restart and lose answers, and a log of writes to them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, TypeVar

from controller.entries import JOB_PARENT, WORKER_ADMISSION, Entry
from controller.errors import NotPrimaryError, SwitchRefusedError, SwitchUnreachableError
from controller.jobs import Job
from controller.program import CompiledFiles
from controller.service.link import REQUEST_TIMEOUT_S
from controller.service.network import SwitchSite
from controller.table_writer import Change, Key
from sim.programming import InProcessWriter
from sim.switch import Switch, load_program
from tests.controller.harness_switches import PROGRAM, wipe
from tests.controller.world.simulation import Simulation
from tests.proof.epoch_hypotheses import Epoch, Hypotheses

Result = TypeVar("Result")
OPENS_AFTER_S = 0.001


@cache
def program_files() -> CompiledFiles:
    return CompiledFiles(PROGRAM.json, PROGRAM.p4info)


@cache
def _engine(number: int) -> InProcessWriter:
    """Return an embedded switch, which worlds use one after the other: it is emptied, as to make one takes long."""
    return InProcessWriter(Switch(load_program(program_files().path)))


class Watcher(Protocol):
    """Hears of the epochs that a switch admits."""

    def admits(self, switch: "SimulatedSwitch", epoch: Epoch, entry: Entry) -> None:
        """An entry of an epoch is about to be inserted."""


class SlotHypotheses(Hypotheses):
    """The proof's hypotheses, where an epoch ends when its slots, or its job, get another one.

    Until then its entries may come back: to the slots, packets in between were lost. A move that cannot be saved does so.
    """

    def write(self, entry: Entry) -> None:
        epoch = Epoch.of(entry)
        if epoch.number not in self.issued:
            before = set(self.issued.values()) - set(self.admitted.values())
            self.ended |= {one for one in before if one.shares_slots(epoch) or one.job_id == epoch.job_id}
        super().write(entry)

    def delete(self, entry: Entry) -> None:
        self.admitted.pop(entry.key)


@dataclass
class SimulatedSwitch:
    """A switch, and the faults of the connection to it. Times are in seconds."""

    name: str
    number: int
    simulation: Simulation
    delays: tuple[float, ...] = (0.0001,)  # Possible delays of a request, and of an answer.
    loses: float = 0.0  # Probability that a request, or its answer, is lost.
    refuses: int = 0  # Number of the next writes that are refused.
    hangs_until: float = 0.0  # Time until which it does not answer.
    down_until: float = 0.0  # Time until which it is down.
    cookie: int = 0
    boots: int = 0
    sessions: list["SimulatedSession"] = field(default_factory=list)
    hypotheses: SlotHypotheses = field(default_factory=SlotHypotheses)
    used: set[Epoch] = field(default_factory=set)  # Epochs whose entries were lost in a restart.
    watcher: Watcher | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = self.simulation.chance(f"switch {self.name}")
        self.writer = _engine(self.number)
        self.wipe()

    @property
    def admitted(self) -> dict[Key, Epoch]:
        """The epochs of all entries that admit packets."""
        return self.hypotheses.admitted

    def wipe(self) -> None:
        """Lose every entry."""
        wipe(self.writer)
        self.used.update(self.admitted.values())
        self.hypotheses.zero()

    def restart(self, seconds: float = 0.0) -> None:
        """Lose all state, and run again after some time."""
        self.cookie = 0
        self.down_until = self.simulation.now + seconds
        self.wipe()
        self.break_sessions()

    def break_sessions(self) -> None:
        """End all connections."""
        self.boots += 1
        for session in list(self.sessions):
            session.end()

    def take_over(self, program: bool, extra: bool) -> None:
        """Let a controller of somebody else be primary for a moment, which changes the program or the entries."""
        self.break_sessions()
        if program:
            self.cookie = self.chance.randrange(1, 1 << 62)
            self.wipe()
            return
        for table in self.writer.tables:
            present = [one for one in self.writer.read(table) if self.chance.random() < 0.5]
            if not present:
                continue
            if extra and table == WORKER_ADMISSION:
                # Other tokens are other keys: entries that nobody here has written.
                changed = [_with_token(one, self.chance.randrange(1 << 32)) for one in present]
                self.writer.write(Change.INSERT, changed, "a foreign controller")
            else:
                self.writer.write(Change.DELETE, present, "a foreign controller")
                for one in present:
                    self.admitted.pop(one.key, None)

    def primary(self) -> "SimulatedSession | None":
        return max(self.sessions, key=lambda session: session.election_id, default=None)

    def written(self, change: Change, entry: Entry) -> None:
        """Note an entry that is about to be written by a controller of the world."""
        if entry.table != WORKER_ADMISSION or not entry.match:
            return
        if change is not Change.INSERT and entry.key in self.admitted:
            self.hypotheses.delete(entry)
        if change is Change.DELETE:
            return
        epoch = Epoch.of(entry)
        if epoch in self.used:
            self.hypotheses.broken.append(f"write_entry: {epoch}, of which the switch has lost entries")
        if self.watcher is not None:
            self.watcher.admits(self, epoch, entry)
        self.hypotheses.write(entry)

    def epochs_of(self, part: Job) -> tuple[int, set[int]]:
        """Return how many entries of a job's present epoch there are, and the other epochs of its job id."""
        here = [epoch for epoch in self.admitted.values() if epoch.job_id == part.job_id]
        same = [e for e in here if (e.number, e.token) == (part.epoch, part.token)]
        return len(same), {epoch.number for epoch in here} - {part.epoch}

    def has_parent_of(self, job_id: int) -> bool:
        return any(one.value("job_id") == job_id for one in self.writer.read(JOB_PARENT))


class SimulatedSession:
    """Stands for a `controller.session.P4RuntimeSession`."""

    def __init__(
        self, switch: SimulatedSwitch, address: str, election_id: int, on_change: Callable[[], None]
    ) -> None:
        self.switch, self.address, self.election_id = switch, address, election_id
        self.on_change = on_change
        self.lost = self.superseded = False
        self._boot = switch.boots
        switch.simulation.pause(OPENS_AFTER_S + switch.chance.choice(switch.delays))
        if switch.simulation.now < max(switch.down_until, switch.hangs_until):
            switch.simulation.pause(REQUEST_TIMEOUT_S)
            raise SwitchUnreachableError(f"no P4Runtime server answers at {address} within 5 s")
        self._boot = switch.boots
        first = switch.primary()
        if first is not None and first.election_id >= election_id:
            raise NotPrimaryError(f"another controller is primary at {address}")
        switch.sessions.append(self)
        if first is not None:
            first.superseded = True
            first.on_change()

    @property
    def primary(self) -> bool:
        return not self.superseded and self.switch.primary() is self

    def end(self) -> None:
        """Lose the connection."""
        if self in self.switch.sessions:
            self.switch.sessions.remove(self)
        self.lost = True
        self.on_change()

    def tear_down(self) -> None:
        if not self.lost:
            self.switch.simulation.pause(self.switch.chance.choice(self.switch.delays))
        if self in self.switch.sessions:
            self.switch.sessions.remove(self)
            above = self.switch.primary()
            if above is not None:
                above.on_change()
        self.lost = True

    def call(self, what: str, work: Callable[[], Result], writes: bool) -> Result:
        """Carry out a request at the switch, unless something prevents it, and return the answer if it comes."""
        switch, simulation = self.switch, self.switch.simulation
        switch.counts["requests"] += 1
        if self.lost:
            raise self._gone(what)
        simulation.pause(switch.chance.choice(switch.delays))
        if self.lost:
            raise self._gone(what)
        lost = switch.chance.random() if switch.loses else 1.0
        if simulation.now < switch.hangs_until or lost < switch.loses / 2:
            switch.counts["requests lost"] += 1
            raise self._silent(what)
        if writes and not self.primary:
            raise NotPrimaryError(f"another controller became primary at {self.address} ({what})")
        if writes and switch.refuses:
            switch.refuses -= 1
            switch.counts["refused"] += 1
            raise SwitchRefusedError(f"the switch at {self.address} refused {what}: RESOURCE_EXHAUSTED")
        answer = work()
        if lost < switch.loses:
            switch.counts["answers lost"] += 1
            raise self._silent(what)
        simulation.pause(switch.chance.choice(switch.delays))
        if self.lost:
            raise self._gone(what)
        return answer

    def _gone(self, what: str) -> SwitchUnreachableError:
        return SwitchUnreachableError(f"the connection to the switch at {self.address} was lost ({what})")

    def _silent(self, what: str) -> SwitchUnreachableError:
        self.switch.simulation.pause(REQUEST_TIMEOUT_S)
        return SwitchUnreachableError(f"the switch at {self.address} did not answer in time ({what})")


class SimulatedWriter:
    """The `TableWriter` of an embedded switch over a simulated session."""

    def __init__(self, session: SimulatedSession) -> None:
        self.session = session
        self._to = session.switch.writer

    @property
    def tables(self) -> Any:
        return self._to.tables

    def cookie(self) -> int:
        return self.session.call("reading which program it runs", lambda: self.session.switch.cookie, False)

    def set_pipeline(self, cookie: int) -> None:
        def work() -> None:
            self.session.switch.wipe()
            self.session.switch.cookie = cookie

        self.session.call("setting the program", work, True)

    def write(self, change: Change, changed: Any, what: str) -> None:
        def work() -> None:
            for one in changed:
                self.session.switch.written(change, one)
                self._to.write(change, [one], what)

        self.session.call(f"{change.value} for {what}", work, True)

    def read(self, table: str) -> list[Entry]:
        return self.session.call(f"reading table {table}", lambda: self._to.read(table), False)

    def set_group(self, group: Any, what: str) -> None:
        self.session.call(f"the group of {what}", lambda: self._to.set_group(group, what), True)

    def delete_groups(self, group_ids: Any, what: str) -> None:
        self.session.call(what, lambda: self._to.delete_groups(group_ids, what), True)

    def groups(self) -> Any:
        return self.session.call("reading groups", self._to.groups, False)

    def counters(self, names: Any, indexes: Any) -> Any:
        return self.session.call("reading counters", lambda: self._to.counters(names, indexes), False)

    def reset_counters(self, names: Any, index: int) -> None:
        self.session.call("resetting counters", lambda: self._to.reset_counters(names, index), True)

    def entry_counts(self, counted: Any) -> Any:
        return self.session.call("reading the counters", lambda: self._to.entry_counts(counted), False)


def opener(switches: dict[str, SimulatedSwitch]) -> Callable[..., Any]:
    """Return what opens sessions with switches, by their addresses."""

    def opened(
        site: SwitchSite, files: object, election_id: int, on_change: Callable[[], None]
    ) -> SimulatedWriter:
        return SimulatedWriter(
            SimulatedSession(switches[site.p4runtime], site.p4runtime, election_id, on_change)
        )

    return opened


def _with_token(entry: Entry, token: int) -> Entry:
    match = tuple((name, token if name == "token" else value) for name, value in entry.match)
    return Entry(entry.table, match, entry.action, entry.params)
