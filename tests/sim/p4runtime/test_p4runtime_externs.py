"""Counters, meters, registers, value sets and action profiles over gRPC."""

from collections import Counter
from random import Random

import pytest
from p4.v1 import p4data_pb2, p4runtime_pb2
from p4runtime_client import DELETE, INSERT, METER, MODIFY, PROFILE, STATE, TABLES, VALUE_SET, fields, number

CounterData = p4runtime_pb2.CounterData
GREEN, YELLOW, RED = 0, 1, 2


def counter(bench, alias, index=None, **data):
    entry = p4runtime_pb2.CounterEntry(counter_id=bench.id(alias))
    if index is not None:
        entry.index.index = index
    if data:
        entry.data.CopyFrom(CounterData(**data))
    return entry


def test_counters_count_what_they_say(bench):
    for _ in range(3):
        bench.one(STATE, c=5, payload=b"x" * 10)
    size = 15 + 10
    assert bench.read(counter(bench, "packets_seen", 5))[0].data == CounterData(packet_count=3)
    assert bench.read(counter(bench, "bytes_seen", 5))[0].data == CounterData(byte_count=3 * size)
    both = bench.read(counter(bench, "both_seen"))
    assert [each.index.index for each in both] == list(range(16))
    assert both[5].data == CounterData(packet_count=3, byte_count=3 * size)
    assert both[4].data == CounterData()
    assert len(bench.read(p4runtime_pb2.CounterEntry())) == 48


def test_counters_can_be_set_one_or_all(bench):
    bench.write(MODIFY, counter(bench, "both_seen", 3, packet_count=1 << 40, byte_count=7))
    bench.write(MODIFY, counter(bench, "packets_seen", packet_count=9))
    bench.write(MODIFY, counter(bench, "bytes_seen", 3))
    assert bench.read(counter(bench, "both_seen", 3))[0].data == CounterData(
        packet_count=1 << 40, byte_count=7
    )
    assert {each.data.packet_count for each in bench.read(counter(bench, "packets_seen"))} == {9}
    bench.one(STATE, c=3)
    assert bench.read(counter(bench, "packets_seen", 3))[0].data.packet_count == 10


