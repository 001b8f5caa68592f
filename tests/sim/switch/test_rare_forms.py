"""Forms of BMv2's JSON that the programs beside this file have not, against a model in Python or by the refusal."""

from __future__ import annotations

import random
import zlib
from pathlib import Path
from typing import Any

import pytest

from sim.switch import Packets, Switch, UnsupportedProgramError, load_program
from tests.sim.switch.minimal import document, field, hexstr, op, write
from tests.sim.switch.test_header_references import (
    asks,
    call,
    expression,
    header,
    program,
    sets,
    text_bytes,
)

A, B = field("i", "a"), field("i", "b")


def one(made: dict[str, Any], tmp_path: Path) -> Switch:
    return Switch(load_program(write(made, tmp_path / "program.json")))


def answer(switch: Switch, frame: bytes) -> bytes:
    ((_, found),) = switch.inject(Packets.of([(0, frame)]), 0)
    return found


@pytest.mark.parametrize("width", [16, 64, 72, 100, 128])
def test_signed_division_rounds_towards_zero(width: int, tmp_path: Path) -> None:
    inputs = [["a", width, True], ["b", width, True]]
    made = document(
        inputs,
        [["quotient", width, True], ["rest", width, True]],
        [sets("quotient", op("/", A, B)), sets("rest", op("%", A, B))],
    )
    switch = one(made, tmp_path)
    rng = random.Random(width)
    most = (1 << (width - 1)) - 1
    pairs = [(a, b) for a in (-most, -8, -7, -1, 0, 1, 7, most) for b in (-most, -3, -1, 0, 1, 2, most)]
    pairs += [(rng.randint(-most, most), rng.randint(-(1 << width // 2), 1 << width // 2)) for _ in range(50)]
    size = (2 * width + 7) // 8
    for a, b in pairs:
        bits = ((a % (1 << width)) << width | b % (1 << width)) << (8 * size - 2 * width)
        quotient = 0 if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
        rest = 0 if b == 0 else a - quotient * b
        expected = ((quotient % (1 << width)) << width | rest % (1 << width)) << (8 * size - 2 * width)
        assert answer(switch, bits.to_bytes(size, "big"))[:size] == expected.to_bytes(size, "big"), (a, b)


def test_booleans_as_numbers_and_large_constant_shifts(tmp_path: Path) -> None:
    made = document(
        [["a", 8, False], ["b", 8, False]],
        [[name, 8, False] for name in ("true", "compared", "below", "shifted", "most")],
        [
            sets("true", {"type": "bool", "value": True}),
            sets("compared", op("<", A, B)),
            sets("below", op("+", op("b2d", None, {"type": "bool", "value": False}), hexstr(3))),
            sets("shifted", op("<<", A, hexstr(8))),
            sets("most", op("<<", A, hexstr(7))),
        ],
    )
    switch = one(made, tmp_path)
    for a, b in ((0, 0), (1, 2), (2, 1), (128, 255), (255, 254)):
        expected = (1, a < b, 3, 0, (a << 7) % 256)
        assert tuple(answer(switch, bytes([a, b]))[:5]) == expected


@pytest.mark.parametrize("width", [8, 32, 100])
def test_a_cell_of_a_register_is_an_operand_and_a_target(width: int, tmp_path: Path) -> None:
    cell = {"type": "register", "value": ["r", field("i", "at")]}
    made = document(
        [["at", 8, False], ["value", width, False]],
        [["before", width, False], ["large", 8, False]],
        [
            sets("before", cell),
            sets("large", op("b2d", None, op(">", cell, hexstr(9)))),
            call("assign", cell, field("i", "value")),
        ],
    )
    made["register_arrays"] = [{"name": "r", "id": 0, "bitwidth": width, "size": 4}]
    switch = one(made, tmp_path)
    rng = random.Random(5)
    kept: dict[int, int] = {}
    for _ in range(60):
        at, value = rng.randrange(4), rng.choice([3, 9, 10, rng.getrandbits(width)])
        bits = (at << width | value) << (-(8 + width) % 8)
        found = int.from_bytes(answer(switch, bits.to_bytes((8 + width + 7) // 8, "big")), "big")
        found >>= -(width + 8) % 8
        before = kept.get(at, 0)
        assert (found >> 8, found & 0xFF) == (before, before > 9)
        kept[at] = value


@pytest.mark.parametrize("entry", ["field", "header"])
def test_a_hash_takes_a_varbit_field_with_its_length(entry: str, tmp_path: Path) -> None:
    made = program(
        [["hash", 32, False]],
        [
            call(
                "modify_field_with_hash_based_offset",
                field("o", "hash"),
                hexstr(0),
                {"type": "calculation", "value": "c"},
                hexstr(1 << 32),
            )
        ],
    )
    fields = [field("v", "tag"), field("v", "text"), field("v", "after"), field("z", "tag")]
    inputs = [header("v"), field("z", "tag")] if entry == "header" else fields
    made["calculations"] = [{"name": "c", "id": 0, "algo": "crc32", "input": inputs}]
    switch = one(made, tmp_path)
    for each in asks():
        wanted = zlib.crc32(text_bytes(each.texts[0]) + bytes([each.texts[1][0]]))
        assert int.from_bytes(answer(switch, each.frame)[:4], "big") == wanted, each


def test_a_checksum_without_a_condition_is_updated_in_every_packet(tmp_path: Path) -> None:
    made = document([["a", 16, False], ["b", 16, False]], [["sum", 16, False]], [sets("sum", hexstr(0))])
    made["calculations"] = [{"name": "c", "id": 0, "algo": "csum16", "input": [A, B]}]
    made["checksums"] = [
        {"name": "k", "id": 0, "target": ["o", "sum"], "type": "generic", "calculation": "c", "verify": False}
    ]
    switch = one(made, tmp_path)
    for a, b in ((0, 0), (1, 2), (0xFFFF, 1), (0xFFFF, 0xFFFF)):
        total = a + b
        total = (total & 0xFFFF) + (total >> 16)
        found = answer(switch, a.to_bytes(2, "big") + b.to_bytes(2, "big"))
        assert int.from_bytes(found[:2], "big") == 0xFFFF ^ total


def _selecting(transitions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a program whose result is 1 where a transition on the first byte is taken, after a shift by one byte."""
    made = program([["taken", 8, False], ["b", 16, False]], [sets("taken", hexstr(0))], ("single",))
    states = made["parsers"][0]["parse_states"]
    states[0]["transition_key"] = [field("i", "items")]
    states[0]["transitions"] = [
        *transitions,
        {"type": "default", "value": None, "mask": None, "next_state": None},
    ]
    states[1]["parser_ops"] = [
        {"op": "shift", "parameters": [1]},
        {"op": "extract", "parameters": [{"type": "regular", "value": "single"}]},
    ]
    states[1]["transitions"] = [{"type": "default", "value": None, "mask": None, "next_state": None}]
    states[1]["transition_key"] = []
    return made


def _taken(switch: Switch, key: int) -> bool:
    found = answer(switch, bytes([key, 0, 0, 0, 0]) + b"\xee\x01\x02\x03\x04")
    taken = found[3:6] == b"\x01\x02\x03"
    assert found[3:] == (b"\x01\x02\x03\x04" if taken else b"\xee\x01\x02\x03\x04")
    return taken


def test_a_parser_shifts_by_bytes_and_a_value_wider_than_its_key_is_never_met(tmp_path: Path) -> None:
    masked = {"type": "hexstr", "value": "0x0105", "mask": "0xffff", "next_state": "items"}
    plain = {"type": "hexstr", "value": "0x07", "mask": "0x0f", "next_state": "items"}
    switch = one(_selecting([masked, plain]), tmp_path)
    assert [key for key in range(256) if _taken(switch, key)] == [key for key in range(256) if key % 16 == 7]


def test_values_without_masks_wider_than_their_key_are_never_met(tmp_path: Path) -> None:
    values = [
        {"type": "hexstr", "value": f"0x{v:x}", "mask": None, "next_state": "items"}
        for v in (5, 0x105, 5, 255)
    ]
    switch = one(_selecting(values), tmp_path)
    assert [key for key in range(256) if _taken(switch, key)] == [5, 255]


def test_a_value_set_is_searched_under_a_mask(tmp_path: Path) -> None:
    made = _selecting([{"type": "parse_vset", "value": "v", "mask": "0x0f", "next_state": "items"}])
    made["parse_vsets"] = [{"name": "v", "id": 0, "compressed_bitwidth": 8, "max_size": 4}]
    switch = one(made, tmp_path)
    switch.value_set_write("v", [0x33, 0xC5])
    assert [key for key in range(256) if _taken(switch, key)] == [
        key for key in range(256) if key % 16 in (3, 5)
    ]


def test_a_default_action_has_the_data_that_the_program_gives_it(tmp_path: Path) -> None:
    made = document([["a", 8, False]], [["r", 72, False], ["s", 8, False]], [])
    made["actions"][0]["runtime_data"] = [{"name": "r", "bitwidth": 72}, {"name": "s", "bitwidth": 8}]
    made["actions"][0]["primitives"] += [
        sets(name, {"type": "runtime_data", "value": at}) for at, name in enumerate("rs")
    ]
    made["pipelines"][0]["tables"][0]["default_entry"]["action_data"] = ["0x8123456789abcdef77", "0x5a"]
    assert answer(one(made, tmp_path), b"\0")[:10].hex() == "8123456789abcdef775a"


def test_a_statement_behind_a_jump_is_reached_by_nothing(tmp_path: Path) -> None:
    made = document([["a", 8, False]], [["r", 8, False]], [])
    start = len(made["actions"][0]["primitives"])
    made["actions"][0]["primitives"] += [
        sets("r", hexstr(1)),
        call("_jump", hexstr(start + 3)),
        sets("r", hexstr(2)),
        sets("r", op("+", field("o", "r"), hexstr(4))),
    ]
    assert answer(one(made, tmp_path), b"\0")[0] == 5


def _with(change: str) -> dict[str, Any]:
    made = program([["r", 8, False]], [sets("r", hexstr(0))])
    if change == "two parsers":
        made["parsers"] *= 2
    elif change == "varbit":
        made["header_types"].append({"name": "odd_t", "id": 90, "fields": [["a", 4, False], ["b", "*"]]})
    elif change == "parser":
        made["parsers"][0]["parse_states"][0]["parser_ops"].append({"op": "leap", "parameters": []})
    elif change == "checksum":
        made["calculations"] = [{"name": "c", "id": 0, "algo": "csum16", "input": [header("v")]}]
        made["checksums"] = [{"name": "k", "id": 0, "target": ["o", "r"], "type": "ipv4", "calculation": "c"}]
    elif change == "shift":
        shift = op("<<", hexstr(1), field("i", "pick"))
        made["actions"][0]["primitives"].append(
            sets("r", op("b2d", None, op(">", op("<<", shift, shift), shift)))
        )
    elif change == "types":
        made["actions"][0]["primitives"].append(call("assign_header", header("u.x"), header("u.y")))
    elif change == "stack":
        made["actions"][0]["primitives"].append(call("push", header("v"), hexstr(1)))
    elif change == "header":
        made["actions"][0]["primitives"].append(call("add_header", field("i", "pick")))
    elif change == "union":
        made["actions"][0]["primitives"].append(call("assign_union", header("v"), header("z")))
    elif change == "target":
        made["actions"][0]["primitives"].append(call("assign", hexstr(1), hexstr(1)))
    elif change == "lookahead":
        made["actions"][0]["primitives"].append(sets("r", {"type": "lookahead", "value": [0, 8]}))
    elif change == "number":
        made["actions"][0]["primitives"].append(sets("r", header("v")))
    elif change == "operator":
        item = expression("dereference_header_stack", {"type": "header_stack", "value": "s"}, hexstr(0))
        made["actions"][0]["primitives"].append(sets("r", item))
    return made


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("two parsers", "more than one parser or deparser"),
        ("varbit", "varbit field odd_t.b that is not byte-aligned"),
        ("parser", "parser operation 'leap'"),
        ("checksum", "checksum of type 'ipv4'"),
        ("shift", "a left shift by an unbounded amount"),
        ("types", "an assignment between headers of different types"),
        ("stack", "HeaderRef used as a stack"),
        ("header", "FieldRef used as a header"),
        ("union", "HeaderRef used as a header union"),
        ("target", "Const used as a field"),
        ("lookahead", "lookahead outside a parser"),
        ("number", "HeaderRef used as a number"),
        ("operator", "StackRef used as a number"),
    ],
)
def test_what_is_not_supported_is_named(change: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedProgramError) as caught:
        one(_with(change), tmp_path)
    assert said in str(caught.value)
