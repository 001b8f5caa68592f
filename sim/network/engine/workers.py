"""Workers: the shipped worker core, driven by events as `host_agent.transport` drives it by a socket.

A host is one processor that handles packets one after the other. The core is called at the time when the processing of a packet
ends, truncated to nanoseconds; its packets leave when their own processing has ended.
"""

# mypy: disable-error-code="no-any-return,return-value"

from typing import Final

import numpy as np
from numba import carray

from host_agent.protocol.departures import next_timer_ns
from host_agent.protocol.records import CORE, FAILURE_NONE
from host_agent.wire.constants import HEADER_BYTES
from host_agent.wire.header import note_mark
from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import copy_bytes, load16, pointer
from sim.core_calls import call_receive, call_send
from sim.frames import FIRST_UDP_PORT, HEADERS_BYTES
from sim.network.engine.engine_records import NEVER, PS_PER_NS, WORKER
from sim.network.engine.events import WORKER_TIMER, push
from sim.network.engine.links import send
from sim.network.engine.outputs import accepted, check_output
from sim.network.engine.packets import (
    SLOT_PROTOCOL,
    add_to_checksum,
    frame_address,
    packet_of,
    release,
    take_packet,
)

CONTINUES, NEEDS_PYTHON, SAMPLED, SUM_MISSING = range(4)
"""Results of a worker's event. `NEEDS_PYTHON`: a pass is done, or the core has failed, so Python must examine the worker's
collectives. `SAMPLED`: the worker has accepted as many RESULTs as `sample_at` says. `SUM_MISSING`: Python must compute the sum
that a RESULT is compared with, and then call `after_frame`."""

LAST_NS: Final = NEVER // PS_PER_NS

_UDP_DESTINATION_AT: Final = 36
_PERCENT: Final = 100


@compiled
def worker_of(world: Record, node: Integer, packet: Integer) -> Integer:
    """Return the worker at a node to which a frame is addressed, or -1."""
    described = packet_of(world, packet)
    if described.length < HEADERS_BYTES:
        return np.int64(-1)
    raw = np.int64(load16(np.uintp(frame_address(world, packet) + _UDP_DESTINATION_AT)))
    place = ((raw & 0xFF) << 8 | raw >> 8) - FIRST_UDP_PORT
    if place < 0 or place >= world.endpoints_per_node:
        return np.int64(-1)
    shape = (world.node_count, world.endpoints_per_node)
    return np.int64(carray(pointer(world.endpoints), shape, np.int32)[node, place])


@compiled
def on_frame(world: Record, number: Integer, packet: Integer) -> Integer:
    """Process a frame at a worker, and release the packet unless a sum is missing."""
    worker = carray(pointer(world.workers), (number + 1,), WORKER)[number]
    described = packet_of(world, packet)
    if worker.alive == 0 or worker.deaf != 0:
        release(world, packet)
        return np.int64(CONTINUES)
    payload = described.length - HEADERS_BYTES
    _work(world, worker, worker.receive_ps + described.wire_bytes * worker.byte_ps)
    before = accepted(worker)
    if described.marked != 0:
        note_mark(frame_address(world, packet) + HEADERS_BYTES, payload)
    call_receive(
        world.core_take_in,
        (
            worker.core,
            worker.slots,
            worker.slot_count,
            worker.passes,
            frame_address(world, packet) + HEADERS_BYTES,
            payload,
            worker.busy_ps // PS_PER_NS,
        ),
    )
    return after_frame(world, number, packet, accepted(worker) != before)


@compiled
def after_frame(world: Record, number: Integer, packet: Integer, is_result: Integer) -> Integer:
    """Compare a RESULT that a worker's core has accepted, release the packet, and resume the worker."""
    worker = carray(pointer(world.workers), (number + 1,), WORKER)[number]
    if worker.checked != 0 and is_result and not check_output(world, worker, packet):
        return np.int64(SUM_MISSING)
    release(world, packet)
    outcome = drive(world, number)
    if outcome == CONTINUES and accepted(worker) >= worker.sample_at:
        return np.int64(SAMPLED)
    return outcome


