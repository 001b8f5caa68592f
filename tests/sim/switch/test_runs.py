"""Runs of an action as loops: the same packets out, and the same registers, as primitive after primitive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.switch import Packets, Switch, load_program
from sim.switch.codegen.primitive_runs import find_runs
from sim.switch.layout import Context, StateLayout
from tests.sim.switch.minimal import document, field, hexstr, op, write

_LANES = 21
_SIZE = 4
_BEFORE = 2  # what `document` puts before


def _signed(name: Any) -> Any:
    return op("two_comp_mod", name, hexstr(32))


def _turn(kind: str, lane: int) -> list[dict[str, Any]]:
    """Return the primitives for one lane: `kind` says what becomes of it."""
    array = {"type": "register_array", "value": f"r{lane}"}
    index, value, held = field("i", "index"), field("i", f"x{lane}"), field("o", "held")
    read = {"op": "register_read", "parameters": [held, array, index]}
    save = {"op": "register_write", "parameters": [array, index, value]}
    if kind == "write":
        return [save]
    if kind == "read":
        return [{"op": "register_read", "parameters": [value, array, index]}]
    if kind == "larger":
        smaller = op("b2d", None, op(">", _signed(held), _signed(value)))
        jump = {"op": "_jump_if_zero", "parameters": [smaller, hexstr(_BEFORE + 4 * lane + 3)]}
        return [read, jump, {"op": "assign", "parameters": [value, held]}, save]
    other = field("i", "x9") if kind == "one of the lanes" else held
    total = op("sat_cast", op("+", _signed(other), _signed(value)), hexstr(32))
    masked = op("&", total, hexstr(0xFFFFFFFF))
    return [read, {"op": "assign", "parameters": [value, masked]}, save]


def _program(tmp_path: Path, kind: str) -> Path:
    inputs = [["index", 32, False], *([f"x{n}", 32, False] for n in range(_LANES))]
    outputs = [[f"y{n}", 32, False] for n in range(_LANES)] + [["held", 32, False]]
    primitives = [p for lane in range(_LANES) for p in _turn(kind, lane)]
    copies = [
        {"op": "assign", "parameters": [field("o", f"y{n}"), field("i", f"x{n}")]} for n in range(_LANES)
    ]
    made = document(inputs, outputs, [*primitives, *copies])
    made["register_arrays"] = [
        {"name": f"r{n}", "id": n, "bitwidth": 32, "size": _SIZE} for n in range(_LANES)
    ]
    return write(made, tmp_path / "program.json")


def _packets(seed: int) -> Packets:
    random = np.random.default_rng(seed)
    frames = []
    for _ in range(200):
        lanes = random.integers(-(2**31), 2**31, _LANES).astype(">i4")
        frames.append((0, int(random.integers(_SIZE + 2)).to_bytes(4) + lanes.tobytes()))
    return Packets.of(frames)


@pytest.mark.parametrize("kind", ["write", "read", "add", "larger", "one of the lanes"])
def test_a_run_does_what_its_primitives_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    program = load_program(_program(tmp_path, kind))
    found = [
        run.length * run.turns
        for action in program.actions.values()
        for run in find_runs(action, StateLayout(program), Context(program)).values()
    ]
    assert (_LANES * len(_turn(kind, 0)) in found) == (kind != "one of the lanes")
    loops = Switch(program, tmp_path / "loops")
    monkeypatch.setattr("sim.switch.codegen.actions.find_runs", lambda *_: {})
    plain = Switch(program, tmp_path / "plain")
    for switch in (loops, plain):
        for lane in range(_LANES):
            switch.register_view(f"r{lane}")[:] = np.arange(_SIZE) * 1000003 * (lane + 1) % 2**32
    assert list(loops.inject(_packets(1), 0)) == list(plain.inject(_packets(1), 0))
    for lane in range(_LANES):
        assert loops.register_view(f"r{lane}").tolist() == plain.register_view(f"r{lane}").tolist()
