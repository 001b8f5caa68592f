"""Packets: rows of a pool that grows between events.

A frame begins at `FRAME_AT` of its row, so that the UDP payload behind 42 bytes of headers begins a cache line.
"""

# mypy: disable-error-code="no-any-return,return-value"

from typing import Any, Final

import numpy as np
from numba import carray

from host_agent.wire.header import CE
from netsum_common.compiled import Integer, Record, compiled, compiled_inline
from netsum_common.memory import copy_bytes, pointer
from sim.frames import HEADERS_BYTES
from sim.network.engine.engine_records import FLOW, PACKET, STALL

LINK_HEADER_BYTES: Final = 14
PAYLOAD_AT: Final = 64
_SERVICE_AT: Final = 15  # IPv4's type of service in a frame.
FRAME_AT: Final = PAYLOAD_AT - HEADERS_BYTES

SLOT_PROTOCOL, SEGMENT, ACKNOWLEDGEMENT, BACKGROUND = range(4)
"""Kinds of packets. Those of the slot protocol have the bytes of a frame; those of flows and background traffic only a size."""


@compiled_inline
def packet_of(world: Record, packet: Integer) -> Record:
    """Return the record of a packet."""
    return carray(pointer(world.packets), (world.packet_room,), PACKET)[packet]


@compiled_inline
def frame_address(world: Record, packet: Integer) -> Integer:
    """Return the address of a packet's frame."""
    return world.frames + packet * world.row_bytes + FRAME_AT


@compiled
def allocate(world: Record) -> Integer:
    """Return a free packet. There must be one."""
    world.free_count -= 1
    return np.int64(carray(pointer(world.free), (world.packet_room,), np.int32)[world.free_count])


@compiled
def take_packet(
    world: Record, kind: Integer, length: Integer, wire_bytes: Integer, target: Integer, flow: Integer
) -> Integer:
    """Return a packet that is made now, without a mark; `flow`: −1 for one of the slot protocol."""
    packet = allocate(world)
    described = packet_of(world, packet)
    described.kind = kind
    described.length = length
    described.wire_bytes = wire_bytes
    described.target = target
    described.flow = flow
    described.marked = 0
    described.sent_ps = world.now_ps
    return packet


@compiled
def release(world: Record, packet: Integer) -> None:
    """Return a packet to the pool."""
    carray(pointer(world.free), (world.packet_room,), np.int32)[world.free_count] = packet
    world.free_count += 1


@compiled
def lose(world: Record, packet: Integer) -> None:
    """Release a lost packet; note that its flow waits for it."""
    described = packet_of(world, packet)
    if described.kind == SEGMENT:
        flow = carray(pointer(world.flows), (described.flow + 1,), FLOW)[described.flow]
        if described.number >= flow.expected:
            if flow.missing == 0:
                stall = carray(pointer(world.stalls), (flow.stall + 1,), STALL)[flow.stall]
                stall.since_ps = stall.since_ps if stall.flows > 0 else world.now_ps
                stall.flows += 1
            flow.missing = max(flow.missing, described.number + 1)
    release(world, packet)


@compiled_inline
def add_to_checksum(header: Any, growth: Integer) -> None:
    """Change IPv4's checksum as a field of the headers has grown by a number."""
    # RFC 1624: the growth is subtracted from the complement.
    checksum = (np.int64(header[24]) << 8 | np.int64(header[25])) - growth
    if checksum < 0:
        checksum += 0xFFFF
    header[24] = checksum >> 8
    header[25] = checksum & 0xFF


@compiled
def mark(world: Record, packet: Integer) -> Integer:
    """Mark a packet as one that has met a queue (ECN), if its sender reacts to that; return whether it does."""
    described = packet_of(world, packet)
    if described.kind == SLOT_PROTOCOL:
        header = carray(pointer(frame_address(world, packet)), (HEADERS_BYTES,), np.uint8)
        service = np.int64(header[_SERVICE_AT])
        if service & CE == 0:
            return np.int64(0)
        header[_SERVICE_AT] = service | CE
        add_to_checksum(header, CE - (service & CE))
    described.marked = 1
    return np.int64(1)


@compiled
def copy_packet(world: Record, packet: Integer) -> Integer:
    """Return a copy of a packet."""
    copy = allocate(world)
    records = carray(pointer(world.packets), (world.packet_room,), PACKET)
    records[copy] = records[packet]
    if records[packet].length > 0:
        copy_bytes(
            np.uintp(frame_address(world, copy)),
            np.uintp(frame_address(world, packet)),
            np.uintp(records[packet].length),
        )
    return copy