@compiled
def on_timer(world: Record, number: Integer) -> Integer:
    """Let a worker act if its timer has expired. A timer that is only set anew does not count as an event."""
    worker = carray(pointer(world.workers), (number + 1,), WORKER)[number]
    if worker.alive == 0 or world.now_ps < worker.timer_ps:
        world.events -= 1
        return np.int64(CONTINUES)
    worker.timer_ps = NEVER
    if (
        next_timer_ns(carray(pointer(worker.core), (1,), CORE))
        > max(worker.busy_ps, world.now_ps) // PS_PER_NS
    ):
        world.events -= 1
        _set_timer(world, worker, number)
        return np.int64(CONTINUES)
    _work(world, worker, np.int64(0))
    return drive(world, number)


@compiled
def drive(world: Record, number: Integer) -> Integer:
    """Send the packets of a worker's core that are due, and set its timer.

    Returns `NEEDS_PYTHON` early if a pass is done or the core has failed; Python calls this function again after it has examined
    the worker.
    """
    worker = carray(pointer(world.workers), (number + 1,), WORKER)[number]
    core = carray(pointer(worker.core), (1,), CORE)[0]
    lengths = carray(pointer(world.scratch_lengths), (world.scratch_rows,), np.int32)
    while True:
        failed = core.failure != FAILURE_NONE and worker.failure_seen == 0
        if failed or core.passes_done != worker.passes_seen:
            return np.int64(NEEDS_PYTHON)
        count = call_send(
            world.core_transmit,
            (
                worker.core,
                worker.slots,
                worker.slot_count,
                worker.passes,
                world.scratch,
                world.scratch_rows,
                world.scratch_bytes,
                world.scratch_lengths,
                worker.busy_ps // PS_PER_NS,
            ),
        )
        for row in range(count):
            _send(world, worker, row, np.int64(lengths[row]))
        if core.failure != FAILURE_NONE and worker.failure_seen == 0:
            return np.int64(NEEDS_PYTHON)
        if count < world.scratch_rows - 1:
            break
    _set_timer(world, worker, number)
    return np.int64(CONTINUES)


@compiled
def _set_timer(world: Record, worker: Record, number: Integer) -> None:
    """Schedule a worker's timer for the time at which its core must be called, unless an earlier timer is scheduled."""
    timer_ns: Integer = next_timer_ns(carray(pointer(worker.core), (1,), CORE))
    timer_ps = timer_ns * PS_PER_NS if timer_ns < LAST_NS else NEVER
    if timer_ps < worker.timer_ps:
        worker.timer_ps = max(timer_ps, world.now_ps)
        push(world, worker.timer_ps, np.int64(WORKER_TIMER), number, np.int64(0))


@compiled
def _work(world: Record, worker: Record, cost_ps: Integer) -> None:
    """Keep a worker's processor busy for a time, from now or from when it is free."""
    cost_ps = cost_ps * worker.slower // _PERCENT
    worker.busy_total_ps += cost_ps
    worker.busy_ps = max(worker.busy_ps, world.now_ps) + cost_ps


@compiled
def _send(world: Record, worker: Record, row: Integer, length: Integer) -> None:
    """Make a frame from a datagram in the scratch rows, and send it."""
    size = HEADERS_BYTES + length
    on_wire = size + worker.added_bytes if length > HEADER_BYTES else size
    packet = take_packet(world, np.int64(SLOT_PROTOCOL), size, on_wire, worker.target, np.int64(-1))
    frame = frame_address(world, packet)
    copy_bytes(np.uintp(frame), np.uintp(worker.headers), np.uintp(HEADERS_BYTES))
    # A worker's packets all have the same headers except for the lengths and IPv4's checksum.
    _set_lengths(frame, length)
    copy_bytes(
        np.uintp(frame + HEADERS_BYTES),
        np.uintp(world.scratch + row * world.scratch_bytes),
        np.uintp(length),
    )
    _work(world, worker, worker.send_ps + on_wire * worker.byte_ps)
    send(world, worker.link, packet, worker.busy_ps)


@compiled
def _set_lengths(frame: Integer, payload: Integer) -> None:
    """Write IPv4's and UDP's lengths, and adjust IPv4's checksum, which was computed with a length of 0."""
    header = carray(pointer(frame), (HEADERS_BYTES,), np.uint8)
    total, datagram = payload + 28, payload + 8
    header[16] = total >> 8
    header[17] = total & 0xFF
    header[38] = datagram >> 8
    header[39] = datagram & 0xFF
    add_to_checksum(header, total)
