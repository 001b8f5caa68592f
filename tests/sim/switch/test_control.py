"""The control plane's requests: entries, profiles, counters, meters, registers, digests, saved state."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.switch import (
    DuplicateError,
    EntryError,
    Exact,
    FullError,
    Lpm,
    Optional,
    Packets,
    Range,
    Switch,
    TableEntry,
    Ternary,
    UnknownNameError,
    load_program,
)
from tests.sim.switch.minimal import document, field, hexstr, write
from tests.sim.switch.scenarios import PROGRAMS, SCENARIOS


@pytest.fixture
def matching() -> Switch:
    return Switch(load_program(PROGRAMS / "matching.json"))


@pytest.fixture
def externs() -> Switch:
    return Switch(load_program(PROGRAMS / "externs.json"))


def _found(switch: Switch, *, a: int = 0, b: int = 0, ip: int = 0, port: int = 0, kind: int = 0) -> list[int]:
    frame = (a << 4 | b).to_bytes(2, "big") + ip.to_bytes(4, "big") + bytes(6) + port.to_bytes(2, "big")
    ((_, out),) = switch.inject(Packets.of([(0, frame + bytes([kind]))]), 0)
    return list(out[15:23])


def _ask(what: int, index: int, value: int = 0) -> Packets:
    return Packets.of([(0, bytes([what, index]) + value.to_bytes(4, "big") + bytes(14))])


def test_entries_come_and_go(matching: Switch) -> None:
    entries = [TableEntry((Exact(n), Exact(n % 16)), 0, "I.set_exact", (n % 256,)) for n in range(1000)]
    for entry in entries:
        matching.table_insert("I.t_exact", entry)
    assert _found(matching, a=999, b=7)[0] == 999 % 256
    for entry in entries[::2]:
        matching.table_delete("I.t_exact", entry)
    changed = TableEntry(entries[1].key, 0, "I.set_exact", (200,))
    matching.table_modify("I.t_exact", changed)
    assert _found(matching, a=1, b=1)[0] == 200
    assert _found(matching, a=2, b=2)[0] == 0xEE
    assert _found(matching, a=999, b=7)[0] == 999 % 256
    assert sorted(e.params[0] for e in matching.table_entries("I.t_exact"))[:2] == [1, 1]
    assert len(matching.table_entries("I.t_exact")) == 500
    for entry in entries[::2]:
        matching.table_insert("I.t_exact", entry)
    assert all(_found(matching, a=n, b=n % 16)[0] == n % 256 for n in range(2, 1000, 97))


def test_table_holds_what_the_program_declares(matching: Switch) -> None:
    for n in range(1024):
        matching.table_insert("I.t_exact", TableEntry((Exact(n), Exact(0)), 0, "NoAction"))
    with pytest.raises(FullError, match="1024"):
        matching.table_insert("I.t_exact", TableEntry((Exact(2000), Exact(0)), 0, "NoAction"))


def test_precedence(matching: Switch) -> None:
    for length, value in ((8, 1), (24, 3), (16, 2)):
        prefix = 0x0A0B0C0D >> (32 - length) << (32 - length)
        matching.table_insert("I.t_lpm", TableEntry((Lpm(prefix, length),), 0, "I.set_lpm", (value,)))
    assert [_found(matching, ip=ip)[1] for ip in (0x0A0B0C01, 0x0A0B0101, 0x0A010101, 0)] == [3, 2, 1, 0]
    key: tuple[Any, ...]
    for priority, mask in ((5, 0xFF), (9, 0xF0), (7, 0)):
        key = (Ternary(0, 0), Ternary(0x11 & mask, mask))
        matching.table_insert("I.t_ternary", TableEntry(key, priority, "I.set_ternary", (priority,)))
    assert [_found(matching, port=port)[2] for port in (0x11, 0x12, 0x21)] == [9, 9, 7]
    for priority, low, high in ((1, 0, 65535), (2, 100, 200), (3, 200, 200)):
        key = (Range(low, high), Exact(0))
        matching.table_insert("I.t_range", TableEntry(key, priority, "I.set_range", (priority,)))
    assert [_found(matching, port=port)[3] for port in (99, 100, 199, 200, 201)] == [1, 2, 2, 3, 1]
    for priority, want in ((1, None), (2, 4)):
        key = (Optional(want), Optional(None))
        matching.table_insert("I.t_optional", TableEntry(key, priority, "I.set_optional", (priority,)))
    assert [_found(matching, kind=kind)[4] for kind in (3, 4)] == [1, 2]


@pytest.mark.parametrize(
    ("table", "entry", "error"),
    [
        ("nowhere", TableEntry(), UnknownNameError),
        ("I.t_exact", TableEntry((Exact(1), Exact(1)), 0, "I.set_lpm", (1,)), UnknownNameError),
        ("I.t_exact", TableEntry((Exact(1),), 0, "NoAction"), EntryError),
        ("I.t_exact", TableEntry((Exact(4096), Exact(1)), 0, "NoAction"), EntryError),
        ("I.t_exact", TableEntry((Exact(1), Ternary(1, 1)), 0, "NoAction"), EntryError),
        ("I.t_exact", TableEntry((Exact(1), Exact(1)), 0, "I.set_exact", (256,)), EntryError),
        ("I.t_exact", TableEntry((Exact(1), Exact(1)), 0, "I.set_exact", ()), EntryError),
        ("I.t_lpm", TableEntry((Lpm(0, 33),), 0, "NoAction"), EntryError),
        ("I.t_range", TableEntry((Range(5, 4), Exact(0)), 0, "NoAction"), EntryError),
        ("I.t_const", TableEntry((Ternary(0, 0),), 0, "I.set_const", (1,)), EntryError),
    ],
)
def test_entries_that_do_not_fit(
    matching: Switch, table: str, entry: TableEntry, error: type[Exception]
) -> None:
    with pytest.raises(error):
        matching.table_insert(table, entry)
    assert _found(matching)[0] == 0xEE


def test_same_entry_twice_and_absent_entry(matching: Switch) -> None:
    entry = TableEntry((Lpm(0x0A000000, 8),), 0, "NoAction")
    matching.table_insert("I.t_lpm", entry)
    with pytest.raises(DuplicateError):
        matching.table_insert("I.t_lpm", TableEntry((Lpm(0x0A0000FF, 8),), 0, "NoAction"))
    matching.table_delete("I.t_lpm", entry)
    for request in (matching.table_delete, matching.table_modify):
        with pytest.raises(UnknownNameError):
            request("I.t_lpm", entry)


def test_default_actions(matching: Switch) -> None:
    assert matching.table_default("I.t_exact") == ("I.set_exact", (0xEE,))
    matching.table_set_default("I.t_exact", "I.set_exact", (5,))
    assert _found(matching)[0] == 5
    matching.table_reset_default("I.t_exact")
    assert _found(matching)[0] == 0xEE
    with pytest.raises(EntryError, match="constant"):
        matching.table_set_default("I.t_const", "I.set_const", (5,))


def test_constant_entries_are_read_as_they_take_precedence(matching: Switch) -> None:
    entries = matching.table_entries("I.t_const")
    assert [e.params[0] for e in sorted(entries, key=lambda e: -e.priority)] == [1, 2, 3]


def test_direct_counters(matching: Switch) -> None:
    entry = TableEntry((Lpm(0x0A000000, 8),), 0, "I.set_lpm", (1,))
    matching.table_insert("I.t_lpm", entry)
    for _ in range(3):
        _found(matching, ip=0x0A010203)
    _found(matching, ip=0x0B010203)
    assert matching.direct_counter_read("I.t_lpm", entry) == (3, 45)
    matching.direct_counter_write("I.t_lpm", entry, 7, 8)
    assert matching.direct_counter_read("I.t_lpm", entry) == (7, 8)
    with pytest.raises(EntryError):
        matching.direct_counter_read("I.t_exact", TableEntry((Exact(1), Exact(1))))


def test_counters_and_registers(externs: Switch) -> None:
    for value in (5, 7):
        externs.inject(_ask(0, 9, value), 0)
    assert externs.counter_read("I.seen", 9) == (2, 40)
    assert externs.register_view("I.narrow")[9] == 12
    assert externs.register_view("I.five")[9] == 14
    assert externs.register_view("I.wide").shape == (256, 2)
    externs.register_view("I.narrow")[9] = 1000
    ((_, out),) = externs.inject(_ask(0, 9, 1), 0)
    assert out[:4] == (1000).to_bytes(4, "big")
    externs.counter_write("I.seen", 9, 1, 2)
    assert externs.counter_read("I.seen", 9) == (1, 2)
    with pytest.raises(UnknownNameError):
        externs.register_view("nothing")
    with pytest.raises(EntryError):
        externs.counter_read("I.seen", 256)


def test_meter_follows_the_time_given(externs: Switch) -> None:
    # One packet per second, bursts of two: the clock alone decides.
    externs.meter_config("I.policer", 1, [(1e-6, 2), (1e-6, 4)])

    def color(now_s: float) -> int:
        ((_, out),) = externs.inject(_ask(0, 1), int(now_s * 1e9))
        return out[17]

    assert [color(0) for _ in range(6)] == [0, 0, 1, 1, 2, 2]
    assert [color(1.5), color(1.5)] == [0, 2]
    externs.meter_config("I.policer", 1, None)
    assert [color(1.5) for _ in range(5)] == [0] * 5
    with pytest.raises(EntryError):
        externs.meter_config("I.policer", 1, [(2.0, 1), (1.0, 1)])


def test_digests(externs: Switch) -> None:
    externs.inject(
        Packets.of([(0, bytes([7, n]) + bytes(3) + bytes([n]) + bytes(14)) for n in range(200)]), 0
    )
    digests = externs.drain_digests()
    assert [d.values for d in digests] == [(n, 0, n) for n in range(200)]
    assert digests[0].name
    assert externs.drain_digests() == []


def test_random_is_seeded_and_in_range() -> None:
    program = load_program(PROGRAMS / "externs.json")
    batch = Packets.of([(0, bytes([8]) + bytes(19))] * 500)

    def draw(seed: int) -> list[int]:
        return [int.from_bytes(f[20:22], "big") for _, f in Switch(program, seed=seed).inject(batch, 0)]

    assert draw(1) == draw(1) != draw(2)
    assert set(draw(1)) == set(range(10, 21))


def test_profiles(externs: Switch) -> None:
    for member in (10, 20):
        externs.member_insert("I.selector", member, "I.choose", (member,))
    externs.group_insert("I.selector", 7, [(10, 1), (20, 3)])
    entry = TableEntry((Exact(1),), group=7)
    externs.table_insert("I.t_select", entry)

    def chosen() -> list[int]:
        rng = random.Random(1)
        flows = [bytes([1, 0]) + bytes(16) + rng.randbytes(2) for _ in range(400)]
        return [f[19] for _, f in externs.inject(Packets.of([(0, f) for f in flows]), 0)]

    counts = np.bincount(chosen(), minlength=21)
    assert counts[10] + counts[20] == 400
    assert 2 < counts[20] / counts[10] < 4
    externs.member_modify("I.selector", 20, "I.choose", (21,))
    externs.group_modify("I.selector", 7, [(20, 1)])
    assert set(chosen()) == {21}
    with pytest.raises(EntryError):
        externs.group_delete("I.selector", 7)
    with pytest.raises(EntryError):
        externs.member_delete("I.selector", 20)
    externs.group_modify("I.selector", 7, [])
    assert set(chosen()) == {0}
    externs.table_delete("I.t_select", entry)
    externs.group_delete("I.selector", 7)
    externs.member_delete("I.selector", 20)
    assert externs.members("I.selector") == {10: ("I.choose", (10,))}
    assert externs.groups("I.selector") == {}


def test_saved_state_comes_back(externs: Switch) -> None:
    entry = TableEntry((Exact(3),), 0, "I.metered")
    externs.table_insert("I.t_meter", entry)
    externs.inject(_ask(8, 3, 5), 0)
    saved = externs.save_state()
    script = [_ask(what, 3, value) for what, value in ((8, 1), (7, 2), (0, 3))]
    first = [list(externs.inject(p, 0)) for p in script]
    digests = externs.drain_digests()
    externs.table_delete("I.t_meter", entry)
    externs.mcast_set(4, [(1, 1)])
    externs.restore_state(saved)
    assert externs.table_entries("I.t_meter") == [entry]
    assert externs.mcast_groups() == {}
    assert [list(externs.inject(p, 0)) for p in script] == first
    assert externs.drain_digests() == digests
    other = Switch(externs.program)
    other.restore_state(saved)
    assert [list(other.inject(p, 0)) for p in script] == first
    assert saved.arrays[0] is not externs.save_state().arrays[0]


def test_groups_and_sessions_are_checked(externs: Switch) -> None:
    for bad in (0, 65536):
        with pytest.raises(EntryError):
            externs.mcast_set(bad, [(1, 1)])
    with pytest.raises(EntryError):
        externs.mcast_set(1, [(70000, 1)])
    with pytest.raises(EntryError):
        externs.clone_set(32768, [(1, 1)])
    with pytest.raises(UnknownNameError):
        externs.mcast_delete(5)
    with pytest.raises(UnknownNameError):
        externs.clone_delete(5)
    externs.clone_set(3, [(1, 2)], 64)
    assert externs._replication.sessions == {3: (((1, 2),), 64)}


def test_clone_sessions_cut_their_copies() -> None:
    switch = Switch(load_program(PROGRAMS / "traffic.json"))
    switch.clone_set(5, [(6, 0)], 30)
    frame = bytes([2, 4, 0, 0, 0, 0]) + bytes(100)
    sizes = {port: len(f) for port, f in switch.inject(Packets.of([(0, frame)]), 0)}
    assert sizes == {4: 127, 6: 30}


def test_value_sets_and_stacks_of_unions() -> None:
    switch = Switch(load_program(PROGRAMS / "sets.json"))

    def leaves(ab: int, c: int, items: bytes) -> tuple[int, bytes]:
        frame = ab.to_bytes(2, "big") + c.to_bytes(4, "big") + items
        ((_, out),) = switch.inject(Packets.of([(0, frame)]), 0)
        return out[0], out[7:]

    assert leaves(0xABC1, 7, b"") == (0x80, b"")
    switch.value_set_write("P.ones", [7, 9])
    # Two parts of 12 and 4 bits, each padded to whole bytes.
    switch.value_set_write("P.pairs", [0x0ABC01])
    assert leaves(0xABC1, 7, b"\0") == (3, b"\0")
    assert leaves(0xABC1, 8, b"\0") == (2, b"\0")
    assert leaves(0xABC2, 9, b"\0") == (1, b"\0")
    # The second item is copied over the first, whatever kind that was.
    assert leaves(0, 0, b"\2xy\1\0") == (0, b"\1\1\0")
    # Making one member valid makes the other invalid.
    assert leaves(0, 0, b"\1\2ab\2cd\0") == (0, b"\1\2ab\x09\0")
    # A fourth item does not fit the stack.
    assert leaves(0, 0, b"\1\2ab\1\1\0") == (0x80, b"\1\2ab\1\1\0")
    with pytest.raises(EntryError):
        switch.value_set_write("P.pairs", [1 << 24])
    with pytest.raises(UnknownNameError):
        switch.value_set_write("nothing", [])


def test_marking_a_copy_of_the_metadata_does_not_drop(tmp_path: Path) -> None:
    mark: list[dict[str, Any]] = [{"op": "mark_to_drop", "parameters": [{"type": "header", "value": "copy"}]}]
    program = document([["a", 8, False]], [["r", 8, False]], mark)
    instance = {"name": "copy", "id": 9, "header_type": "standard_metadata", "metadata": True}
    program["headers"].append(instance)
    switch = Switch(load_program(write(program, tmp_path / "p.json")), tmp_path)
    assert list(switch.inject(Packets.of([(0, b"a")]), 0)) == [(1, b"\0")]
    mark[0]["parameters"][0]["value"] = "standard_metadata"
    program["actions"][0]["primitives"][-1] = mark[0]
    switch = Switch(load_program(write(program, tmp_path / "p.json")), tmp_path)
    assert list(switch.inject(Packets.of([(0, b"a")]), 0)) == []


def test_a_select_may_look_at_bits_ahead_itself(tmp_path: Path) -> None:
    """A compiler may write what is ahead into the key, or into a field that is the key."""
    program = json.loads((PROGRAMS / "sets.json").read_text())
    (state,) = (each for each in program["parsers"][0]["parse_states"] if each["name"] == "items")
    state["transition_key"] = [state["parser_ops"].pop()["parameters"][1]]
    assert state["transition_key"][0]["type"] == "lookahead"
    (sets,) = (each for each in SCENARIOS if each.name == "sets")
    # Behind the end of a packet a key has zeros, but a field an error.
    frames = [frame for frame in sets.frames(random.Random(1)) if frame.endswith(b"\0abc")]
    packets = Packets.of([(0, frame) for frame in frames])
    ahead, by_field = (
        Switch(load_program(path))
        for path in (write(program, tmp_path / "ahead.json"), PROGRAMS / "sets.json")
    )
    assert list(ahead.inject(packets, 0)) == list(by_field.inject(packets, 0))


@pytest.mark.parametrize("name", ["deq_timedelta", "enq_qdepth", "deq_qdepth"])
def test_egress_sees_empty_queues_whatever_ingress_wrote(tmp_path: Path, name: str) -> None:
    program = json.loads((PROGRAMS / "loops.json").read_text())
    actions = {each["name"]: each["primitives"] for each in program["actions"]}
    actions["loops18"].append(_assign("standard_metadata", name, hexstr(9)))
    actions["loops28"][1:] = [_assign("seen", "what", field("standard_metadata", name))]
    switch = Switch(load_program(write(program, tmp_path / "queues.json")))
    assert list(switch.inject(Packets.of([(0, b"\3")]), 0)) == [(1, b"\3\0")]


def _assign(header: str, name: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"op": "assign", "parameters": [field(header, name), value]}
