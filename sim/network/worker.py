"""A worker's collectives: the shipped schedule, polled whenever the worker core has finished a pass or has failed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypedDict

from host_agent.collectives import Collective
from host_agent.environment import CONGESTION_WINDOW, is_on
from host_agent.protocol.core import WorkerCore
from host_agent.schedule import Outcome, Schedule
from host_agent.wire import Admission
from sim.network.engine.engine_records import PS_PER_NS
from sim.network.parameters import HostCost

Plan = Callable[[Admission, int], Collective[Any]]
"""A function that plans a worker's next collective, from the worker's admission and the collective's number."""


class WorkersNetwork(Protocol):
    """The part of `Network` that its workers use."""

    @property
    def worker_records(self) -> Any:
        """Records `engine_records.WORKER` of all workers."""

    @property
    def now_ps(self) -> int:
        """The virtual time."""

    def poll_worker(self, number: int) -> None:
        """Let a worker begin the collectives that it may begin."""


class WorkerOptions(TypedDict, total=False):
    """Options of a job's workers; callables are called with a worker's rank."""

    name: str  # The job's name in errors; empty: its own, or its number.
    timeout_ns: int  # A collective fails if nothing of it completes for that long.
    at_once: int  # Collectives that are submitted ahead.
    first_chunk: int
    start_ns: Callable[[int], int]  # The worker's start, counted from now.
    cost: Callable[[int], HostCost]  # Processing time of the worker's host for packets.
    place: int  # Number of the worker on its host, 0 and up.
    added_bytes: int  # Bytes on the wire of lanes that are not simulated, for each packet with lanes.
    on_ended: Callable[[Worker, Outcome], None]  # Called when a collective of a worker has ended.
    checked: bool  # Whether results that workers write to an output of `Network.outputs` are compared.
    keep_outcomes: (
        bool  # Whether workers keep the outcomes of their collectives, and with them their results.
    )


WORKER_DEFAULTS: Final = WorkerOptions(
    name="",
    timeout_ns=10**12,
    at_once=1,
    first_chunk=0,
    start_ns=lambda rank: 0,
    cost=lambda rank: HostCost(),
    place=0,
    added_bytes=0,
    on_ended=lambda worker, outcome: None,
    checked=False,
    keep_outcomes=True,
)


class Worker:
    """A worker on a host."""

    def __init__(
        self,
        network: WorkersNetwork,
        number: int,
        admission: Admission,
        plans: Iterable[Plan],
        job: str,
        options: WorkerOptions,
    ) -> None:
        self._network = network
        self.number = number
        self.admission = admission
        self.job = job  # The job's name.
        self.core = WorkerCore(admission, options["timeout_ns"], options["first_chunk"])  # The shipped core.
        self.core.state["lane_bytes"] += options["added_bytes"]
        self.core.state["congestion"] = int(is_on(CONGESTION_WINDOW))
        self.schedule = Schedule(self.core)
        # outcomes, ended_ns: outcome (if kept) and time of each collective that has ended, in order.
        self.outcomes: list[Outcome] = []
        self.started_ns: list[
            int
        ] = []  # The time at which each begun collective entered the core's schedule.
        self.ended_ns: list[int] = []
        self._plans = deque(plans)
        self._planned = 0
        self._options = options

    @property
    def record(self) -> Any:
        """The worker's record in the network (`engine_records.WORKER`)."""
        return self._network.worker_records[self.number]

    @property
    def alive(self) -> bool:
        """Whether the worker's process runs; a dead worker neither sends nor receives."""
        return bool(self.record["alive"])

    @alive.setter
    def alive(self, alive: bool) -> None:
        self.record["alive"] = int(alive)

    @property
    def deaf(self) -> bool:
        """Whether the worker receives no packets."""
        return bool(self.record["deaf"])

    @deaf.setter
    def deaf(self, deaf: bool) -> None:
        self.record["deaf"] = int(deaf)

    @property
    def done(self) -> bool:
        """Whether all its collectives have ended, or it has failed or is dead."""
        failed = self.core.failed and len(self.schedule) == 0
        return not self.alive or failed or len(self.ended_ns) == self._planned + len(self._plans)

    def submit(self, plan: Plan) -> None:
        """Append a collective; it begins at once if fewer than `at_once` are in progress."""
        self._plans.append(plan)
        self._network.poll_worker(self.number)

    def poll(self) -> None:
        """Resolve collectives that have ended, and begin those that may begin."""
        record = self.record
        now_ns = max(int(record["busy_ps"]), self._network.now_ps) // PS_PER_NS
        for outcome in self.schedule.take_ended(now_ns):
            outcome.resolve()
            if self._options["keep_outcomes"]:
                self.outcomes.append(outcome)
            self.ended_ns.append(now_ns)
            self._options["on_ended"](self, outcome)
        while self._plans and len(self.schedule) < self._options["at_once"]:
            if self.core.failed:
                break
            self.schedule.add(self._plans.popleft()(self.admission, self._planned))
            self.started_ns.append(now_ns)
            self._planned += 1
        self.schedule.begin(now_ns)
        record["passes_seen"] = self.core.state["passes_done"][0]
        record["failure_seen"] = int(self.core.failed and len(self.schedule) == 0)
        record["busy_ps"] = max(int(record["busy_ps"]), self._network.now_ps)
