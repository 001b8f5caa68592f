"""Table entries over gRPC: what is written is what packets meet and what is read, and what is wrong is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from netsum_common.p4rt import p4runtime_pb2
from tests.sim.p4runtime.p4runtime_client import (
    DEADLINE_S,
    DELETE,
    INSERT,
    MODIFY,
    PROFILE,
    TABLES,
    Bench,
    fields,
)

UNSPECIFIED = p4runtime_pb2.Update.UNSPECIFIED


def test_exact_entries(bench: Bench) -> None:
    entry = bench.entry("exact_table", {1: 0x0A000001, 2: 7}, ("mark_and_forward", 0x55, 9))
    assert bench.one(TABLES, a=0x0A000001, b=7) is None
    bench.write(INSERT, entry)
    assert bench.one(TABLES, a=0x0A000001, b=7) == (
        9,
        fields(TABLES, a=0x0A000001, b=7, mark=0x55),
    )
    assert bench.one(TABLES, a=0x0A000001, b=8) is None
    assert bench.read(entry) == [entry]

    entry.action.action.CopyFrom(bench.action("mark_and_forward", 0x66, 10))
    bench.write(MODIFY, entry)
    assert bench.one(TABLES, a=0x0A000001, b=7)[0] == 10
    assert bench.read(entry) == [entry]

    bench.write(DELETE, entry)
    assert bench.one(TABLES, a=0x0A000001, b=7) is None
    assert bench.read(entry) == []


def test_lpm_entries_and_the_one_for_everything(bench: Bench) -> None:
    narrow = bench.entry("lpm_table", {1: ("lpm", 0x0A010000, 16)}, ("forward", 2))
    wide = bench.entry("lpm_table", {1: ("lpm", 0x0A000000, 8)}, ("forward", 1))
    everything = bench.entry("lpm_table", {}, ("forward", 3))
    bench.write(INSERT, wide, narrow, everything)
    assert [bench.one(TABLES, a=a)[0] for a in (0x0A010203, 0x0A020304, 0x0B000000)] == [2, 1, 3]
    assert bench.read(bench.entry("lpm_table")) == [wide, narrow, everything]
    bench.write(DELETE, narrow)
    assert bench.one(TABLES, a=0x0A010203)[0] == 1


def test_ternary_entries_the_largest_priority_wins(bench: Bench) -> None:
    low = bench.entry(
        "ternary_table", {1: ("ternary", 0x10, 0xF0), 2: 5}, ("mark_and_forward", 1, 1), priority=1
    )
    high = bench.entry(
        "ternary_table", {1: ("ternary", 0x11, 0xFF), 2: 5}, ("mark_and_forward", 2, 2), priority=10
    )
    anything = bench.entry("ternary_table", {2: 5}, ("mark_and_forward", 3, 3), priority=5)
    bench.write(INSERT, low, high, anything)
    assert [bench.one(TABLES, a=a, c=5)[0] for a in (0x11, 0x12, 0x22)] == [2, 3, 3]
    bench.write(DELETE, anything)
    assert bench.one(TABLES, a=0x12, c=5)[0] == 1
    assert bench.read(bench.entry("ternary_table")) == [low, high]


def test_same_key_with_another_priority_is_another_entry(bench: Bench) -> None:
    one = bench.entry("ternary_table", {1: ("ternary", 1, 1), 2: 5}, ("forward", 1), priority=1)
    two = bench.entry("ternary_table", {1: ("ternary", 1, 1), 2: 5}, ("forward", 2), priority=2)
    bench.write(INSERT, one, two)
    assert bench.one(TABLES, a=1, c=5)[0] == 2
    assert bench.read(one) == [one]
    bench.write(DELETE, two)
    assert bench.one(TABLES, a=1, c=5)[0] == 1


def test_range_optional_and_ternary_fields(bench: Bench) -> None:
    entry = bench.entry(
        "range_table",
        {1: ("range", 100, 200), 2: ("optional", 9), 3: ("ternary", 0x00FF, 0xFFFF)},
        ("mark_and_forward", 1, 4),
        priority=7,
    )
    fallback = bench.entry("range_table", {1: ("range", 0, 150)}, ("mark_and_forward", 2, 5), priority=1)
    bench.write(INSERT, entry, fallback)
    assert bench.one(TABLES, b=100, c=9, d=0x1200FF)[0] == 4
    assert bench.one(TABLES, b=200, c=9, d=0x1200FF)[0] == 4
    assert bench.one(TABLES, b=100, c=8, d=0x1200FF)[0] == 5
    assert bench.one(TABLES, b=201, c=9, d=0x1200FF) is None
    assert bench.one(TABLES, b=150, c=9, d=0x12)[0] == 5
    assert bench.read(bench.entry("range_table")) == [entry, fallback]


def test_values_may_have_leading_zeros_and_come_back_shortest(bench: Bench) -> None:
    entry = bench.entry("exact_table", {1: 5, 2: 7}, ("mark_and_forward", 3, 1))
    padded = p4runtime_pb2.TableEntry()
    padded.CopyFrom(entry)
    for field in padded.match:
        field.exact.value = b"\x00" * 9 + field.exact.value
    for param in padded.action.action.params:
        param.value = b"\x00" * 9 + param.value
    padded.match.sort(key=lambda field: -field.field_id)
    bench.write(INSERT, padded)
    assert bench.read(bench.entry("exact_table")) == [entry]
    assert bench.refused(INSERT, entry)[0] == "ALREADY_EXISTS"


def test_default_entry(bench: Bench) -> None:
    default = bench.entry("lpm_table", action=("forward", 6), is_default_action=True)
    assert bench.one(TABLES, a=1) is None
    bench.write(MODIFY, default)
    assert bench.one(TABLES, a=1)[0] == 6
    assert bench.read(bench.entry("lpm_table", is_default_action=True)) == [default]
    assert bench.read(bench.entry("lpm_table")) == []
    bench.write(MODIFY, bench.entry("lpm_table", is_default_action=True))
    assert bench.one(TABLES, a=1) is None
    initial = bench.entry("lpm_table", action=("drop",), is_default_action=True)
    assert bench.read(bench.entry("lpm_table", is_default_action=True)) == [initial]


def test_the_default_entry_of_a_table_without_key(bench: Bench) -> None:
    bench.write(INSERT, bench.entry("lpm_table", {}, ("forward", 3)))
    assert bench.one(TABLES)[0] == 3
    bench.write(MODIFY, bench.entry("keyless_table", action=("forward", 8), is_default_action=True))
    assert bench.one(TABLES)[0] == 8
    assert bench.refused(INSERT, bench.entry("keyless_table", action=("forward", 8)))[0] == "INVALID_ARGUMENT"


def test_what_controllers_note_comes_back(bench: Bench) -> None:
    entry = bench.entry(
        "exact_table",
        {1: 1, 2: 2},
        ("mark_and_forward", 1, 1),
        metadata=b"route 17",
        controller_metadata=99,
    )
    other = bench.entry("exact_table", {1: 1, 2: 3}, ("drop",))
    bench.write(INSERT, entry, other)
    assert bench.read(bench.entry("exact_table", metadata=b"route 17")) == [entry]
    assert bench.read(bench.entry("exact_table", controller_metadata=99)) == [entry]
    assert bench.read(bench.entry("exact_table", metadata=b"nothing")) == []
    wanted = bench.entry("exact_table")
    wanted.action.action.action_id = bench.id("drop")
    assert bench.read(wanted) == [other]


def test_all_entries_of_all_tables_can_be_read_by_priority_too(bench: Bench) -> None:
    one = bench.entry("ternary_table", {1: ("ternary", 1, 1), 2: 5}, ("forward", 1), priority=1)
    two = bench.entry("range_table", {}, ("forward", 2), priority=2)
    three = bench.entry("exact_table", {1: 1, 2: 3}, ("drop",))
    bench.write(INSERT, one, two, three)
    found = bench.read(p4runtime_pb2.TableEntry())
    assert [each for each in (one, two, three) if each not in found] == []
    fixed = [each for each in found if each.is_const]
    assert len(fixed) == 4
    assert len(found) == 7
    assert bench.read(p4runtime_pb2.TableEntry(priority=2)) == [two]


def test_entries_of_the_program_can_be_read_and_not_changed(bench: Bench) -> None:
    entry = bench.entry("const_table", {1: 0xC1}, ("mark_and_forward", 0x11, 1), is_const=True)
    assert entry in bench.read(bench.entry("const_table"))
    assert bench.one(TABLES, c=0xC2) == (2, fields(TABLES, c=0xC2, mark=0x22))
    entry.is_const = False
    for kind in (INSERT, MODIFY, DELETE):
        assert bench.refused(kind, entry)[0] == "PERMISSION_DENIED"
    initial = bench.read(bench.entry("initial_table"))
    assert [len(each.match) for each in initial] == [1, 1]
    assert initial[0].priority > initial[1].priority
    new = bench.entry("initial_table", {}, ("NoAction",), priority=1)
    assert bench.refused(INSERT, new)[0] == "PERMISSION_DENIED"


def test_a_full_table_is_exhausted(bench: Bench) -> None:
    entries = [bench.entry("range_table", {1: ("range", n, n)}, ("forward", 1), priority=1) for n in range(5)]
    bench.write(INSERT, *entries[:4])
    assert bench.refused(INSERT, entries[4])[0] == "RESOURCE_EXHAUSTED"
    bench.write(DELETE, entries[0])
    bench.write(INSERT, entries[4])


def test_deleting_looks_at_nothing_but_the_key(bench: Bench) -> None:
    bench.write(INSERT, bench.entry("exact_table", {1: 1, 2: 2}, ("drop",)))
    nonsense = bench.entry("exact_table", {1: 1, 2: 2}, metadata=b"x")
    nonsense.action.action.action_id = 12345
    nonsense.counter_data.packet_count = -1
    bench.write(DELETE, nonsense)
    assert bench.read(bench.entry("exact_table")) == []


KEY = {1: 1, 2: 2}
TERNARY = {1: ("ternary", 1, 1), 2: 1}

REFUSED: dict[str, Callable[[Bench], tuple[Any, Any, str]]] = {
    "unknown table": lambda b: (INSERT, p4runtime_pb2.TableEntry(table_id=1), "INVALID_ARGUMENT"),
    "missing exact field": lambda b: (INSERT, b.entry("exact_table", {1: 1}, ("drop",)), "INVALID_ARGUMENT"),
    "unknown field": lambda b: (INSERT, b.entry("exact_table", {**KEY, 3: 1}, ("drop",)), "INVALID_ARGUMENT"),
    "wrong kind of match": lambda b: (
        INSERT,
        b.entry("exact_table", {1: ("ternary", 1, 1), 2: 2}, ("drop",)),
        "INVALID_ARGUMENT",
    ),
    "value too wide": lambda b: (
        INSERT,
        b.entry("exact_table", {1: 1, 2: 1 << 16}, ("drop",)),
        "OUT_OF_RANGE",
    ),
    "parameter too wide": lambda b: (
        INSERT,
        b.entry("exact_table", KEY, ("mark_and_forward", 1, 512)),
        "OUT_OF_RANGE",
    ),
    "missing parameter": lambda b: (
        INSERT,
        b.entry("exact_table", KEY, ("mark_and_forward", 1)),
        "INVALID_ARGUMENT",
    ),
    "too many parameters": lambda b: (INSERT, b.entry("exact_table", KEY, ("drop", 1)), "INVALID_ARGUMENT"),
    "no action": lambda b: (INSERT, b.entry("exact_table", KEY), "INVALID_ARGUMENT"),
    "action of another table": lambda b: (
        INSERT,
        b.entry("exact_table", KEY, ("forward", 1)),
        "INVALID_ARGUMENT",
    ),
    "default-only action in an entry": lambda b: (
        INSERT,
        b.entry("exact_table", KEY, ("NoAction",)),
        "PERMISSION_DENIED",
    ),
    "table-only action as default": lambda b: (
        MODIFY,
        b.entry("ternary_table", action=("forward", 1), is_default_action=True),
        "PERMISSION_DENIED",
    ),
    "constant default": lambda b: (
        MODIFY,
        b.entry("ternary_table", action=("drop",), is_default_action=True),
        "PERMISSION_DENIED",
    ),
    "insert a default": lambda b: (
        INSERT,
        b.entry("lpm_table", action=("drop",), is_default_action=True),
        "INVALID_ARGUMENT",
    ),
    "delete a default": lambda b: (DELETE, b.entry("lpm_table", is_default_action=True), "INVALID_ARGUMENT"),
    "default with a key": lambda b: (
        MODIFY,
        b.entry("lpm_table", {1: ("lpm", 0, 1)}, ("drop",), is_default_action=True),
        "INVALID_ARGUMENT",
    ),
    "priority where none is needed": lambda b: (
        INSERT,
        b.entry("exact_table", KEY, ("drop",), priority=1),
        "INVALID_ARGUMENT",
    ),
    "no priority where one is needed": lambda b: (
        INSERT,
        b.entry("ternary_table", TERNARY, ("drop",)),
        "INVALID_ARGUMENT",
    ),
    "ternary without mask": lambda b: (
        INSERT,
        b.entry("ternary_table", {1: ("ternary", 0, 0), 2: 1}, ("drop",), priority=1),
        "INVALID_ARGUMENT",
    ),
    "ternary value outside its mask": lambda b: (
        INSERT,
        b.entry("ternary_table", {1: ("ternary", 3, 1), 2: 1}, ("drop",), priority=1),
        "INVALID_ARGUMENT",
    ),
    "prefix of length 0": lambda b: (
        INSERT,
        b.entry("lpm_table", {1: ("lpm", 0, 0)}, ("drop",)),
        "INVALID_ARGUMENT",
    ),
    "prefix too long": lambda b: (
        INSERT,
        b.entry("lpm_table", {1: ("lpm", 0, 33)}, ("drop",)),
        "INVALID_ARGUMENT",
    ),
    "bits behind the prefix": lambda b: (
        INSERT,
        b.entry("lpm_table", {1: ("lpm", 1, 8)}, ("drop",)),
        "INVALID_ARGUMENT",
    ),
    "empty range": lambda b: (
        INSERT,
        b.entry("range_table", {1: ("range", 2, 1)}, ("forward", 1), priority=1),
        "INVALID_ARGUMENT",
    ),
    "range over everything": lambda b: (
        INSERT,
        b.entry("range_table", {1: ("range", 0, 0xFFFF)}, ("forward", 1), priority=1),
        "INVALID_ARGUMENT",
    ),
    "is_const": lambda b: (INSERT, b.entry("exact_table", KEY, ("drop",), is_const=True), "INVALID_ARGUMENT"),
    "idle time-out where there is none": lambda b: (
        INSERT,
        b.entry("exact_table", KEY, ("drop",), idle_timeout_ns=1),
        "INVALID_ARGUMENT",
    ),
    "negative idle time-out": lambda b: (
        INSERT,
        b.entry("idle_table", {1: 1}, ("forward", 1), idle_timeout_ns=-1),
        "INVALID_ARGUMENT",
    ),
    "counter where there is none": lambda b: (
        INSERT,
        b.entry("lpm_table", {}, ("drop",), counter_data=p4runtime_pb2.CounterData()),
        "INVALID_ARGUMENT",
    ),
    "meter where there is none": lambda b: (
        INSERT,
        b.entry("lpm_table", {}, ("drop",), meter_config=p4runtime_pb2.MeterConfig()),
        "INVALID_ARGUMENT",
    ),
    "modify what is not there": lambda b: (MODIFY, b.entry("exact_table", KEY, ("drop",)), "NOT_FOUND"),
    "delete what is not there": lambda b: (DELETE, b.entry("exact_table", KEY), "NOT_FOUND"),
    "no type of update": lambda b: (UNSPECIFIED, b.entry("exact_table", KEY, ("drop",)), "INVALID_ARGUMENT"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_entries_are_refused_and_change_nothing(shared: Bench, name: str) -> None:
    kind, entry, code = REFUSED[name](shared)
    before = shared.read(p4runtime_pb2.TableEntry())
    assert shared.refused(kind, entry)[0] == code
    assert shared.read(p4runtime_pb2.TableEntry()) == before


def test_entries_of_the_wrong_form_for_their_table_are_refused(bench: Bench) -> None:
    direct = bench.entry("exact_table", KEY)
    direct.action.action_profile_member_id = 1
    assert bench.refused(INSERT, direct)[0] == "INVALID_ARGUMENT"
    indirect = bench.entry("profile_table", {1: 1}, ("drop",))
    assert bench.refused(INSERT, indirect)[0] == "INVALID_ARGUMENT"
    default = bench.entry("profile_table", action=("NoAction",), is_default_action=True)
    assert bench.refused(MODIFY, default)[0] == "INVALID_ARGUMENT"
    assert bench.one(PROFILE, b=1) == (0, fields(PROFILE, b=1))


def test_reading_what_cannot_be_is_refused(bench: Bench) -> None:
    assert bench.read_refused(p4runtime_pb2.TableEntry(table_id=1)) == "INVALID_ARGUMENT"
    assert bench.read_refused(bench.entry("exact_table", {1: 1})) == "INVALID_ARGUMENT"
    assert bench.read_refused(p4runtime_pb2.Entity()) == "INVALID_ARGUMENT"


def test_modify_without_action_keeps_it(bench: Bench) -> None:
    entry = bench.entry("exact_table", KEY, ("count_and_forward", 4), metadata=b"old")
    bench.write(INSERT, entry)
    bench.write(MODIFY, bench.entry("exact_table", KEY, metadata=b"new"))
    entry.metadata = b"new"
    assert bench.read(entry) == [entry]
    assert bench.one(TABLES, a=1, b=2)[0] == 4


def test_many_entities_come_in_several_messages(bench: Bench) -> None:
    ids = range(64)
    bench.write(INSERT, *(bench.entry("exact_table", {1: n, 2: n}, ("drop",)) for n in ids))
    request = p4runtime_pb2.ReadRequest(device_id=1)
    for _ in range(40):
        request.entities.add().table_entry.table_id = bench.id("exact_table")
    responses = list(bench.stub.Read(request, timeout=DEADLINE_S))
    assert len(responses) == 3
    assert sum(len(each.entities) for each in responses) == 64 * 40
