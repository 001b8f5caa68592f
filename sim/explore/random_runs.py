"""Random runs on systems that are too large to be explored in full, with their coverage."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from controller.entries import COUNTERS, TREE_COUNTERS
from host_agent.protocol.records import COUNTERS as CORE_COUNTERS
from sim.core_calls import SHIPPED, CoreCode
from sim.explore.engine.fair import FAIR_ROUNDS
from sim.explore.random_walk import FAULT_KINDS, WALK, WEIGHTS, random_runs
from sim.explore.scenario import ExplorerScenario, passes_of
from sim.explore.story import StoryStep, Walk
from sim.explore.system import System

OUTCOMES: Final = (*COUNTERS, *TREE_COUNTERS)  # Counters of the P4 program.

_ROUNDS: Final = passes_of(
    *("sum", "int32", "max", "broadcast", "float32", "barrier"),
    *("bor", "int32", "saturating", "sparse", "float32", "min"),
    *("reduce", "gather"),
)
_WITH_QUORUM: Final = passes_of(
    *("sum", "quorum", "contributors", "quorum", "contributors", "int32"),
    *("quorum", "contributors", "sparse", "quorum", "contributors", "barrier"),
)

_system: Final = partial(ExplorerScenario, slots=4, rounds=_ROUNDS, copies=4, batches=False, attrition=False)

SYSTEMS: Final = (
    _system("losses", workers=8, slots=8),
    _system("one slot", workers=4, slots=1, batches=True, first_chunk=(1 << 32) - 5),
    _system("restarts", workers=4, epochs=2, switch_restarts=1),
    _system("deaths", workers=8, kills=2, deadlines=1, epochs=2),
    _system("quorum", workers=5, rounds=_WITH_QUORUM, quorum=3),
    _system("tree", workers=5, parents=(0, 0), leaves=(0, 1, 1, 2, 2)),
    _system(
        "tree restarts",
        workers=6,
        epochs=2,
        switch_restarts=1,
        parents=(0, 0, 1, 1),
        leaves=(2, 2, 3, 3, 4, 4),
    ),
)
"""The systems that are run at random, in turn."""

_WEIGHTS: Final = {
    "lose": 6000,
    "keep": 6000,
    "timers": 8000,
    "begin": 5000,
    "kill": 4,
    "control": 12,
    "restart": 4,
    "offer": 200,
    "deadline": 1,
}
_LIMIT: Final = 60_000
_BUDGET: Final = 60_000
_PACKETS_LIMIT: Final = 1 << 15


@dataclass
class Tally:
    """Result of random runs."""

    # runs, rounds, steps: runs from the beginning, rounds that all workers of a run have done, steps made.
    runs: int = 0
    rounds: int = 0
    steps: int = 0
    ended: int = 0  # Runs that a network without faults had to bring to their end.
    # How often each outcome of the P4 program coincided with each kind of fault, (outcomes, kinds).
    pairs: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros((len(OUTCOMES), len(FAULT_KINDS)), np.int64)
    )
    core: dict[str, int] = field(default_factory=dict)  # Counters of the worker cores, by name.
    seconds: float = 0.0

    def add(self, other: "Tally") -> None:
        """Add another tally."""
        for name in ("runs", "rounds", "steps", "ended"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.pairs = self.pairs + other.pairs
        for name, count in other.core.items():
            self.core[name] = self.core.get(name, 0) + count
        self.seconds = max(self.seconds, other.seconds)


class RandomRuns:
    """Random runs of one system."""

    def __init__(
        self, scenario: ExplorerScenario, program: Path, seed: int, worker: CoreCode = SHIPPED
    ) -> None:
        self.system = system = System(scenario, program, worker)
        self.tally = Tally()
        mixed = np.random.SeedSequence([seed, sum(scenario.name.encode())]).generate_state(1, np.uint64)
        self._walk = walk = np.zeros(1, WALK)
        walk["generator"] = mixed | np.uint64(1)
        walk["limit"], walk["budget"] = _LIMIT, _BUDGET
        for name in WEIGHTS:
            walk[name] = _WEIGHTS[name]
        # A tree has more entries to write until its workers can join a new epoch.
        walk["control"] *= 2 * scenario.shape.switches - 1
        self._trail = np.zeros(_LIMIT, np.uint32)
        cells = [system.counter_address(name, 1) for name in OUTCOMES]
        self._counters = np.array(cells, np.int64)
        self._before = np.zeros(len(OUTCOMES), np.int64)
        self._fair: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]] = (
            np.zeros((8, 3), np.uint64),
            np.zeros((FAIR_ROUNDS, 2), np.uint64),
            np.zeros(4, np.uint64),
        )

    def run(self, until: Callable[[], bool]) -> int:
        """Make runs until stopped; returns 0, or the violation of the last run."""
        system, world = self.system, self.system.world
        started = time.monotonic()
        result = 0
        while not result and not until():
            if world.get("packet_count") > _PACKETS_LIMIT:
                world.put(packet_count=0)
                world.arrays["index"][:] = 0
            result = int(
                random_runs(
                    system.record,
                    self._walk[0],
                    np.int64(system.blank.ctypes.data),
                    system.root,
                    self._trail,
                    (self._counters, self._before, self.tally.pairs),
                    self._fair,
                )
            )
            self.tally.seconds = time.monotonic() - started
        for name in ("runs", "rounds", "steps", "ended"):
            setattr(self.tally, name, int(self._walk[name][0]))
        cores = world.arrays["cores"]
        self.tally.core = {name: int(cores[name].sum()) for name in CORE_COUNTERS if name != "chunks"}
        return result

    def steps(self) -> list[StoryStep]:
        """Return the steps of the last run."""
        walk = Walk(self.system)
        made = []
        for code in self._trail[: int(self._walk["run_steps"][0])].tolist():
            step = walk.step_of(code)
            made.append(step)
            walk.make(step)
        return made