def test_wrong_counters_are_refused(bench):
    assert bench.refused(MODIFY, counter(bench, "both_seen", -1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(MODIFY, counter(bench, "both_seen", 16))[0] == "OUT_OF_RANGE"
    assert bench.refused(MODIFY, counter(bench, "both_seen", 1, packet_count=-1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, counter(bench, "both_seen", 1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(DELETE, counter(bench, "both_seen", 1))[0] == "INVALID_ARGUMENT"
    direct = p4runtime_pb2.CounterEntry(counter_id=bench.id("exact_hits"))
    assert bench.refused(MODIFY, direct)[0] == "INVALID_ARGUMENT"
    assert bench.read_refused(counter(bench, "both_seen", 16)) == "OUT_OF_RANGE"
    assert bench.read_refused(p4runtime_pb2.CounterEntry(counter_id=1)) == "INVALID_ARGUMENT"


def test_direct_counters_live_with_their_entries(bench):
    entry = bench.entry(
        "exact_table",
        {1: 1, 2: 2},
        ("count_and_forward", 4),
        counter_data=CounterData(packet_count=100, byte_count=5),
    )
    other = bench.entry("exact_table", {1: 1, 2: 3}, ("count_and_forward", 4))
    bench.write(INSERT, entry, other)
    bench.one(TABLES, a=1, b=2)
    key = bench.entry("exact_table", {1: 1, 2: 2})
    (read,) = bench.read(p4runtime_pb2.DirectCounterEntry(table_entry=key))
    assert read.table_entry == key
    assert read.data == CounterData(packet_count=101, byte_count=20)
    asked = bench.entry("exact_table", {1: 1, 2: 2}, counter_data=CounterData())
    assert bench.read(asked)[0].counter_data == CounterData(packet_count=101, byte_count=20)
    assert not bench.read(key)[0].HasField("counter_data")

    bench.write(MODIFY, bench.entry("exact_table", {1: 1, 2: 2}, ("count_and_forward", 5)))
    assert bench.read(asked)[0].counter_data.packet_count == 101
    bench.write(MODIFY, p4runtime_pb2.DirectCounterEntry(table_entry=key, data=CounterData(packet_count=7)))
    assert bench.read(asked)[0].counter_data == CounterData(packet_count=7)

    table = bench.entry("exact_table")
    found = bench.read(p4runtime_pb2.DirectCounterEntry(table_entry=table))
    assert [each.data.packet_count for each in found] == [7, 0]
    assert len(bench.read(p4runtime_pb2.DirectCounterEntry(table_entry=p4runtime_pb2.TableEntry()))) == 2


def test_wrong_direct_counters_are_refused(bench):
    def direct(table, match=None, **rest):
        return p4runtime_pb2.DirectCounterEntry(
            table_entry=bench.entry(table, match, **rest), data=CounterData()
        )

    assert bench.refused(MODIFY, direct("exact_table", {1: 1, 2: 2}))[0] == "NOT_FOUND"
    assert bench.refused(MODIFY, direct("lpm_table", {1: ("lpm", 0, 1)}))[0] == "INVALID_ARGUMENT"
    assert bench.refused(MODIFY, p4runtime_pb2.DirectCounterEntry())[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, direct("exact_table", {1: 1, 2: 2}))[0] == "INVALID_ARGUMENT"
    assert bench.refused(MODIFY, direct("exact_table", is_default_action=True))[0] == "UNIMPLEMENTED"
    assert bench.read_refused(direct("exact_table", {1: 1, 2: 2})) == "NOT_FOUND"
    assert bench.read_refused(direct("lpm_table")) == "INVALID_ARGUMENT"


def meter(bench, alias, index=None, *rates):
    entry = p4runtime_pb2.MeterEntry(meter_id=bench.id(alias))
    if index is not None:
        entry.index.index = index
    if rates:
        cir, cburst, pir, pburst = rates
        entry.config.CopyFrom(p4runtime_pb2.MeterConfig(cir=cir, cburst=cburst, pir=pir, pburst=pburst))
    return entry


def colors(bench, count, **given):
    return [bench.one(METER, **given)[1]["mark"] & 15 for _ in range(count)]


def test_meters_color_and_read_back_what_was_written(bench):
    assert colors(bench, 10, c=2) == [GREEN] * 10
    config = meter(bench, "packet_meter", 2, 1, 3, 1, 5)
    bench.write(MODIFY, config)
    assert bench.read(meter(bench, "packet_meter", 2)) == [config]
    assert colors(bench, 8, c=2) == [GREEN] * 3 + [YELLOW] * 2 + [RED] * 3
    assert colors(bench, 5, c=3) == [GREEN] * 5
    assert [each.HasField("config") for each in bench.read(meter(bench, "packet_meter"))] == [
        index == 2 for index in range(8)
    ]
    bench.write(MODIFY, meter(bench, "packet_meter", 2))
    assert colors(bench, 10, c=2) == [GREEN] * 10
    assert bench.read(meter(bench, "packet_meter", 2)) == [meter(bench, "packet_meter", 2)]


def test_all_cells_of_a_meter_at_once_and_rates_per_byte(bench):
    bench.write(MODIFY, meter(bench, "byte_meter", None, 0, 40, 0, 70))
    assert len(bench.read(p4runtime_pb2.MeterEntry())) == 16
    marks = [bench.one(METER, c=1, payload=b"x" * 5)[1]["mark"] >> 4 for _ in range(5)]
    assert marks == [GREEN, GREEN, YELLOW, RED, RED]


def test_wrong_meters_are_refused(bench):
    assert bench.refused(MODIFY, meter(bench, "packet_meter", 8))[0] == "OUT_OF_RANGE"
    assert bench.refused(MODIFY, meter(bench, "packet_meter", -1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(MODIFY, meter(bench, "packet_meter", 1, -2, 1, 1, 1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(MODIFY, meter(bench, "packet_meter", 1, 5, 1, 4, 1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(MODIFY, meter(bench, "packet_meter", 1, 5, 1 << 32, 6, 1))[0] == "UNIMPLEMENTED"
    assert bench.refused(INSERT, meter(bench, "packet_meter", 1))[0] == "INVALID_ARGUMENT"
    excess = meter(bench, "packet_meter", 1, 1, 1, 1, 1)
    excess.config.eburst = 1
    assert bench.refused(MODIFY, excess)[0] == "INVALID_ARGUMENT"
    colored = meter(bench, "packet_meter", 1, 1, 1, 1, 1)
    colored.counter_data.green.packet_count = 0
    assert bench.refused(MODIFY, colored)[0] == "UNIMPLEMENTED"
    assert (
        bench.read_refused(p4runtime_pb2.MeterEntry(meter_id=bench.id("ternary_meter"))) == "INVALID_ARGUMENT"
    )


def test_direct_meters_live_with_their_entries(bench):
    config = p4runtime_pb2.MeterConfig(cir=1, cburst=2, pir=1, pburst=3)
    key = {1: ("ternary", 1, 1), 2: 5}
    entry = bench.entry("ternary_table", key, ("metered_forward", 4), priority=1, meter_config=config)
    bench.write(INSERT, entry)
    marks = [bench.one(TABLES, a=1, c=5)[1]["mark"] for _ in range(4)]
    assert marks == [GREEN, GREEN, YELLOW, RED]
    where = bench.entry("ternary_table", key, priority=1)
    (read,) = bench.read(p4runtime_pb2.DirectMeterEntry(table_entry=where))
    assert (read.table_entry, read.config) == (where, config)
    assert (
        bench.read(bench.entry("ternary_table", key, priority=1, meter_config=config))[0].meter_config
        == config
    )
    assert not bench.read(where)[0].HasField("meter_config")

    bench.write(MODIFY, p4runtime_pb2.DirectMeterEntry(table_entry=where))
    assert [bench.one(TABLES, a=1, c=5)[1]["mark"] for _ in range(4)] == [GREEN] * 4
    bench.write(MODIFY, entry)
    assert (
        bench.read(p4runtime_pb2.DirectMeterEntry(table_entry=bench.entry("ternary_table")))[0].config
        == config
    )
    bench.write(MODIFY, bench.entry("ternary_table", key, ("metered_forward", 4), priority=1))
    (read,) = bench.read(p4runtime_pb2.DirectMeterEntry(table_entry=where))
    assert not read.HasField("config")


def register(bench, alias, index=None, value=None):
    entry = p4runtime_pb2.RegisterEntry(register_id=bench.id(alias))
    if index is not None:
        entry.index.index = index
    if value is not None:
        entry.data.bitstring = number(value)
    return entry


def test_registers_can_be_read_and_written(bench):
    bench.one(STATE, a=1000, c=7, d=0x0200_0000_0001, mark=200)
    bench.one(STATE, a=23, c=7, d=0x0200_0000_0002, mark=201)
    assert bench.read(register(bench, "words", 7)) == [register(bench, "words", 7, 1023)]
    assert bench.read(register(bench, "addresses", 7)) == [register(bench, "addresses", 7, 0x0200_0000_0002)]
    assert bench.read(register(bench, "octets", 7)) == [register(bench, "octets", 7, 201)]
    bench.write(MODIFY, register(bench, "words", 7, 0xFFFFFFFF))
    assert bench.one(STATE, a=2, c=7)[1]["a"] == 0xFFFFFFFF
    assert bench.read(register(bench, "words", 7)) == [register(bench, "words", 7, 1)]
    bench.write(MODIFY, register(bench, "words", None, 5))
    cells = bench.read(register(bench, "words"))
    assert cells == [register(bench, "words", index, 5) for index in range(64)]
    assert len(bench.read(p4runtime_pb2.RegisterEntry())) == 64 + 8 + 8


def test_wrong_registers_are_refused(bench):
    assert bench.refused(MODIFY, register(bench, "octets", 7, 256))[0] == "OUT_OF_RANGE"
    assert bench.refused(MODIFY, register(bench, "octets", 8, 1))[0] == "OUT_OF_RANGE"
    assert bench.refused(MODIFY, register(bench, "octets", -1, 1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(MODIFY, register(bench, "octets", 1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, register(bench, "octets", 1, 1))[0] == "INVALID_ARGUMENT"
    tuples = register(bench, "octets", 1)
    tuples.data.CopyFrom(p4data_pb2.P4Data(tuple=p4data_pb2.P4StructLike()))
    assert bench.refused(MODIFY, tuples)[0] == "INVALID_ARGUMENT"


def value_set(bench, *values):
    entry = p4runtime_pb2.ValueSetEntry(value_set_id=bench.id("special_a"))
    for value in values:
        entry.members.add().match.add(field_id=1).exact.value = number(value)
    return entry


def test_value_sets(bench):
    assert bench.one(VALUE_SET, a=17)[1]["mark"] == 0
    bench.write(MODIFY, value_set(bench, 17, 0xFFFFFFFF))
    assert [bench.one(VALUE_SET, a=a)[1]["mark"] for a in (17, 18, 0xFFFFFFFF)] == [1, 0, 1]
    assert bench.read(p4runtime_pb2.ValueSetEntry()) == [value_set(bench, 17, 0xFFFFFFFF)]
    bench.write(MODIFY, value_set(bench))
    assert bench.one(VALUE_SET, a=17)[1]["mark"] == 0
    assert bench.refused(MODIFY, value_set(bench, 1, 2, 3, 4, 5))[0] == "RESOURCE_EXHAUSTED"
    assert bench.refused(MODIFY, value_set(bench, 1, 1))[0] == "ALREADY_EXISTS"
    assert bench.refused(INSERT, value_set(bench, 1))[0] == "INVALID_ARGUMENT"


# Action profiles


def member(bench, profile, identifier, *action):
    entry = p4runtime_pb2.ActionProfileMember(action_profile_id=bench.id(profile), member_id=identifier)
    if action:
        entry.action.CopyFrom(bench.action(*action))
    return entry


def group(bench, identifier, *members, profile="spread", max_size=0):
    entry = p4runtime_pb2.ActionProfileGroup(
        action_profile_id=bench.id(profile), group_id=identifier, max_size=max_size
    )
    for member_id, weight in members:
        entry.members.add(member_id=member_id, weight=weight)
    return entry


def pointing(bench, table, b, **target):
    entry = bench.entry(table, {1: b})
    for name, value in target.items():
        setattr(entry.action, name, value)
    return entry


def test_members(bench):
    bench.write(
        INSERT, member(bench, "profile", 10, "forward", 1), member(bench, "profile", 20, "forward", 2)
    )
    entry = pointing(bench, "profile_table", 7, action_profile_member_id=10)
    bench.write(INSERT, entry)
    assert bench.one(PROFILE, b=7)[0] == 1
    assert bench.read(entry) == [entry]
    bench.write(MODIFY, member(bench, "profile", 10, "mark_and_forward", 9, 3))
    assert bench.one(PROFILE, b=7) == (3, fields(PROFILE, b=7, mark=9))
    assert bench.read(member(bench, "profile", 10)) == [
        member(bench, "profile", 10, "mark_and_forward", 9, 3)
    ]
    assert len(bench.read(p4runtime_pb2.ActionProfileMember())) == 2

    assert bench.refused(DELETE, member(bench, "profile", 10))[0] == "FAILED_PRECONDITION"
    bench.write(MODIFY, pointing(bench, "profile_table", 7, action_profile_member_id=20))
    assert bench.one(PROFILE, b=7)[0] == 2
    bench.write(DELETE, member(bench, "profile", 10))
    bench.write(DELETE, bench.entry("profile_table", {1: 7}))
    bench.write(DELETE, member(bench, "profile", 20))
    assert bench.read(p4runtime_pb2.ActionProfileMember()) == []


def test_wrong_members_are_refused(bench):
    bench.write(INSERT, member(bench, "profile", 1, "forward", 1))
    assert bench.refused(INSERT, member(bench, "profile", 1, "forward", 1))[0] == "ALREADY_EXISTS"
    assert bench.refused(INSERT, member(bench, "profile", 0, "forward", 1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, member(bench, "profile", 2))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, member(bench, "profile", 2, "drop"))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, member(bench, "profile", 2, "forward", 512))[0] == "OUT_OF_RANGE"
    assert bench.refused(MODIFY, member(bench, "profile", 2, "forward", 1))[0] == "NOT_FOUND"
    assert bench.refused(DELETE, member(bench, "profile", 2))[0] == "NOT_FOUND"
    unknown = p4runtime_pb2.ActionProfileMember(action_profile_id=1, member_id=1)
    assert bench.refused(INSERT, unknown)[0] == "INVALID_ARGUMENT"
    missing = pointing(bench, "profile_table", 7, action_profile_member_id=2)
    assert bench.refused(INSERT, missing)[0] == "NOT_FOUND"
    bench.write(INSERT, *(member(bench, "profile", n, "forward", 1) for n in range(2, 17)))
    assert bench.refused(INSERT, member(bench, "profile", 99, "forward", 1))[0] == "RESOURCE_EXHAUSTED"


def ports_used(bench, b, count=200):
    """The ports by which packets leave. CRC is linear, so only values far apart reach every member."""
    random = Random(1)
    return Counter(bench.one(PROFILE, b=b, d=random.getrandbits(48))[0] for _ in range(count))


def test_groups_spread_over_their_members(bench):
    bench.write(INSERT, *(member(bench, "spread", n, "forward", n) for n in (1, 2, 3)))
    bench.write(INSERT, group(bench, 5, (1, 1), (2, 3), max_size=4))
    entry = pointing(bench, "selector_table", 7, action_profile_group_id=5)
    bench.write(INSERT, entry)
    assert set(ports_used(bench, 7)) == {1, 2}
    assert bench.read(entry) == [entry]
    assert bench.read(group(bench, 5)) == [group(bench, 5, (1, 1), (2, 3), max_size=4)]
    bench.write(MODIFY, group(bench, 5, (3, 2), (1, 2)))
    assert set(ports_used(bench, 7)) == {1, 3}
    assert bench.read(p4runtime_pb2.ActionProfileGroup()) == [group(bench, 5, (3, 2), (1, 2), max_size=4)]
    assert bench.refused(DELETE, group(bench, 5))[0] == "FAILED_PRECONDITION"
    assert bench.refused(DELETE, member(bench, "spread", 3))[0] == "FAILED_PRECONDITION"
    bench.write(DELETE, member(bench, "spread", 2))
    bench.write(MODIFY, pointing(bench, "selector_table", 7, action_profile_member_id=3))
    assert set(ports_used(bench, 7)) == {3}
    bench.write(DELETE, group(bench, 5))


def test_weights_are_shares(bench):
    bench.write(INSERT, *(member(bench, "spread", n, "forward", n) for n in (1, 2)))
    bench.write(INSERT, group(bench, 5, (1, 1), (2, 7)))
    bench.write(INSERT, pointing(bench, "selector_table", 7, action_profile_group_id=5))
    used = ports_used(bench, 7, 800)
    assert 60 <= used[1] <= 140
    assert used[1] + used[2] == 800


def test_wrong_groups_are_refused(bench):
    bench.write(INSERT, *(member(bench, "spread", n, "forward", n) for n in (1, 2)))
    bench.write(INSERT, group(bench, 5, (1, 1), max_size=3))
    assert bench.refused(INSERT, group(bench, 5))[0] == "ALREADY_EXISTS"
    assert bench.refused(INSERT, group(bench, 0))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, group(bench, 6, (9, 1)))[0] == "NOT_FOUND"
    assert bench.refused(INSERT, group(bench, 6, (1, 0)))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, group(bench, 6, (1, 1), (1, 1)))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, group(bench, 6, (1, 9)))[0] == "RESOURCE_EXHAUSTED"
    assert bench.refused(INSERT, group(bench, 6, max_size=9))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, group(bench, 6, max_size=-1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, group(bench, 6, profile="profile"))[0] == "INVALID_ARGUMENT"
    assert bench.refused(MODIFY, group(bench, 5, (1, 2), (2, 2)))[0] == "RESOURCE_EXHAUSTED"
    assert bench.refused(MODIFY, group(bench, 5, max_size=4))[0] == "INVALID_ARGUMENT"
    assert bench.refused(MODIFY, group(bench, 6))[0] == "NOT_FOUND"
    assert bench.refused(DELETE, group(bench, 6))[0] == "NOT_FOUND"
    missing = pointing(bench, "selector_table", 7, action_profile_group_id=6)
    assert bench.refused(INSERT, missing)[0] == "NOT_FOUND"


def one_shot(bench, b, *actions, **watch):
    entry = bench.entry("one_shot_table", {1: b})
    for weight, *action in actions:
        each = entry.action.action_profile_action_set.action_profile_actions.add(weight=weight, **watch)
        each.action.CopyFrom(bench.action(*action))
    return entry


def test_sets_of_actions(bench):
    entry = one_shot(bench, 7, (1, "forward", 1), (2, "forward", 2), watch_port=b"\x01")
    bench.write(INSERT, entry)
    assert set(ports_used(bench, 7)) == {1, 2}
    assert bench.read(entry) == [entry]
    entry = one_shot(bench, 7, (1, "forward", 3), (1, "forward", 3))
    bench.write(MODIFY, entry)
    assert set(ports_used(bench, 7, 20)) == {3}
    assert bench.read(bench.entry("one_shot_table")) == [entry]
    # What the switch made of it is nothing a controller put there.
    assert bench.read(p4runtime_pb2.ActionProfileMember()) == []
    assert bench.read(p4runtime_pb2.ActionProfileGroup()) == []
    bench.write(DELETE, entry)
    assert set(ports_used(bench, 7, 20)) == {0}


def test_sets_are_cleaned_up(bench):
    """The profile holds 32 members; if any were left behind it would soon be full."""
    for round_ in range(50):
        entry = one_shot(bench, round_ + 1, *((1, "forward", n) for n in range(1, 9)))
        bench.write(INSERT, entry)
        bench.write(MODIFY, entry)
        assert bench.refused(INSERT, entry)[0] == "ALREADY_EXISTS"
        bench.write(DELETE, entry)


def test_wrong_sets_are_refused(bench):
    assert bench.refused(INSERT, one_shot(bench, 7, (9, "forward", 1)))[0] == "RESOURCE_EXHAUSTED"
    assert bench.refused(INSERT, one_shot(bench, 7, (0, "forward", 1)))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, one_shot(bench, 7, (1, "drop")))[0] == "INVALID_ARGUMENT"
    empty = bench.entry("one_shot_table", {1: 7})
    empty.action.action_profile_action_set.SetInParent()
    assert bench.refused(INSERT, empty)[0] == "UNIMPLEMENTED"
    plain = bench.entry("profile_table", {1: 7})
    plain.action.CopyFrom(one_shot(bench, 7, (1, "forward", 1)).action)
    assert bench.refused(INSERT, plain)[0] == "INVALID_ARGUMENT"


def test_the_two_ways_to_fill_a_selector_do_not_mix(bench):
    entry = one_shot(bench, 7, (1, "forward", 1))
    bench.write(INSERT, entry)
    manual = member(bench, "one_shot_spread", 1, "forward", 1)
    assert bench.refused(INSERT, manual)[0] == "INVALID_ARGUMENT"
    bench.write(DELETE, entry)
    bench.write(INSERT, manual)
    assert bench.refused(INSERT, entry)[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("kind", [INSERT, MODIFY, DELETE])
def test_externs_that_v1model_does_not_have_are_unimplemented(bench, kind):
    assert bench.refused(kind, p4runtime_pb2.ExternEntry())[0] == "UNIMPLEMENTED"
    assert bench.read_refused(p4runtime_pb2.ExternEntry()) == "UNIMPLEMENTED"
