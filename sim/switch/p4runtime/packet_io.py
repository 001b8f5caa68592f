"""Packets between the pipeline and the controller, and the headers that carry their metadata.

A packet for the controller leaves the pipeline with the program's `packet_in` header in front; one from the
controller enters with the `packet_out` header in front. P4Runtime has their fields apart from the payload.
"""

from collections.abc import Sequence
from typing import Any

from netsum_common.p4rt import p4runtime_pb2
from sim.switch.p4runtime import bytestrings
from sim.switch.p4runtime.catalog import Field, by_field


def _bits(header: Sequence[Field]) -> int:
    return sum(field.bitwidth for field in header)


def packet_in(frame: bytes, header: Sequence[Field] | None) -> Any | None:
    """Make a `PacketIn` of a frame that left by the CPU port.

    `frame`: the frame, `packet_in` header first. `header`: fields of that header; None if the program has none. The result:
    none for a frame shorter than the header.
    """
    if header is None:
        return p4runtime_pb2.PacketIn(payload=frame)
    bits = _bits(header)
    size = (bits + 7) // 8
    if len(frame) < size:
        return None
    # Headers are a whole number of bytes on the wire; the value is read from its top.
    value = int.from_bytes(frame[:size], "big") >> (8 * size - bits)
    packet = p4runtime_pb2.PacketIn(payload=frame[size:])
    for field in header:
        bits -= field.bitwidth
        number = (value >> bits) & ((1 << field.bitwidth) - 1)
        packet.metadata.add(metadata_id=field.id, value=bytestrings.encode(number))
    return packet


def packet_out(packet: Any, header: Sequence[Field] | None) -> bytes:
    """Make the frame of a `PacketOut`, `packet_out` header first.

    Fields that are left out are zero, as in BMv2, whose clients rely on it.

    Raises P4RuntimeError: INVALID_ARGUMENT or OUT_OF_RANGE: metadata that the program's header does not have, or twice, or
    too wide.
    """
    given = by_field(
        packet.metadata, "metadata_id", header or (), "the program's packet_out header", "metadata"
    )
    if header is None:
        return bytes(packet.payload)
    number = 0
    for field in header:
        number <<= field.bitwidth
        if field.id in given:
            number |= bytestrings.decode(given[field.id].value, field.bitwidth, f"metadata {field.name}")
    bits = _bits(header)
    size = (bits + 7) // 8
    return (number << (8 * size - bits)).to_bytes(size, "big") + bytes(packet.payload)
