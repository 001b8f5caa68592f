"""The catalogue of faults: each can be put in, and the explorer finds what SwitchML's verifiers found, and others."""

import json
import shutil
import subprocess
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from netsum.command_errors import UsageError
from netsum.explore.runs import replay
from netsum.packets.wireshark import PLUGIN
from netsum.programs import compiled_program
from sim.explore.engine.world import LEFT_OUT_WRONGLY, STRAY_WRITE, STUCK, UP, WRONG_RESULT
from sim.explore.schedules import pcap, read_schedule, text, write_schedule
from sim.explore.search import Search
from sim.explore.shrink import violates
from sim.explore.story import events_of
from tests.sim.explore.blind_faults import MODULES, ROOT
from tests.sim.explore.faults import __main__ as faults
from tests.sim.explore.faults.catalogue import FAULTS
from tests.sim.explore.faults.fault import Fault
from tests.sim.explore.faults.program import changed_program
from tests.sim.explore.faults.run import PROGRAMS, faulty_system, look_for
from tests.sim.explore.planted_faults import PLANTED, Planted
from tests.sim.explore.programs import compile as programs
from tests.sim.explore.worker_texts import text_of

PROGRAM = compiled_program(64).json
MIB = 1 << 20


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 25


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_every_fault_changes_what_ships(fault: Fault, tmp_path: Path) -> None:
    if fault.source:
        assert json.loads((PROGRAMS / f"{fault.source}.json").read_text())["register_arrays"]
        return
    if fault.program is not None:
        changed = changed_program(PROGRAM, fault.program, tmp_path / "changed.json")
        assert json.loads(changed.read_text()) != json.loads(PROGRAM.read_text())
        return
    source = Path(str(import_module(f"host_agent.protocol.{fault.module}").__file__)).read_text()
    for old, new in fault.changes:
        assert source.count(old) == 1
        assert old != new


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: each.name)
def test_every_fault_that_reviewers_named_changes_one_piece_of_a_source(planted: Planted) -> None:
    source = text_of(planted.where) if planted.where in MODULES else (ROOT / "p4" / planted.where).read_text()
    assert source.count(planted.piece) == 1


@pytest.mark.parametrize(
    ("name", "violation"),
    [
        ("seen-skipped", WRONG_RESULT),
        ("answered-too-early", WRONG_RESULT),
        ("never-answered", STUCK),
        ("asker-named", WRONG_RESULT),
        ("contributes-unasked", WRONG_RESULT),
        ("sums-wrap", WRONG_RESULT),
        ("maximum-unsigned", WRONG_RESULT),
        ("failed-core-writes", STRAY_WRITE),
    ],
)
def test_a_fault_is_found_and_its_schedule_can_be_read_and_replayed(
    name: str, violation: int, tmp_path: Path
) -> None:
    found = look_for(FAULTS[name], PROGRAM)
    assert (found.result.violation, found.shortest) == (violation, True)
    events = list(found.events)
    path = tmp_path / "schedule.json"
    write_schedule(path, found.scenario, name, violation, events)
    scenario, fault, expected, made = read_schedule(path)
    faulty = faulty_system(FAULTS[fault], scenario, PROGRAM)
    again = events_of(faulty, made)
    assert [event.result for event in again] == [event.result for event in events]
    assert expected == violation
    assert violates(faulty, made, violation)
    assert text(events, scenario.shape, "title", "ending").count("\n") == len(events) + 4
    shipped = faulty_system(None, scenario, PROGRAM)
    assert all(event.result >= 0 for event in events_of(shipped, made))
    assert not violates(shipped, made, violation)


def test_the_command_writes_a_schedule_and_runs_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["faults", "seen-skipped", "--out", str(tmp_path)])
    assert faults.main() == 0
    schedule = tmp_path / "seen-skipped.json"
    monkeypatch.setattr("sys.argv", ["faults", "--replay", str(schedule)])
    assert faults.main() == 1
    assert "S1, S2" in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"python -m tests\.sim\.explore\.faults"):
        replay(schedule)


@pytest.mark.parametrize("batches", [True, False])
def test_a_timer_that_expires_as_an_array_comes_is_found(batches: bool) -> None:
    fault = FAULTS["offer-timer-lost"]
    scenario = replace(fault.scenarios[0], batches=batches)
    found = look_for(replace(fault, scenarios=(scenario,)), PROGRAM)
    assert (found.result.violation, found.shortest) == (STUCK, True)


def test_the_wrong_sum_of_switchmls_protocol_is_found() -> None:
    found = look_for(FAULTS["switchml"], PROGRAM, breadth_bytes=72 * MIB)
    assert found.result.violation == WRONG_RESULT
    # A schedule needs a packet of chunk 0 that comes after one of chunk 1 of the same worker.
    packets = [event.step.packet for event in found.events if event.step.packet is not None]
    arrivals = [packet.text().split(" [")[0] for packet in packets if packet.way == UP and packet.host == 0]
    assert "CONTRIBUTE chunk 0" in arrivals[arrivals.index("CONTRIBUTE chunk 1") :]
    assert packets[-1].text().startswith("RESULT")


def test_a_packet_that_is_left_out_wrongly_is_noticed() -> None:
    fault = FAULTS["stale-accepted"]
    system = faulty_system(fault, fault.scenarios[0], PROGRAM)
    result = Search(system, order="largest", memory_bytes=256 * MIB).run()
    assert result.violation in (LEFT_OUT_WRONGLY, WRONG_RESULT)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_wireshark_reads_the_capture(tmp_path: Path) -> None:
    found = look_for(FAULTS["seen-skipped"], PROGRAM)
    events = list(found.events)
    capture = tmp_path / "schedule.pcap"
    capture.write_bytes(pcap(events, found.scenario.shape))
    command = ["tshark", "-X", f"lua_script:{PLUGIN}", "-r", str(capture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    lines = done.stdout.splitlines()
    arrivals = sum(event.step.packet is not None and event.step.packet.way == UP for event in events)
    assert len(lines) >= arrivals > 0
    assert sum("CONTRIBUTE" in line for line in lines) >= 2
    assert any("RESULT" in line for line in lines)
    assert "Malformed" not in done.stdout


@pytest.mark.parametrize("source", sorted(PROGRAMS.glob("*.p4")), ids=lambda path: path.stem)
def test_programs_are_those_of_their_sources(source: Path) -> None:
    committed = source.with_suffix(".json").read_text()
    stamp = json.loads(committed)
    assert stamp["sources"] == programs.source_digest(source)
    if shutil.which("p4c-bm2-ss") is None:
        pytest.skip("p4c-bm2-ss is not installed: the program is not compiled again")
    if (version := programs.compiler_version()) != stamp["compiler"]:
        pytest.skip(f"the program was compiled with p4c {stamp['compiler']}, this is {version}")
    assert programs.compile_program(source) == committed
