"""Traces for ui.perfetto.dev: a track for each worker's all-reduces, each link, each queue, and each range of slots."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np

from sim.experiments.netsum_job import NetsumJob
from sim.experiments.peer_job import PeerJob
from sim.experiments.scenario import Scenario
from sim.network.engine.engine_records import PS_PER_NS
from sim.network.engine.packets import SLOT_PROTOCOL
from sim.network.engine.trace import LEAVES

_SLOTS_PER_TRACK: Final = 16
_KINDS: Final = {1: "CONTRIBUTE", 2: "RESULT", 3: "PROBE", 4: "STATUS"}
_OTHERS: Final = {1: "segment", 2: "acknowledgement", 3: "background"}


class _Trace:
    """Events in Chrome's JSON, which Perfetto reads: a group of tracks is a process there, and a track a thread."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._numbers: dict[tuple[str, ...], int] = {}

    def _number(self, *names: str) -> int:
        """Return the number of a group, or of a track in it; the first use names it."""
        if names not in self._numbers:
            self._numbers[names] = len(self._numbers) + 1
            places = dict(zip(("pid", "tid"), self._place(*names), strict=False))
            kind = ("process_name", "thread_name")[len(names) - 1]
            self.events.append({"ph": "M", "name": kind, **places, "args": {"name": names[-1]}})
        return self._numbers[names]

    def _place(self, *names: str) -> tuple[int, ...]:
        return tuple(self._number(*names[: end + 1]) for end in range(len(names)))

    def slice(self, group: str, track: str, name: str, begin_ns: int, end_ns: int) -> None:
        pid, tid = self._place(group, track)
        span = {"ts": begin_ns / 1000, "dur": max(end_ns - begin_ns, 0) / 1000}
        self.events.append({"ph": "X", "name": name, "pid": pid, "tid": tid, **span})

    def count(self, group: str, name: str, time_ns: int, value: int) -> None:
        place = {"pid": self._number(group), "ts": time_ns / 1000}
        self.events.append({"ph": "C", "name": name, **place, "args": {"value": value}})


def write_trace(scenario: Scenario, jobs: list[NetsumJob | PeerJob], path: Path) -> None:
    """Write the trace of a run; `OSError` if the file cannot be written."""
    trace = _Trace()
    for job in jobs:
        _write_job(trace, job)
    _write_links(trace, scenario)
    path.write_text(json.dumps({"traceEvents": trace.events, "displayTimeUnit": "ns"}), encoding="utf-8")


def _write_job(trace: _Trace, job: NetsumJob | PeerJob) -> None:
    name = job.settings.name
    started, ended = job.started_ns, job.ended_ns
    for iteration, bucket, worker in np.ndindex(started.shape):
        begin, end = int(started[iteration, bucket, worker]), int(ended[iteration, bucket, worker])
        if begin >= 0 and end >= begin:
            # Buckets overlap, slices of a track must not: each bucket has a track of its own.
            track = f"{name} worker {worker}" + (f" bucket {bucket}" if bucket else "")
            trace.slice(f"job {name}", track, f"all-reduce {iteration}.{bucket}", begin, end)


def _write_links(trace: _Trace, scenario: Scenario) -> None:
    names = {number: name for name, number in scenario.network.link_numbers.items()}
    slots = _Slots(trace)
    for rows, _ in scenario.network.trace.parts:
        for row in rows:
            name = names[int(row["where"])]
            begin_ns, end_ns = (int(row[time]) // PS_PER_NS for time in ("time_ps", "end_ps"))
            trace.slice("links", name, packet_text(row), begin_ns, end_ns)
            if row["what"] == LEAVES:
                trace.count("queues", f"queue {name}", begin_ns, int(row["wait_bytes"]))
                if int(row["packet"]) == SLOT_PROTOCOL and row["chunk"] >= 0:
                    slots.follow(row, begin_ns, end_ns)


def packet_text(row: Any) -> str:
    """Return the label of a packet of a trace, and whether the packet is lost."""
    kind = int(row["packet"])
    ours = kind == SLOT_PROTOCOL
    title = _KINDS.get(int(row["protocol"]), "frame") if ours else _OTHERS.get(kind, "packet")
    if ours and row["chunk"] >= 0:
        title += f" chunk {int(row['chunk'])} worker {int(row['worker'])}"
    return title if row["what"] == LEAVES else f"lost: {title}"


class _Slots:
    """How many slots of each range hold a chunk that is not done: from its first contribution to its first result."""

    def __init__(self, trace: _Trace) -> None:
        self._trace = trace
        self._open: Counter[int] = Counter()
        self._done: dict[tuple[int, int], bool] = {}

    def follow(self, row: Any, begin_ns: int, end_ns: int) -> None:
        """Take a packet that has left."""
        slot = int(row["slot"]) // 2
        key, kind = (int(row["chunk"]), slot), _KINDS.get(int(row["protocol"]))
        if kind == "CONTRIBUTE" and key not in self._done:
            self._done[key] = False
            self._change(slot // _SLOTS_PER_TRACK, 1, begin_ns)
        elif kind == "RESULT" and self._done.get(key) is False:
            self._done[key] = True
            self._change(slot // _SLOTS_PER_TRACK, -1, end_ns)

    def _change(self, part: int, by: int, time_ns: int) -> None:
        self._open[part] += by
        first = part * _SLOTS_PER_TRACK
        name = f"slots {first} to {first + _SLOTS_PER_TRACK - 1}"
        self._trace.count("slots", name, time_ns, self._open[part])
