"""The files of a violation: text, page, capture, and a schedule for `--replay`."""

from pathlib import Path

from controller.service.page import recorded_page
from netsum.terminal import echo
from sim.explore.schedules import pcap, text, write_schedule
from sim.explore.shrink import shrink
from sim.explore.story import StoryEvent, StoryStep, recorded_steps
from sim.explore.system import System
from sim.explore.violations import VIOLATIONS


def write_schedule_files(
    system: System, made: list[StoryStep], violation: int, stem: Path, fault: str
) -> list[StoryEvent]:
    """Shrink a schedule that violates something, print it, and write it to files; returns its events."""
    events = shrink(system, made, violation)
    stem.parent.mkdir(parents=True, exist_ok=True)
    title, ending = f"netsum explore: {stem.name}", VIOLATIONS[violation]
    shape = system.shape
    story = text(events, shape, title, ending)
    for line in story.splitlines():
        echo(line)
    stem.with_suffix(".txt").write_text(story)
    stem.with_suffix(".pcap").write_bytes(pcap(events, shape))
    write_schedule(stem.with_suffix(".json"), system.scenario, fault, violation, events)
    stem.with_suffix(".html").write_text(recorded_page(title, shape.links(), recorded_steps(events, shape)))
    echo(f"written: {stem}.txt, .html, .pcap, and .json for --replay")
    return events
