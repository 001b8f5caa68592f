"""Schedules as files: replayed by `netsum explore --replay`, opened by Wireshark."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from host_agent.errors import NetsumError
from netsum_common.pcap import FILE_HEADER, record
from sim.explore.engine import step_codes as codes
from sim.explore.engine.world import TO_WORKER, UP
from sim.explore.scenario import ExplorerScenario, from_document
from sim.explore.shape import ScenarioShape
from sim.explore.story import STEP_NAMES, Packet, StoryEvent, StoryStep, sentence

_FORMAT = 2
_NAMES = {**STEP_NAMES, codes.KEEP: "keep"}
_STEP_NS = 1_000_000


class ScheduleError(NetsumError):
    """A file that is no schedule; the message says why."""


def write_schedule(
    path: Path, scenario: ExplorerScenario, fault: str, violation: int, events: list[StoryEvent]
) -> None:
    """Write a schedule as JSON."""
    made = []
    for event in events:
        step = event.step
        entry: dict[str, Any] = {"step": _NAMES[step.kind], "host": step.host}
        if step.how:
            entry["how"] = step.how
        if step.packet is not None:
            entry["way"] = "up" if step.packet.way == UP else "down"
            entry["frame"] = step.packet.frame.hex()
            entry["label"] = step.packet.label
        made.append(entry)
    document = {
        "format": _FORMAT,
        "scenario": asdict(scenario),
        "fault": fault,
        "violation": violation,
        "steps": made,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def read_schedule(path: Path) -> tuple[ExplorerScenario, str, int, list[StoryStep]]:
    """Read a schedule: scenario, name of the fault that the code must have, violation, steps.

    Raises ScheduleError if it cannot be read, or is no schedule.
    """
    kinds = {name: kind for kind, name in _NAMES.items()}
    try:
        document = json.loads(path.read_text())
        if document["format"] != _FORMAT:
            raise ScheduleError(f"{path}: expected format {_FORMAT}, not {document['format']}")
        made = []
        for entry in document["steps"]:
            packet = None
            if "frame" in entry:
                way = UP if entry["way"] == "up" else 1 - UP
                packet = Packet(way, entry["host"], bytes.fromhex(entry["frame"]), entry["label"])
            made.append(StoryStep(kinds[entry["step"]], entry["host"], entry.get("how", 0), packet))
        return from_document(document["scenario"]), document["fault"], document["violation"], made
    except OSError as fault:
        raise ScheduleError(f"{path} cannot be read: {fault.strerror}") from None
    except (ValueError, KeyError, TypeError) as fault:
        raise ScheduleError(f"{path} is no schedule of netsum explore ({fault})") from None


def text(events: list[StoryEvent], shape: ScenarioShape, title: str, ending: str) -> str:
    """Return a schedule as numbered lines."""
    lines = [f"{number:3}. {sentence(event, shape)}" for number, event in enumerate(events, 1)]
    return "\n".join([title, "", *lines, "", ending, ""])


def pcap(events: list[StoryEvent], shape: ScenarioShape) -> bytes:
    """Return all packets as a capture at the switches: each when it arrives at one, those for workers when they leave one.

    A step takes a millisecond.
    """
    records = [FILE_HEADER]
    for number, event in enumerate(events):
        packet = event.step.packet
        frames = []
        at_switch = packet is not None and shape.goes_to(packet.way, packet.host) != TO_WORKER
        if packet is not None and at_switch and event.step.kind != codes.LOSE:
            to_workers = [each for each in event.sent if shape.goes_to(each.way, each.host) == TO_WORKER]
            frames = [packet.frame, *(each.frame for each in to_workers)]
        for place, frame in enumerate(frames):
            records.append(record(number * _STEP_NS + place * 1000, frame))
    return b"".join(records)
