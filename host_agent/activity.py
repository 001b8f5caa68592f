"""The activity of a worker, read from outside while it works."""

import time
from dataclasses import dataclass
from typing import Final

from host_agent.protocol.arrivals import CHUNK_MASK
from host_agent.protocol.core import WorkerCore

STUCK_AFTER_NS: Final = 500_000_000
"""Age, in seconds, after which a chunk that blocks a collective is reported."""


@dataclass(frozen=True)
class Stuck:
    """The oldest chunk a worker waits for."""

    # slot, chunk: which one; the slot is relative to the job's range.
    slot: int
    chunk: int
    waiting_ns: int  # Since when nothing has completed.
    # Workers whose contribution the switch does not hold, by its last answer; None if it gave none.
    missing: tuple[int, ...] | None


@dataclass(frozen=True)
class Activity:
    """A worker's counts so far, and the chunk that it waits for."""

    counters: dict[str, int]  # As in `WorkerCore.counters`, since the communicator was made.
    in_flight: int  # Chunks.
    srtt_ns: int  # Smoothed round trip to the switch; 0 before the first.
    window_bytes: int  # The congestion window; 0: there is none.
    stuck: Stuck | None  # Unset while chunks complete.


def activity_of(core: WorkerCore) -> Activity:
    """Read a core that another thread may be driving; values that are read together may be a moment apart."""
    state = core.state[0].copy()
    in_flight, srtt_ns = int(state["in_flight"]), int(state["srtt_ns"])
    return Activity(core.counters(), in_flight, srtt_ns, core.window_bytes, _stuck(core))


def _stuck(core: WorkerCore) -> Stuck | None:
    state = core.state[0].copy()
    waiting_ns = time.monotonic_ns() - int(state["progress_ns"])
    if state["in_flight"] == 0 or waiting_ns < STUCK_AFTER_NS or core.failed:
        return None
    chunk = int(state["oldest_chunk"])
    missing = None
    if state["status_chunk"] == chunk:
        held = int(state["status_slot_chunk"]) == chunk & CHUNK_MASK
        seen = int(state["status_seen"]) if held else 0
        missing = core.admission.path[int(state["status_level"])].behind(seen)
    return Stuck(chunk & (core.admission.slot_count - 1), chunk & CHUNK_MASK, waiting_ns, missing)
