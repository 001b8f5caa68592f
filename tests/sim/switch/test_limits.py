"""Memory that runs out while a batch is under way, and packets that would never end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim.switch import Packets, Switch, load_program
from tests.dataplane.dataplane.target import program_files
from tests.sim.switch.minimal import document, field, hexstr, op, write
from tests.sim.switch.scenarios import PROGRAMS


@pytest.fixture
def loops() -> Switch:
    return Switch(load_program(PROGRAMS / "loops.json"))


@pytest.fixture
def traffic() -> Switch:
    return Switch(load_program(PROGRAMS / "traffic.json"))


@pytest.mark.parametrize(("what", "why"), [(0, "recirculated"), (1, "resubmitted"), (3, "growing")])
def test_endless_packet_is_dropped_and_counted(loops: Switch, what: int, why: str) -> None:
    out = loops.inject(Packets.of([(0, bytes([what])), (0, b"\x09")]), 0)
    assert list(out) == [(1, b"\x09")]
    assert loops.statistics["dropped_looping"] == 1


def test_clones_of_clones_end(loops: Switch) -> None:
    loops.clone_set(1, [(port, 0) for port in range(50)])
    out = loops.inject(Packets.of([(0, b"\x02"), (0, b"\x09")]), 0)
    assert list(out) == [(1, b"\x09")]
    assert loops.statistics["dropped_looping"] > 0


def test_parser_that_consumes_nothing_stops(loops: Switch) -> None:
    assert list(loops.inject(Packets.of([(0, b"\x05")]), 0)) == [(2, b"\x05")]
    assert loops.statistics["parser_loops"] == 1


def test_output_grows(traffic: Switch) -> None:
    replicas = [(port % 8, port) for port in range(3000)]
    traffic.mcast_set(1, replicas)
    out = traffic.inject(Packets.of([(0, bytes([1, 0, 0, 1, 0, 0, 77]))] * 3), 0)
    assert [int(p) for p in out.ports] == [port for port, _ in replicas] * 3
    assert [int.from_bytes(frame[2:4], "big") for _, frame in out] == [rid for _, rid in replicas] * 3


def test_slots_grow_while_copies_wait(traffic: Switch) -> None:
    # Every replica makes a clone of itself, so the queue of clones outgrows the slots there are at first.
    traffic.mcast_set(1, [(port % 8, port) for port in range(200)])
    traffic.clone_set(6, [(7, 9)])
    out = traffic.inject(Packets.of([(0, bytes([6, 0, 0, 1, 0, 0])), (0, bytes([0, 3, 0, 0, 0, 0]))]), 0)
    assert len(out) == 202
    assert out[201][0] == 3


def test_recirculated_bytes_survive_growth(traffic: Switch) -> None:
    payload = np.random.default_rng(1).bytes(9000)
    batch = Packets.of([(0, bytes([9, 4, 0, 0, rounds, 0]) + payload) for rounds in (3, 0, 2)])
    for (_, frame), (_, before) in zip(traffic.inject(batch, 0), batch, strict=True):
        assert frame.endswith(payload)
        assert frame[:1] == b"\0"
        assert int.from_bytes(frame[12:16], "big") == 0x100 * before[4]


def test_frames_of_any_size(traffic: Switch) -> None:
    for size in (0, 1, 6, 64, 1500, 9000, 65535):
        frame = bytes(size)
        ((port, out),) = traffic.inject(Packets.of([(5, frame)]), 0)
        assert port == 0
        assert out.endswith(frame)


def test_empty_batch(traffic: Switch) -> None:
    assert len(traffic.inject(Packets.of([]), 0)) == 0


def test_result_without_copy_is_a_view(traffic: Switch) -> None:
    batch = Packets.of([(0, bytes([0, 2, 0, 0, 0, 0]))])
    kept = traffic.inject(batch, 0)
    view = traffic.inject(batch, 0, copy=False)
    assert list(kept) == list(view)
    assert not view.frames.flags.owndata


def test_bad_arrays_are_refused() -> None:
    good = Packets.of([(1, b"abc")])
    with pytest.raises(ValueError, match="C-contiguous"):
        Packets(good.ports, good.lengths, np.zeros((1, 8), np.uint8)[:, ::2])
    with pytest.raises(ValueError, match="lengths must lie"):
        Packets(good.ports, np.array([9], np.int32), good.frames)
    with pytest.raises(ValueError, match="ports must be"):
        Packets(good.ports.astype(np.int64), good.lengths, good.frames)


def test_assertion_drops_the_packet_alone() -> None:
    switch = Switch(load_program(PROGRAMS / "externs.json"))
    bad = bytes([9, 0]) + (0xDEAD).to_bytes(4, "big") + bytes(14)
    good = bytes([9, 0]) + bytes(18)
    assert len(switch.inject(Packets.of([(0, bad), (0, good)]), 0)) == 1
    assert switch.statistics["dropped_assertion"] == 1


def test_programs_are_compiled_from_their_sources() -> None:
    for source in PROGRAMS.glob("*.p4"):
        assert source.with_suffix(".json").exists(), f"run {PROGRAMS / 'compile.py'}"


@pytest.mark.p4c
def test_compiled_programs_are_current() -> None:
    import runpy
    import shutil

    if shutil.which("p4c-bm2-ss") is None:
        pytest.skip("p4c is not installed")
    compiled = runpy.run_path(str(PROGRAMS / "compile.py"))["compiled"]
    for source in sorted(Path(PROGRAMS).glob("*.p4")):
        assert source.with_suffix(".json").read_text() == compiled(source), f"run {PROGRAMS / 'compile.py'}"


def test_loop_in_an_action_ends(tmp_path: Path) -> None:
    forever = [
        {"op": "assign", "parameters": [field("o", "r"), op("+", field("o", "r"), hexstr(1))]},
        {"op": "_jump", "parameters": [hexstr(2)]},
    ]
    path = write(document([["a", 8, False]], [["r", 64, False]], forever), tmp_path / "p.json")
    switch = Switch(load_program(path), tmp_path)
    assert len(switch.inject(Packets.of([(0, b"a")]), 0)) == 0
    assert switch.statistics["dropped_looping"] == 1


@pytest.mark.parametrize(("compiled", "held"), [(512, 0xFFFF), (100, 100)])
def test_a_program_that_asks_learns_that_packets_may_grow(compiled: int, held: int) -> None:
    program, name = load_program(program_files(64)[0]), "NetsumIngress.slot.packet_growth"
    tables = program.ingress.tables | {name: replace(program.tables[name], default_params=(compiled,))}
    switch = Switch(replace(program, ingress=replace(program.ingress, tables=tables)))
    assert switch.table_default(name) == ("NetsumIngress.slot.limit", (held,))
