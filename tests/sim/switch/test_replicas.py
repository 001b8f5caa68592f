"""Replicas and copies of a packet have all headers: those that egress does not touch, and stacks of their own."""

import struct
from pathlib import Path
from typing import Any

import pytest

from sim.switch import Packets, Switch, load_program
from sim.switch.layout import StateLayout
from tests.sim.switch.minimal import document, field, hexstr, op, write

REPLICATED = 5
SESSION, COPIES_TO = 5, 6


def cloning_in_egress(more: list[list[Any]]) -> dict[str, Any]:
    """Every packet goes to group 1; egress clones each replica once, and changes no header; both have these fields more."""
    made = document(
        [["x", 32, False], *more],
        [["y", 32, False], ["z", 64, False], *more],
        [
            {"op": "assign", "parameters": [field("o", "y"), field("i", "x")]},
            {"op": "assign", "parameters": [field("o", "z"), hexstr(0x1122334455667788)]},
            {"op": "assign", "parameters": [field("standard_metadata", "mcast_grp"), hexstr(1)]},
        ],
    )
    clone = {"op": "clone_egress_pkt_to_egress", "parameters": [hexstr(SESSION), hexstr(1)]}
    made["actions"].append({"name": "c", "id": 1, "runtime_data": [], "primitives": [clone]})
    made["field_lists"] = [{"id": 1, "name": "none", "elements": []}]
    _run_leaving(made, 1, REPLICATED)
    return made


@pytest.mark.parametrize("early", [True, False], ids=["read by the parser", "read by ingress"])
def test_a_large_header_that_a_packet_lacks_has_nothing_of_the_packet_before(
    tmp_path: Path, early: bool
) -> None:
    made = document(
        [[f"x{n}", 32, False] for n in range(30)],
        [["y", 32, False], ["z", 32, False]],
        [
            {"op": "assign", "parameters": [field("o", "y"), field("i", "x7")]},
            {"op": "assign", "parameters": [field("o", "z"), field("standard_metadata", "instance_type")]},
        ],
    )
    (state,) = made["parsers"][0]["parse_states"]
    read_early = {"op": "set", "parameters": [field("standard_metadata", "instance_type"), field("i", "x7")]}
    if early:
        state["parser_ops"].insert(0, read_early)
    switch = Switch(load_program(write(made, tmp_path / "missing.json")))
    frames = [b"a" * 120, b"b" * 119, b"c" * 120]
    left = [frame[:8] for _, frame in switch.inject(Packets.of([(0, frame) for frame in frames]), 0)]
    assert left == [b"aaaa" + bytes(4), bytes(8), b"cccc" + bytes(4)]


def _run_leaving(made: dict[str, Any], action: int, instance_type: int) -> None:
    """Make egress run an action on the packets of this type."""
    name = made["actions"][action]["name"]
    (ingress_table,) = made["pipelines"][0]["tables"]
    made["pipelines"][1] |= {
        "init_table": "wanted",
        "tables": [
            ingress_table
            | {"name": "e", "id": 1, "action_ids": [action], "actions": [name], "next_tables": {name: None}}
            | {"default_entry": ingress_table["default_entry"] | {"action_id": action}}
        ],
        "conditionals": [
            {
                "name": "wanted",
                "id": 0,
                "expression": op("==", field("standard_metadata", "instance_type"), hexstr(instance_type)),
                "true_next": "e",
                "false_next": None,
            }
        ],
    }


