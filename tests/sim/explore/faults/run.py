"""Looks for a fault with the explorer."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from sim.core_calls import SHIPPED, CoreCode
from sim.explore.engine.world import STUCK, WRONG_NAME
from sim.explore.scenario import ExplorerScenario
from sim.explore.search import Search, SearchResult
from sim.explore.shrink import shrink
from sim.explore.story import StoryEvent, events_of, steps_of
from sim.explore.system import System
from tests.sim.explore.faults.fault import Fault
from tests.sim.explore.faults.program import changed_program
from tests.sim.explore.worker_texts import text_of, worker_with

__all__ = ["PROGRAMS", "Found", "faulty_system", "look_for"]

PROGRAMS: Final = Path(__file__).parents[1] / "programs"
"""Programs of other protocols, compiled."""


@dataclass(frozen=True)
class Found:
    """Result of looking for a fault.

    Attributes
    ----------
    system
        The last system that was explored.
    scenario
        Its scenario.
    result
        Of the last search.
    events
        A schedule that violates a guarantee. Empty if none does, or if a network without faults is enough.
    shortest
        Whether no schedule of fewer steps does.
    states, steps, seconds
        Over all scenarios.
    """

    system: System
    scenario: ExplorerScenario
    result: SearchResult
    events: tuple[StoryEvent, ...]
    shortest: bool
    states: int
    steps: int
    seconds: float


def faulty_system(fault: Fault | None, scenario: ExplorerScenario, program: Path) -> System:
    """Build a system with a fault in it, or the shipped one."""
    if fault is None:
        return System(scenario, program)
    worker = changed_worker(fault.module, fault.changes) if fault.module else SHIPPED
    if fault.source:
        return System(scenario, PROGRAMS / f"{fault.source}.json", worker)
    if fault.program is None:
        return System(scenario, program, worker)
    changed = Path(_changed_programs().name, f"{fault.name}-{program.name}")
    return System(scenario, changed_program(program, fault.program, changed), worker)


@cache
def _changed_programs() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of changed programs, which lasts as long as the process."""
    return tempfile.TemporaryDirectory()


@cache  # Compiled for seconds, and the same in all systems of a process.
def changed_worker(module: str, changes: tuple[tuple[str, str], ...]) -> CoreCode:
    """Return the worker core with pieces of one of its modules' text replaced.

    Parameters
    ----------
    module
        "arrivals" or "departures" of `host_agent.protocol`.
    changes
        (text as it stands there, text in its place).

    Raises
    ------
    AssertionError
        A text does not stand there exactly once.
    """
    text = text_of(module)
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {module}"
        text = text.replace(old, new)
    return worker_with({module: text})


def look_for(
    fault: Fault, program: Path, *, breadth_bytes: int = 1 << 28, memory_bytes: int = 1 << 31
) -> Found:
    """Explore a fault's scenarios until one violates a guarantee; all of them if it is harmless.

    Packets of finished chunks stay in flight: that they have no effect holds of the shipped code.

    Parameters
    ----------
    fault
        What is looked for.
    program
        The compiled P4 program that is changed.
    breadth_bytes
        Memory of a search for a shortest schedule. When it is used up, the search takes the states with the most packets
        first, and what it finds is made shorter.
    memory_bytes
        Memory of that search.
    """
    states = moves = 0
    seconds = 0.0
    found: Found | None = None
    for scenario in fault.scenarios:
        system = faulty_system(fault, scenario, program)
        shortest = not fault.harmless
        if shortest:
            result = _breadth_first(system, breadth_bytes)
            shortest = result.outcome != "memory"
        if not shortest:
            result = Search(system, order="largest", collect=False, memory_bytes=memory_bytes).run()
        states += result.progress.states
        moves += result.progress.steps
        seconds += result.progress.seconds
        events: tuple[StoryEvent, ...] = ()
        if result.outcome == "violated":
            events = tuple(shrink(system, steps_of(system, result.way), result.violation))
        found = Found(system, scenario, result, events, shortest, states, moves, seconds)
        if result.outcome == "violated":
            break
    assert found is not None
    return found


def _breadth_first(system: System, memory_bytes: int) -> SearchResult:
    result = Search(system, order="breadth", collect=False, memory_bytes=memory_bytes).run()
    if result.outcome == "violated" and result.violation not in (STUCK, WRONG_NAME):
        events = events_of(system, steps_of(system, result.way))
        if not events or events[-1].result >= 0:
            # The network without faults came upon it: find all its steps.
            again = Search(system, order="breadth", liveness=False, collect=False, memory_bytes=memory_bytes)
            return again.run()
    return result
