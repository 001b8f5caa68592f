"""Counters, meters, registers and value sets over gRPC."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from netsum_common.p4rt import p4data_pb2, p4runtime_pb2
from sim.switch.p4runtime import service
from sim.switch.p4runtime.arrays import Registers
from tests.sim.p4runtime.p4runtime_client import (
    DEADLINE_S,
    DELETE,
    DEVICE,
    INSERT,
    METER,
    MODIFY,
    STATE,
    TABLES,
    VALUE_SET,
    Bench,
    entity_of,
    number,
)

CounterData = p4runtime_pb2.CounterData
GREEN, YELLOW, RED = 0, 1, 2


def counter(bench: Bench, alias: str, index: int | None = None, **data: int) -> p4runtime_pb2.CounterEntry:
    entry = p4runtime_pb2.CounterEntry(counter_id=bench.id(alias))
    if index is not None:
        entry.index.index = index
    if data:
        entry.data.CopyFrom(CounterData(**data))
    return entry


def test_counters_count_what_they_say(bench: Bench) -> None:
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


def test_counters_can_be_set_one_or_all(bench: Bench) -> None:
    bench.write(MODIFY, counter(bench, "both_seen", 3, packet_count=1 << 40, byte_count=7))
    bench.write(MODIFY, counter(bench, "packets_seen", packet_count=9))
    bench.write(MODIFY, counter(bench, "bytes_seen", 3))
    assert bench.read(counter(bench, "both_seen", 3))[0].data == CounterData(
        packet_count=1 << 40, byte_count=7
    )
    assert {each.data.packet_count for each in bench.read(counter(bench, "packets_seen"))} == {9}
    bench.one(STATE, c=3)
    assert bench.read(counter(bench, "packets_seen", 3))[0].data.packet_count == 10


def test_wrong_counters_are_refused(bench: Bench) -> None:
    assert bench.refused(MODIFY, counter(bench, "both_seen", -1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(MODIFY, counter(bench, "both_seen", 16))[0] == "OUT_OF_RANGE"
    assert bench.refused(MODIFY, counter(bench, "both_seen", 1, packet_count=-1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, counter(bench, "both_seen", 1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(DELETE, counter(bench, "both_seen", 1))[0] == "INVALID_ARGUMENT"
    direct = p4runtime_pb2.CounterEntry(counter_id=bench.id("exact_hits"))
    assert bench.refused(MODIFY, direct)[0] == "INVALID_ARGUMENT"
    assert bench.read_refused(counter(bench, "both_seen", 16)) == "OUT_OF_RANGE"
    assert bench.read_refused(p4runtime_pb2.CounterEntry(counter_id=1)) == "INVALID_ARGUMENT"


def test_direct_counters_live_with_their_entries(bench: Bench) -> None:
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


def test_wrong_direct_counters_are_refused(bench: Bench) -> None:
    def direct(
        table: str, match: Mapping[int, Any] | None = None, **rest: Any
    ) -> p4runtime_pb2.DirectCounterEntry:
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


def meter(bench: Bench, alias: str, index: int | None = None, *rates: int) -> p4runtime_pb2.MeterEntry:
    entry = p4runtime_pb2.MeterEntry(meter_id=bench.id(alias))
    if index is not None:
        entry.index.index = index
    if rates:
        cir, cburst, pir, pburst = rates
        entry.config.CopyFrom(p4runtime_pb2.MeterConfig(cir=cir, cburst=cburst, pir=pir, pburst=pburst))
    return entry


def colors(bench: Bench, count: int, **given: int) -> list[int]:
    return [bench.one(METER, **given)[1]["mark"] & 15 for _ in range(count)]


def test_meters_color_and_read_back_what_was_written(bench: Bench) -> None:
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


def test_all_cells_of_a_meter_at_once_and_rates_per_byte(bench: Bench) -> None:
    bench.write(MODIFY, meter(bench, "byte_meter", None, 0, 40, 0, 70))
    assert len(bench.read(p4runtime_pb2.MeterEntry())) == 16
    marks = [bench.one(METER, c=1, payload=b"x" * 5)[1]["mark"] >> 4 for _ in range(5)]
    assert marks == [GREEN, GREEN, YELLOW, RED, RED]


def test_wrong_meters_are_refused(bench: Bench) -> None:
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


def test_direct_meters_live_with_their_entries(bench: Bench) -> None:
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


def register(
    bench: Bench, alias: str, index: int | None = None, value: int | None = None
) -> p4runtime_pb2.RegisterEntry:
    entry = p4runtime_pb2.RegisterEntry(register_id=bench.id(alias))
    if index is not None:
        entry.index.index = index
    if value is not None:
        entry.data.bitstring = number(value)
    return entry


def test_registers_can_be_read_and_written(bench: Bench) -> None:
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


def test_registers_are_streamed_as_they_were_when_the_read_began(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = threading.Event()
    make = Registers._message

    def message(register: Any, index: int, cell: Any) -> Any:
        if index == 3:
            assert written.wait(DEADLINE_S)
        return make(register, index, cell)

    monkeypatch.setattr(Registers, "_message", staticmethod(message))
    monkeypatch.setattr(service, "ENTITIES_PER_RESPONSE", 2)
    bench.write(MODIFY, register(bench, "words", None, 5))
    request = p4runtime_pb2.ReadRequest(device_id=DEVICE, entities=[entity_of(register(bench, "words"))])
    responses = bench.stub.Read(request, timeout=DEADLINE_S)
    read = [next(responses)]  # before the server has made the others
    bench.write(MODIFY, register(bench, "words", None, 6))
    written.set()
    read += responses
    assert [len(response.entities) for response in read] == [2] * 32
    cells = [entity.register_entry for response in read for entity in response.entities]
    assert cells == [register(bench, "words", index, 5) for index in range(64)]


def test_wrong_registers_are_refused(bench: Bench) -> None:
    assert bench.refused(MODIFY, register(bench, "octets", 7, 256))[0] == "OUT_OF_RANGE"
    assert bench.refused(MODIFY, register(bench, "octets", 8, 1))[0] == "OUT_OF_RANGE"
    assert bench.refused(MODIFY, register(bench, "octets", -1, 1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(MODIFY, register(bench, "octets", 1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, register(bench, "octets", 1, 1))[0] == "INVALID_ARGUMENT"
    tuples = register(bench, "octets", 1)
    tuples.data.CopyFrom(p4data_pb2.P4Data(tuple=p4data_pb2.P4StructLike()))
    assert bench.refused(MODIFY, tuples)[0] == "INVALID_ARGUMENT"


def value_set(bench: Bench, *values: int) -> p4runtime_pb2.ValueSetEntry:
    entry = p4runtime_pb2.ValueSetEntry(value_set_id=bench.id("special_a"))
    for value in values:
        entry.members.add().match.add(field_id=1).exact.value = number(value)
    return entry


def test_value_sets(bench: Bench) -> None:
    assert bench.one(VALUE_SET, a=17)[1]["mark"] == 0
    bench.write(MODIFY, value_set(bench, 17, 0xFFFFFFFF))
    assert [bench.one(VALUE_SET, a=a)[1]["mark"] for a in (17, 18, 0xFFFFFFFF)] == [1, 0, 1]
    assert bench.read(p4runtime_pb2.ValueSetEntry()) == [value_set(bench, 17, 0xFFFFFFFF)]
    bench.write(MODIFY, value_set(bench))
    assert bench.one(VALUE_SET, a=17)[1]["mark"] == 0
    assert bench.refused(MODIFY, value_set(bench, 1, 2, 3, 4, 5))[0] == "RESOURCE_EXHAUSTED"
    assert bench.refused(MODIFY, value_set(bench, 1, 1))[0] == "ALREADY_EXISTS"
    assert bench.refused(INSERT, value_set(bench, 1))[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("kind", [INSERT, MODIFY, DELETE])
def test_externs_that_v1model_does_not_have_are_unimplemented(bench: Bench, kind: Any) -> None:
    assert bench.refused(kind, p4runtime_pb2.ExternEntry())[0] == "UNIMPLEMENTED"
    assert bench.read_refused(p4runtime_pb2.ExternEntry()) == "UNIMPLEMENTED"
