"""Expressions and assignments over stacks, unions, unions in stacks, and varbit fields, against a model in Python.

The programs are those of p4c's forms that the programs beside this file have not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from dataclasses import field as attribute
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from sim.switch import Packets, Switch, load_program
from tests.sim.switch.minimal import document, field, hexstr, op, write

INPUTS = [[name, 8, False] for name in ("items", "union", "pick", "first", "second")]
ITEM, WIDE, TEXT = (
    ("item_t", [["tag", 8, False], ["b", 16, False]]),
    ("wide_t", [["tag", 8, False], ["c", 32, False]]),
    ("text_t", [["tag", 8, False], ["text", "*"], ["after", 8, False]]),
)
STACK_SIZE, UNIONS = 4, 3
MOST_TEXT = 8
"""Bytes of a varbit field."""
ITEMS, COPIES = {"type": "header_stack", "value": "s"}, {"type": "header_stack", "value": "t"}
BODIES = {"type": "header_union_stack", "value": "us"}


def header(name: str) -> dict[str, Any]:
    return {"type": "header", "value": name}


def union(name: str) -> dict[str, Any]:
    return {"type": "header_union", "value": name}


def expression(name: str, left: Any, right: Any) -> dict[str, Any]:
    return {"type": "expression", "value": {"op": name, "left": left, "right": right}}


def item_at(index: Any, stack: Any = ITEMS) -> dict[str, Any]:
    return expression("dereference_header_stack", stack, index)


def member_at(index: Any, member: int) -> dict[str, Any]:
    return expression("access_union_header", expression("dereference_union_stack", BODIES, index), member)


def valid(of: Any) -> dict[str, Any]:
    return expression("b2d", None, expression("valid", None, of))


def bit(boolean: Any) -> dict[str, Any]:
    return expression("b2d", None, boolean)


def call(name: str, *parameters: Any) -> dict[str, Any]:
    return {"op": name, "parameters": list(parameters)}


def state(name: str, operations: list[Any], key: list[Any], following: dict[Any, Any]) -> dict[str, Any]:
    """Return a parser's state; `following`: the next one by value of the key, None for any other."""
    return {
        "name": name,
        "id": 0,
        "parser_ops": [{"op": kind, "parameters": parameters} for kind, *parameters in operations],
        "transitions": [
            {"type": "default", "value": None, "mask": None, "next_state": to}
            if value is None
            else {"type": "hexstr", "value": f"0x{value:02x}", "mask": None, "next_state": to}
            for value, to in following.items()
        ],
        "transition_key": key,
    }


