"""Traces for ui.perfetto.dev: a track for each worker's all-reduces, each link, each queue, and each range of slots."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from sim.errors import SimulationError
from sim.experiments.netsum_job import NetsumJob
from sim.experiments.peer_job import PeerJob
from sim.experiments.scenario import Scenario
from sim.network.engine.engine_records import PS_PER_NS
from sim.network.engine.packets import SLOT_PROTOCOL
from sim.network.engine.trace import LEAVES

_SEQUENCE: Final = 1
_SLOTS_PER_TRACK: Final = 16
_KINDS: Final = {1: "CONTRIBUTE", 2: "RESULT", 3: "PROBE", 4: "STATUS"}
_OTHERS: Final = {1: "segment", 2: "acknowledgement", 3: "background"}


class _Writer:
    """Builds a trace of Perfetto's own protobuf messages."""

    def __init__(self) -> None:
        try:
            from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages
        except ModuleNotFoundError:
            raise
        except (
            ImportError
        ) as error:  # Perfetto's classes were generated for a newer protobuf than the installed one.
            raise SimulationError(
                f"traces need a newer protobuf: pip install --upgrade protobuf ({error})"
            ) from None
        self._messages: Any = messages
        self.trace: Any = messages.Trace()
        self._tracks = 0

    def _packet(self) -> Any:
        packet = self.trace.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def track(self, name: str, parent: int = 0, counter: bool = False) -> int:
        self._tracks += 1
        described = self._packet().track_descriptor
        described.uuid = self._tracks
        described.name = name
        if parent:
            described.parent_uuid = parent
        if counter:
            described.counter.SetInParent()
        return self._tracks

    def slice(self, track: int, name: str, begin_ns: int, end_ns: int) -> None:
        for time_ns, kind in ((begin_ns, "TYPE_SLICE_BEGIN"), (max(end_ns, begin_ns), "TYPE_SLICE_END")):
            packet = self._packet()
            packet.timestamp = time_ns
            packet.track_event.type = getattr(self._messages.TrackEvent, kind)
            packet.track_event.track_uuid = track
            if kind == "TYPE_SLICE_BEGIN":
                packet.track_event.name = name

    def count(self, track: int, time_ns: int, value: int) -> None:
        packet = self._packet()
        packet.timestamp = time_ns
        packet.track_event.type = self._messages.TrackEvent.TYPE_COUNTER
        packet.track_event.track_uuid = track
        packet.track_event.counter_value = value


def write_trace(scenario: Scenario, jobs: list[NetsumJob | PeerJob], path: Path) -> None:
    """Write the trace of a run; `OSError` if the file cannot be written."""
    writer = _Writer()
    for job in jobs:
        _write_job(writer, job)
    _write_links(writer, scenario)
    path.write_bytes(writer.trace.SerializeToString(deterministic=True))


def _write_job(writer: _Writer, job: NetsumJob | PeerJob) -> None:
    name = job.settings.name
    parent = writer.track(f"job {name}")
    started, ended = job.started_ns, job.ended_ns
    for worker in range(job.settings.workers):
        track = writer.track(f"{name} worker {worker}", parent)
        for iteration, bucket in np.ndindex(started.shape[:2]):
            begin, end = int(started[iteration, bucket, worker]), int(ended[iteration, bucket, worker])
            if begin >= 0 and end >= begin:
                # Buckets overlap, slices of a track must not: each bucket has a track of its own.
                target = (
                    track if bucket == 0 else writer.track(f"{name} worker {worker} bucket {bucket}", parent)
                )
                writer.slice(target, f"all-reduce {iteration}.{bucket}", begin, end)


def _write_links(writer: _Writer, scenario: Scenario) -> None:
    network = scenario.network
    links, queues = writer.track("links"), writer.track("queues")
    tracks = {number: writer.track(name, links) for name, number in scenario.network.link_numbers.items()}
    waits = {
        number: writer.track(f"queue {name}", queues, counter=True)
        for name, number in scenario.network.link_numbers.items()
    }
    slots = _Slots(writer)
    for rows, _ in network.trace.parts:
        for row in rows:
            number, begin_ns, end_ns = (
                int(row["where"]),
                int(row["time_ps"]) // PS_PER_NS,
                int(row["end_ps"]) // PS_PER_NS,
            )
            ours = int(row["packet"]) == SLOT_PROTOCOL
            title = packet_text(row)
            writer.slice(tracks[number], title, begin_ns, end_ns)
            if row["what"] == LEAVES:
                writer.count(waits[number], begin_ns, int(row["wait_bytes"]))
            if ours and row["chunk"] >= 0 and row["what"] == LEAVES:
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

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer
        self._parent = writer.track("slots")
        self._tracks: dict[int, int] = {}
        self._open: dict[int, int] = {}
        self._done: dict[tuple[int, int], bool] = {}

    def follow(self, row: Any, begin_ns: int, end_ns: int) -> None:
        """Take a packet that has left."""
        slot = int(row["slot"]) // 2
        part, key = slot // _SLOTS_PER_TRACK, (int(row["chunk"]), slot)
        kind = _KINDS.get(int(row["protocol"]))
        if kind == "CONTRIBUTE" and key not in self._done:
            self._done[key] = False
            self._change(part, 1, begin_ns)
        elif kind == "RESULT" and self._done.get(key) is False:
            self._done[key] = True
            self._change(part, -1, end_ns)

    def _change(self, part: int, by: int, time_ns: int) -> None:
        if part not in self._tracks:
            first = part * _SLOTS_PER_TRACK
            name = f"slots {first} to {first + _SLOTS_PER_TRACK - 1}"
            self._tracks[part] = self._writer.track(name, self._parent, counter=True)
        self._open[part] = self._open.get(part, 0) + by
        self._writer.count(self._tracks[part], time_ns, self._open[part])
