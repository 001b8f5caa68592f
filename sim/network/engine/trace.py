"""Records of packets that leave a link or are lost, for captures and traces."""

# mypy: disable-error-code="no-any-return,return-value"

import numpy as np
from numba import carray

from host_agent.wire.header import HEADER_WORDS, read_header
from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import copy_bytes, pointer
from sim.frames import HEADERS_BYTES
from sim.network.engine.engine_records import TRACE
from sim.network.engine.packets import SLOT_PROTOCOL, frame_address, packet_of

LEAVES, LOST_ON_LINK = range(2)  # A packet leaves by a link, between two times; a packet is lost on a link.


@compiled
def note(
    world: Record,
    what: int,
    where: Integer,
    packet: Integer,
    from_ps: Integer,
    to_ps: Integer,
    wait_bytes: Integer,
) -> None:
    """Record an event of a packet, if there is room, which the loop provides."""
    if world.trace_count >= world.trace_room:
        return
    described = packet_of(world, packet)
    row = carray(pointer(world.trace), (world.trace_room,), TRACE)[world.trace_count]
    row.time_ps = from_ps
    row.what = what
    row.where = where
    row.packet = described.kind
    row.length = described.wire_bytes
    row.end_ps = to_ps
    row.wait_bytes = wait_bytes
    row.slot = -1
    row.chunk = -1
    row.kept = 0
    if described.kind == SLOT_PROTOCOL:
        size = min(described.length, world.trace_frame_bytes)
        address = frame_address(world, packet)
        copy_bytes(
            np.uintp(world.trace_frames + world.trace_count * world.trace_frame_bytes),
            np.uintp(address),
            np.uintp(size),
        )
        row.kept = size
        if described.length >= HEADERS_BYTES + 4 * HEADER_WORDS:
            words = carray(pointer(address + HEADERS_BYTES), (HEADER_WORDS,), np.uint32)
            header = read_header(words)
            row.slot = header[10]
            row.chunk = header[11]
            row.protocol = header[1]
            row.worker = header[8]
    world.trace_count += 1
