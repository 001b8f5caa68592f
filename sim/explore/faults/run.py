"""Looks for a fault with the explorer."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from sim.explore.faults.catalogue import Fault
from sim.explore.faults.program import changed_program
from sim.explore.faults.worker import changed_worker
from sim.explore.scenario import Scenario
from sim.explore.search import Result, Search
from sim.explore.shrink import shrink
from sim.explore.story import Event, steps_of
from sim.explore.system import System
from sim.explore.worker_code import shipped_worker

__all__ = ["Found", "faulty_system", "look_for"]


@dataclass(frozen=True)
class Found:
    """What came of looking for a fault.

    Attributes
    ----------
    system
        The last system that was explored.
    scenario
        Its scenario.
    result
        Of the last search.
    events
        A shortest schedule that violates a guarantee; empty if none does.
    states, steps, seconds
        Over all scenarios.
    """

    system: System
    scenario: Scenario
    result: Result
    events: tuple[Event, ...]
    states: int
    steps: int
    seconds: float


def faulty_system(fault: Fault | None, scenario: Scenario, program: Path) -> System:
    """Build a system with a fault in it, or the shipped one."""
    if fault is None:
        return System(scenario, program)
    worker = changed_worker(fault.module, fault.changes) if fault.module else shipped_worker()
    if fault.program is None:
        return System(scenario, program, worker)
    with tempfile.TemporaryDirectory() as folder:
        changed = changed_program(program, fault.program, Path(folder, "changed.json"))
        return System(scenario, changed, worker)


def look_for(fault: Fault, program: Path, memory_bytes: int = 1 << 32) -> Found:
    """Explore a fault's scenarios breadth first until one violates a guarantee."""
    states = moves = 0
    seconds = 0.0
    worker = changed_worker(fault.module, fault.changes) if fault.module else shipped_worker()
    found: Found | None = None
    for scenario in fault.scenarios:
        if fault.program is None:
            system = System(scenario, program, worker)
        else:
            with tempfile.TemporaryDirectory() as folder:
                changed = changed_program(program, fault.program, Path(folder, "changed.json"))
                system = System(scenario, changed, worker)
        order = "largest" if fault.harmless else "breadth"
        result = Search(system, order=order, memory_bytes=memory_bytes).run()  # type: ignore[arg-type]
        states += result.progress.states
        moves += result.progress.steps
        seconds += result.progress.seconds
        events: tuple[Event, ...] = ()
        if result.outcome == "violated":
            events = tuple(shrink(system, steps_of(system, result.way), result.violation))
        found = Found(system, scenario, result, events, states, moves, seconds)
        if events:
            break
    assert found is not None
    return found
