"""Replicas and copies of a packet carry the headers that egress does not touch: those lie apart from a replica's own state."""

from pathlib import Path
from typing import Any

from sim.switch import Packets, Switch, load_program
from sim.switch.layout import State
from tests.sim.switch.minimal import document, field, hexstr, op, write

REPLICATED = 5
SESSION, COPIES_TO = 5, 6


def cloning_in_egress() -> dict[str, Any]:
    """Every packet goes to group 1; egress clones each replica once, and changes no header."""
    made = document(
        [["x", 32, False]],
        [["y", 32, False], ["z", 64, False]],
        [
            {"op": "assign", "parameters": [field("o", "y"), field("i", "x")]},
            {"op": "assign", "parameters": [field("o", "z"), hexstr(0x1122334455667788)]},
            {"op": "assign", "parameters": [field("standard_metadata", "mcast_grp"), hexstr(1)]},
        ],
    )
    clone = {"op": "clone_egress_pkt_to_egress", "parameters": [hexstr(SESSION), hexstr(1)]}
    made["actions"].append({"name": "c", "id": 1, "runtime_data": [], "primitives": [clone]})
    made["field_lists"] = [{"id": 1, "name": "none", "elements": []}]
    (ingress_table,) = made["pipelines"][0]["tables"]
    made["pipelines"][1] |= {
        "init_table": "replicated",
        "tables": [
            ingress_table
            | {"name": "e", "id": 1, "action_ids": [1], "actions": ["c"], "next_tables": {"c": None}}
            | {"default_entry": ingress_table["default_entry"] | {"action_id": 1}}
        ],
        "conditionals": [
            {
                "name": "replicated",
                "id": 0,
                "expression": op("==", field("standard_metadata", "instance_type"), hexstr(REPLICATED)),
                "true_next": "e",
                "false_next": None,
            }
        ],
    }
    return made


def test_every_replica_and_every_copy_of_it_has_all_headers(tmp_path: Path) -> None:
    program = load_program(write(cloning_in_egress(), tmp_path / "cloning.json"))
    assert State(program).apart == {"i", "o"}
    switch = Switch(program)
    switch.mcast_set(1, [(2, 0), (3, 1), (4, 2)])
    switch.clone_set(SESSION, [(COPIES_TO, 0)])
    frames = [bytes([value]) * 4 + b"payload" for value in (1, 2, 3)]
    left = list(switch.inject(Packets.of([(0, frame) for frame in frames]), 0))
    expected = [frame[:4] + bytes.fromhex("1122334455667788") + b"payload" for frame in frames]
    assert [out for port, out in left if port != COPIES_TO] == [each for each in expected for _ in range(3)]
    assert [out for port, out in left if port == COPIES_TO] == [each for each in expected for _ in range(3)]
