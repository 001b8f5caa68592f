"""Packets to and from the controller: headers of any widths to metadata and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsum_common.p4rt import p4runtime_pb2
from sim.switch.p4runtime.catalog import Field
from sim.switch.p4runtime.packet_io import packet_in, packet_out
from sim.switch.p4runtime.status_errors import Code, P4RuntimeError

HEADER = (Field(1, "port", 9), Field(2, "reason", 7), Field(3, "length", 16))


def test_packet_in_takes_the_header_apart() -> None:
    packet = packet_in(bytes.fromhex("ff83 0102") + b"payload", HEADER)
    assert packet is not None
    assert packet.payload == b"payload"
    assert [(each.metadata_id, each.value) for each in packet.metadata] == [
        (1, b"\x01\xff"),
        (2, b"\x03"),
        (3, b"\x01\x02"),
    ]


def test_packet_in_without_a_header_is_all_payload() -> None:
    packet = packet_in(b"abc", None)
    assert packet is not None
    assert packet.payload == b"abc"
    assert not packet.metadata


def test_a_frame_shorter_than_the_header_is_no_packet_in() -> None:
    assert packet_in(b"abc", HEADER) is None


def test_packet_out_puts_the_header_in_front_in_any_order_and_fills_with_zeros() -> None:
    packet = p4runtime_pb2.PacketOut(payload=b"payload")
    packet.metadata.add(metadata_id=3, value=b"\x00\x01\x02")
    packet.metadata.add(metadata_id=1, value=b"\x01\xff")
    assert packet_out(packet, HEADER) == bytes.fromhex("ff80 0102") + b"payload"


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ([(9, b"\x00")], Code.INVALID_ARGUMENT),
        ([(1, b"\x00"), (1, b"\x00")], Code.INVALID_ARGUMENT),
        ([(1, b"\x02\x00")], Code.OUT_OF_RANGE),
    ],
)
def test_metadata_that_is_not_the_programs_is_refused(metadata: list[tuple[int, bytes]], code: Code) -> None:
    packet = p4runtime_pb2.PacketOut(payload=b"payload")
    for identifier, value in metadata:
        packet.metadata.add(metadata_id=identifier, value=value)
    with pytest.raises(P4RuntimeError) as caught:
        packet_out(packet, HEADER)
    assert caught.value.code is code


def test_metadata_without_a_header_is_refused() -> None:
    packet = p4runtime_pb2.PacketOut(payload=b"payload")
    assert packet_out(packet, None) == b"payload"
    packet.metadata.add(metadata_id=1, value=b"\x00")
    with pytest.raises(P4RuntimeError):
        packet_out(packet, None)


@given(st.data())
def test_what_goes_out_comes_in(data: st.DataObject) -> None:
    widths = data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=8))
    header = tuple(Field(number, f"f{number}", width) for number, width in enumerate(widths, 1))
    values = [data.draw(st.integers(0, (1 << width) - 1)) for width in widths]
    packet = p4runtime_pb2.PacketOut(payload=data.draw(st.binary(max_size=20)))
    for field, value in zip(header, values, strict=True):
        packet.metadata.add(metadata_id=field.id, value=value.to_bytes(10, "big"))
    back = packet_in(packet_out(packet, header), header)
    assert back is not None
    assert back.payload == packet.payload
    assert [int.from_bytes(each.value, "big") for each in back.metadata] == values
