"""Makes a way to a violation as short as it can be by leaving out steps, as long as the same is violated."""

import numpy as np

from sim.explore.engine.fair import FAIR_ROUNDS
from sim.explore.engine.found_states import BREADTH_FIRST, SEARCH, check_end
from sim.explore.story import StoryEvent, StoryStep, events_of
from sim.explore.system import System


def _found_at_the_end(system: System) -> int:
    """Run a network without faults from the state that is worked on; returns 0, or a violation."""
    record, keep = np.zeros(1, SEARCH), []
    for name, array in (
        ("work", np.zeros(4, np.uint64)),
        ("seen", np.zeros((FAIR_ROUNDS, 2), np.uint64)),
        ("ends", np.zeros((8, 3), np.uint64)),
        ("blank", system.blank),
    ):
        keep.append(array)
        record[name] = array.ctypes.data
    record["ends_mask"], record["order"] = 7, BREADTH_FIRST
    check_end(system.record, record[0], np.int64(0))
    return int(record["found"][0])


def violates(system: System, made: list[StoryStep], violation: int) -> list[StoryEvent] | None:
    """Make steps, then let a network without faults take over.

    Returns the events up to the violation, or None if another guarantee is violated, or none.
    """
    events = events_of(system, made)
    found = events[-1].result if events else 0
    if found >= 0:
        found = _found_at_the_end(system)
    return events if found == violation else None


def shrink(system: System, made: list[StoryStep], violation: int) -> list[StoryEvent]:
    """Return the events of a shortest way that leaving out steps leads to: none of its steps can be left out."""
    events = violates(system, made, violation)
    assert events is not None, "the way does not lead to the violation"
    direct = bool(events) and events[-1].result < 0
    size = max(len(events) // 2, 1)
    while True:
        steps = [event.step for event in events]
        at = 0
        shorter = False
        while at < len(steps):
            without = violates(system, steps[:at] + steps[at + size :], violation)
            # A violation on the way stays one: a schedule that leaves it to the network without faults shows less.
            same = without is not None and direct == (bool(without) and without[-1].result < 0)
            if without is not None and same and len(without) < len(steps):
                events, steps, shorter = without, [event.step for event in without], True
            else:
                at += size
        if size == 1 and not shorter:
            return events
        size = max(size // 2, 1)