def shifting_a_stack_in_egress() -> dict[str, Any]:
    """Every packet goes to group 1; each replica loses the first of the three elements of a stack, and leaves with its last."""
    made = document(
        [["x", 32, False]],
        [["y", 32, False]],
        [{"op": "assign", "parameters": [field("standard_metadata", "mcast_grp"), hexstr(1)]}],
    )
    elements = [f"s[{n}]" for n in range(3)]
    first = len(made["headers"])
    made["headers"] += [
        {"name": name, "id": first + n, "header_type": "i_t", "metadata": False}
        for n, name in enumerate(elements)
    ]
    ids = list(range(first, first + 3))
    made["header_stacks"] = [{"name": "s", "id": 0, "header_type": "i_t", "size": 3, "header_ids": ids}]
    (state,) = made["parsers"][0]["parse_states"]
    state["parser_ops"] = [{"op": "extract", "parameters": [{"type": "stack", "value": "s"}]}] * 3
    stack = {"type": "header_stack", "value": "s"}
    last = {"type": "stack_field", "value": ["s", "x"]}
    primitives = [
        {"op": "pop", "parameters": [stack, hexstr(1)]},
        {"op": "assign", "parameters": [field("o", "y"), last]},
    ]
    made["actions"].append({"name": "c", "id": 1, "runtime_data": [], "primitives": primitives})
    made["deparsers"][0]["order"] = ["o", *elements]
    _run_leaving(made, 1, REPLICATED)
    return made


def test_every_replica_has_its_own_stacks(tmp_path: Path) -> None:
    switch = Switch(load_program(write(shifting_a_stack_in_egress(), tmp_path / "stack.json")))
    switch.mcast_set(1, [(2, 0), (3, 1), (4, 2)])
    left = list(switch.inject(Packets.of([(0, b"aaaabbbbccccpayload")]), 0))
    assert left == [(port, b"ccccbbbbccccpayload") for port in (2, 3, 4)]


@pytest.mark.parametrize("inlined", [20_000, 0], ids=["in registers", "in memory"])
@pytest.mark.parametrize("words", [2, 30], ids=["small", "large"])
def test_what_egress_writes_into_a_replica_is_in_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: int, inlined: int
) -> None:
    monkeypatch.setattr("sim.switch.codegen.emit.INLINED_PRIMITIVES", inlined)
    made = document(
        [[f"x{n}", 32, False] for n in range(words)],
        [["y", 32, False]],
        [{"op": "assign", "parameters": [field("standard_metadata", "mcast_grp"), hexstr(1)]}],
    )
    sum_of = op("+", field("i", "x1"), field("standard_metadata", "egress_rid"))
    rewrite = {"op": "assign", "parameters": [field("i", "x1"), op("&", sum_of, hexstr(0xFFFFFFFF))]}
    made["actions"].append({"name": "c", "id": 1, "runtime_data": [], "primitives": [rewrite]})
    made["deparsers"][0]["order"] = ["o", "i"]
    _run_leaving(made, 1, REPLICATED)
    switch = Switch(load_program(write(made, tmp_path / "rewriting.json")), tmp_path / "cache")
    switch.mcast_set(1, [(2, 5), (3, 6), (4, 7)])
    numbers = list(range(100, 100 + words))
    left = list(switch.inject(Packets.of([(0, struct.pack(f">{words}I", *numbers) + b"payload")]), 0))
    for (port, frame), rid in zip(left, (5, 6, 7), strict=True):
        expected = [0, numbers[0], numbers[1] + rid, *numbers[2:]]
        assert (port, frame) == (rid - 3, struct.pack(f">{words + 1}I", *expected) + b"payload")


@pytest.mark.parametrize("words", [0, 30], ids=["small", "large"])
def test_every_replica_and_every_copy_of_it_has_all_headers(tmp_path: Path, words: int) -> None:
    more = [[f"w{n}", 32, False] for n in range(words)]
    program = load_program(write(cloning_in_egress(more), tmp_path / "cloning.json"))
    assert StateLayout(program).apart == ({"i", "o"} if words else set())
    switch = Switch(program)
    switch.mcast_set(1, [(2, 0), (3, 1), (4, 2)])
    switch.clone_set(SESSION, [(COPIES_TO, 0)])
    frames = [bytes([value]) * (4 + 4 * words) + b"payload" for value in (1, 2, 3)]
    left = list(switch.inject(Packets.of([(0, frame) for frame in frames]), 0))
    rest = bytes.fromhex("1122334455667788") + bytes(4 * words) + b"payload"
    expected = [frame[:4] + rest for frame in frames]
    assert [out for port, out in left if port != COPIES_TO] == [each for each in expected for _ in range(3)]
    assert [out for port, out in left if port == COPIES_TO] == [each for each in expected for _ in range(3)]
