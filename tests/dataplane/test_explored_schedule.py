"""A schedule that the explorer wrote, on every data plane: each answers packet by packet as the explorer's switch does."""

from pathlib import Path

import pytest

from controller.entries import Entry as ControllerEntry
from controller.entries import Prefix, address_entry, admission_entries, result_group, rewrite_entries
from sim.explore.engine.frames import SWITCH_IP, SWITCH_MAC
from sim.explore.engine.world import UP
from sim.explore.schedules import read_schedule
from sim.explore.story import tell
from sim.explore.system import System
from tests.dataplane.dataplane.target import Entry, Target, program_files

SCHEDULES = sorted((Path(__file__).parent / "schedules").glob("*.json"))


def as_entry(entry: ControllerEntry) -> Entry:
    key = {
        name: (value.value, value.length) if isinstance(value, Prefix) else value
        for name, value in entry.match
    }
    return Entry(entry.table, key, entry.action, dict(entry.params))


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)
def test_same_answers(target: Target, path: Path) -> None:
    if target.lanes != 64:
        pytest.skip("the schedule's packets have 64 lanes")
    scenario, _, _, made = read_schedule(path)
    system = System(scenario, program_files(64)[0])
    events = [event for event in tell(system, made) if event.step.packet is not None]
    arrivals = [event for event in events if event.step.packet is not None and event.step.packet.way == UP]
    job = system.jobs[0][0]
    entries = [
        as_entry(entry)
        for entry in (address_entry(SWITCH_IP, SWITCH_MAC), *admission_entries(job), *rewrite_entries(job))
    ]
    group = result_group(job)
    target.set_up(group.group_id, [tuple(replica) for replica in group.replicas], entries)
    try:
        assert len(arrivals) > 5
        for event in arrivals:
            packet = event.step.packet
            assert packet is not None
            answers = sorted((each.host, each.frame) for each in event.sent)
            assert sorted(target.send([(packet.host, packet.frame)])) == answers
    finally:
        target.tear_down(group.group_id, entries)