def program(
    outputs: list[list[Any]], primitives: list[dict[str, Any]], emitted: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return a program that parses items while their tag is 1, a union, unions while one is ahead, and two texts."""
    made = document(INPUTS, outputs, primitives)
    types = [{"name": n, "id": 10 + at, "fields": f} for at, (n, f) in enumerate((ITEM, WIDE, TEXT))]
    types[2]["max_length"] = MOST_TEXT + 2
    made["header_types"] += types
    kinds = {f"{stack}[{at}]": "item_t" for stack in "st" for at in range(STACK_SIZE)}
    for name in ("u", "w", *(f"{stack}[{at}]" for stack in ("us", "ut") for at in range(UNIONS))):
        kinds |= {f"{name}.x": "item_t", f"{name}.y": "wide_t"}
    kinds |= {"v": "text_t", "z": "text_t", "single": "item_t"}
    number = {name: 10 + at for at, name in enumerate(kinds)}
    made["headers"] += [
        {"name": name, "id": number[name], "header_type": kind, "metadata": False}
        for name, kind in kinds.items()
    ]
    made["header_stacks"] = [
        {
            "name": stack,
            "id": at,
            "header_type": "item_t",
            "size": STACK_SIZE,
            "header_ids": [number[f"{stack}[{each}]"] for each in range(STACK_SIZE)],
        }
        for at, stack in enumerate("st")
    ]
    made["header_union_types"] = [{"name": "u_t", "id": 0, "headers": [["x", "item_t"], ["y", "wide_t"]]}]
    names = ["u", "w", *(f"{stack}[{at}]" for stack in ("us", "ut") for at in range(UNIONS))]
    made["header_unions"] = [
        {
            "name": name,
            "id": at,
            "union_type": "u_t",
            "header_ids": [number[f"{name}.x"], number[f"{name}.y"]],
        }
        for at, name in enumerate(names)
    ]
    made["header_union_stacks"] = [
        {
            "name": stack,
            "id": at,
            "union_type": "u_t",
            "size": UNIONS,
            "header_union_ids": [names.index(f"{stack}[{each}]") for each in range(UNIONS)],
        }
        for at, stack in enumerate(("us", "ut"))
    ]
    regular = [{"type": "regular", "value": name} for name in ("i", "u.x", "u.y", "v", "z")]
    lengths = [expression("<<", field("i", name), hexstr(3)) for name in ("first", "second")]
    ahead = {"type": "lookahead", "value": [0, 8]}
    made["parsers"][0]["parse_states"] = [
        state("start", [("extract", regular[0])], [field("i", "items")], {0: "union", None: "items"}),
        state(
            "items",
            [("extract", {"type": "stack", "value": "s"})],
            [{"type": "stack_field", "value": ["s", "tag"]}],
            {1: "items", None: "union"},
        ),
        state("union", [], [field("i", "union")], {1: "x", 2: "y", None: "bodies"}),
        state("x", [("extract", regular[1])], [], {None: "bodies"}),
        state("y", [("extract", regular[2])], [], {None: "bodies"}),
        state("bodies", [], [ahead], {1: "body_x", 2: "body_y", None: "texts"}),
        state(
            "body_x",
            [("extract", {"type": "union_stack", "value": ["us", "x"]})],
            [{"type": "union_stack_field", "value": ["us", "x", "b"]}],
            {0xFFFF: "texts", None: "bodies"},
        ),
        state("body_y", [("extract", {"type": "union_stack", "value": ["us", "y"]})], [], {None: "bodies"}),
        state(
            "texts",
            [("extract_VL", regular[3], lengths[0]), ("extract_VL", regular[4], lengths[1])],
            [],
            {None: None},
        ),
    ]
    made["deparsers"][0]["order"] = ["o", *emitted]
    return made


@dataclass
class Ask:
    """A packet, as the model sees it: what each header holds, None where it is not valid."""

    items: list[tuple[int, int]]
    union: tuple[str, int, int] | None
    pick: int
    bodies: list[tuple[str, int, int]]
    texts: tuple[tuple[int, bytes, int], tuple[int, bytes, int]]
    frame: bytes = attribute(default=b"")

    def __post_init__(self) -> None:
        """Write the frame."""
        kind = {None: 0, "x": 1, "y": 2}[self.union and self.union[0]]
        sizes = [len(text) for _, text, _ in self.texts]
        out = bytes([len(self.items), kind, self.pick, *sizes])
        out += b"".join(item_bytes(each) for each in self.items)
        for each in ([self.union] if self.union else []) + self.bodies:
            out += member_bytes(each)
        self.frame = out + b"".join(map(text_bytes, self.texts))

    def item(self, at: int) -> tuple[int, int] | None:
        return self.items[at] if at < len(self.items) else None

    def body(self, at: int) -> tuple[str, int, int] | None:
        return self.bodies[at] if at < len(self.bodies) else None


def item_bytes(item: tuple[int, int] | None) -> bytes:
    return b"" if item is None else bytes([item[0]]) + item[1].to_bytes(2, "big")


def member_bytes(member: tuple[str, int, int] | None) -> bytes:
    if member is None:
        return b""
    name, tag, value = member
    return bytes([tag]) + value.to_bytes(2 if name == "x" else 4, "big")


def text_bytes(text: tuple[int, bytes, int]) -> bytes:
    return bytes([text[0]]) + text[1] + bytes([text[2]])


def asks(count: int = 60) -> list[Ask]:
    """Return packets with every count of items, unions and bytes, and some with equal neighbours."""
    rng = random.Random(7)
    made = []
    for number in range(count):
        items = [(1, rng.choice([5, 5, 700, 65535])) for _ in range(number % (STACK_SIZE + 1))]
        if items:
            items[-1] = (rng.choice([0, 9]), items[-1][1])
        one = rng.choice([None, ("x", 3, rng.getrandbits(16)), ("y", 4, rng.getrandbits(32))])
        bodies = [
            rng.choice([("x", 1, rng.choice([7, 8])), ("y", 2, rng.getrandbits(32))])
            for _ in range(rng.randrange(UNIONS + 1))
        ]
        first = (0x55, rng.randbytes(rng.randrange(MOST_TEXT + 1)), 9)
        second = rng.choice(
            [first, first, (0x55, b"\0" + first[1][:7], 9), (0x55, rng.randbytes(len(first[1])), 9)]
        )
        made.append(Ask(items, one, rng.randrange(STACK_SIZE), bodies, (first, second)))
    return made


def answers(made: dict[str, Any], tmp_path: Path, packets: list[Ask]) -> list[bytes]:
    switch = Switch(load_program(write(made, tmp_path / "program.json")))
    found = []
    for each in packets:
        ((port, frame),) = switch.inject(Packets.of([(0, each.frame)]), 0)
        assert port == 1
        found.append(frame)
    return found


def sets(name: str, value: Any) -> dict[str, Any]:
    return call("assign", field("o", name), value)


def test_elements_of_a_stack_are_read_at_an_index_that_a_packet_carries(tmp_path: Path) -> None:
    pick = field("i", "pick")
    made = program(
        [
            ["b", 16, False],
            ["valid", 8, False],
            ["larger", 8, False],
            ["index", 8, False],
            ["size", 8, False],
        ],
        [
            sets("b", expression("access_field", item_at(pick), 1)),
            sets("valid", valid(item_at(pick))),
            sets("larger", bit(op(">", expression("access_field", item_at(pick), 1), hexstr(699)))),
            sets("index", op("&", expression("last_stack_index", ITEMS, None), hexstr(0xFF))),
            sets("size", expression("size_stack", ITEMS, None)),
        ],
    )
    packets = asks()
    for each, found in zip(packets, answers(made, tmp_path, packets), strict=True):
        item = each.item(each.pick)
        assert found[2] == (item is not None), each
        if item is not None:
            assert int.from_bytes(found[:2], "big") == item[1], each
            assert found[3] == (item[1] > 699), each
        assert found[4] == (len(each.items) - 1) % 256
        assert found[5] == len(each.items)


def test_an_index_compares_as_a_signed_number(tmp_path: Path) -> None:
    last = expression("last_stack_index", ITEMS, None)
    made = program(
        [["empty", 8, False], ["full", 8, False], ["many", 8, False]],
        [
            sets("empty", bit(op("<", last, hexstr(0)))),
            sets("full", bit(op("==", last, hexstr(STACK_SIZE - 1)))),
            sets("many", bit(op(">=", expression("size_stack", ITEMS, None), hexstr(2)))),
        ],
    )
    packets = asks()
    for each, found in zip(packets, answers(made, tmp_path, packets), strict=True):
        assert tuple(found[:3]) == (
            not each.items,
            len(each.items) == STACK_SIZE,
            len(each.items) >= 2,
        ), each


def test_an_element_is_written_at_an_index_and_one_beyond_the_stack_changes_nothing(tmp_path: Path) -> None:
    made = program(
        [["_", 8, False]],
        [call("assign", expression("access_field", item_at(field("i", "pick")), 1), hexstr(0x1234))],
        tuple(f"s[{at}]" for at in range(STACK_SIZE)),
    )
    packets = asks()
    packets += [
        Ask(each.items, each.union, STACK_SIZE + at, each.bodies, each.texts)
        for at, each in enumerate(packets[:9])
    ]
    for each, found in zip(packets, answers(made, tmp_path, packets), strict=True):
        expected = [(tag, 0x1234 if at == each.pick else b) for at, (tag, b) in enumerate(each.items)]
        size = 3 * len(expected)
        assert found[1 : 1 + size] == b"".join(map(item_bytes, expected)), each


def test_a_whole_stack_is_assigned_with_its_count(tmp_path: Path) -> None:
    made = program(
        [["size", 8, False]],
        [call("assign_header_stack", COPIES, ITEMS), sets("size", expression("size_stack", COPIES, None))],
        tuple(f"t[{at}]" for at in range(STACK_SIZE)),
    )
    packets = asks()
    for each, found in zip(packets, answers(made, tmp_path, packets), strict=True):
        wanted = bytes([len(each.items)]) + b"".join(map(item_bytes, each.items))
        assert found[: len(wanted)] == wanted
        assert len(found) == len(wanted), each


def test_the_last_element_is_assigned_as_a_whole(tmp_path: Path) -> None:
    made = program(
        [["_", 8, False]],
        [call("assign_header", header("single"), {"type": "stack_field", "value": ["s", "last"]})],
        ("single",),
    )
    packets = asks()
    for each, found in zip(packets, answers(made, tmp_path, packets), strict=True):
        assert found[1:] == item_bytes(each.items[-1] if each.items else None), each


def test_headers_are_equal_where_both_are_valid_with_equal_fields(tmp_path: Path) -> None:
    pairs = list(product(range(STACK_SIZE), repeat=2))
    outputs = [[f"{name}{a}{b}", 8, False] for a, b in pairs for name in ("same", "other")]
    primitives = []
    for a, b in pairs:
        one, other = header(f"s[{a}]"), header(f"s[{b}]")
        primitives += [sets(f"same{a}{b}", bit(op("==", one, other)))]
        primitives += [sets(f"other{a}{b}", bit(op("!=", one, other)))]
    packets = asks()
    for each, found in zip(packets, answers(program(outputs, primitives), tmp_path, packets), strict=True):
        for number, (a, b) in enumerate(pairs):
            same = each.item(a) is not None and each.item(a) == each.item(b)
            assert tuple(found[2 * number : 2 * number + 2]) == (same, not same), (each, a, b)


def test_headers_of_two_types_are_never_equal(tmp_path: Path) -> None:
    made = program([["same", 8, False]], [sets("same", bit(op("==", header("u.x"), header("u.y"))))])
    packets = asks()
    assert {found[0] for found in answers(made, tmp_path, packets)} == {0}


def test_texts_are_equal_by_their_bytes_and_their_length(tmp_path: Path) -> None:
    v, z = field("v", "text"), field("z", "text")
    made = program(
        [["same", 8, False], ["other", 8, False], ["header", 8, False]],
        [
            sets("same", bit(op("==", v, z))),
            sets("other", bit(op("!=", v, z))),
            sets("header", bit(op("==", header("v"), header("z")))),
        ],
    )
    packets = asks()
    assert len({each.texts[0] == each.texts[1] for each in packets}) == 2
    for each, found in zip(packets, answers(made, tmp_path, packets), strict=True):
        same = each.texts[0][1] == each.texts[1][1]
        assert tuple(found[:3]) == (same, not same, each.texts[0] == each.texts[1]), each


@pytest.mark.parametrize("primitive", ["assign", "assign_VL"])
def test_a_text_is_assigned_with_its_length(primitive: str, tmp_path: Path) -> None:
    made = program([["_", 8, False]], [call(primitive, field("z", "text"), field("v", "text"))], ("v", "z"))
    packets = asks()
    for each, found in zip(packets, answers(made, tmp_path, packets), strict=True):
        first, second = each.texts
        assert found[1:] == text_bytes(first) + text_bytes((second[0], first[1], second[2])), each


def test_a_union_is_assigned_as_a_whole_and_compared(tmp_path: Path) -> None:
    made = program(
        [["before", 8, False], ["after", 8, False], ["other", 8, False], ["valid", 8, False]],
        [
            sets("before", bit(op("==", union("u"), union("w")))),
            call("assign_union", union("w"), union("u")),
            sets("after", bit(op("==", union("u"), union("w")))),
            sets("other", bit(op("!=", union("u"), union("w")))),
            sets("valid", bit(expression("valid_union", None, union("w")))),
        ],
        ("w.x", "w.y"),
    )
    packets = asks()
    for each, found in zip(packets, answers(made, tmp_path, packets), strict=True):
        there = each.union is not None
        assert tuple(found[:4]) == (0, there, not there, there), each
        assert found[4:] == member_bytes(each.union), each


def test_a_member_of_a_union_is_read_at_an_index_that_a_packet_carries(tmp_path: Path) -> None:
    pick = field("i", "pick")
    made = program(
        [["c", 32, False], ["x", 8, False], ["y", 8, False], ["any", 8, False], ["tag", 8, False]],
        [
            sets("c", expression("access_field", member_at(pick, 1), 1)),
            sets("x", valid(member_at(pick, 0))),
            sets("y", expression("access_field", member_at(pick, 1), 2)),
            sets(
                "any",
                bit(expression("valid_union", None, expression("dereference_union_stack", BODIES, pick))),
            ),
            sets("tag", expression("access_field", member_at(pick, 0), 0)),
        ],
    )
    packets = asks()
    for each, found in zip(packets, answers(made, tmp_path, packets), strict=True):
        body = each.body(each.pick)
        assert tuple(found[4:7]) == (
            body is not None and body[0] == "x",
            body is not None and body[0] == "y",
            body is not None,
        ), each
        if body is not None and body[0] == "y":
            assert int.from_bytes(found[:4], "big") == body[2], each
        if body is not None and body[0] == "x":
            assert found[7] == body[1], each


def test_a_member_set_valid_at_an_index_takes_its_sibling_away(tmp_path: Path) -> None:
    y = member_at(field("i", "pick"), 1)
    made = program(
        [["_", 8, False]],
        [
            call("add_header", y),
            call("assign", expression("access_field", y, 0), hexstr(2)),
            call("assign", expression("access_field", y, 1), hexstr(0xCAFEF00D)),
        ],
        tuple(f"us[{at}].{member}" for at in range(UNIONS) for member in "xy"),
    )
    packets = [each for each in asks() if each.pick < UNIONS]
    for each, found in zip(packets, answers(made, tmp_path, packets), strict=True):
        expected = [each.body(at) for at in range(UNIONS)]
        expected[each.pick] = ("y", 2, 0xCAFEF00D)
        assert found[1:] == b"".join(map(member_bytes, expected)), each


def test_a_stack_of_unions_is_assigned_as_a_whole(tmp_path: Path) -> None:
    made = program(
        [["_", 8, False]],
        [call("assign_union_stack", {"type": "header_union_stack", "value": "ut"}, BODIES)],
        tuple(f"ut[{at}].{member}" for at in range(UNIONS) for member in "xy"),
    )
    packets = asks()
    for each, found in zip(packets, answers(made, tmp_path, packets), strict=True):
        assert found[1:] == b"".join(map(member_bytes, each.bodies)), each
