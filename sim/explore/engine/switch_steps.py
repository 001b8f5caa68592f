"""The steps of the switch: a packet arrives at it, the controller writes an entry, it restarts."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np

from sim.explore.engine.compiled import Integer, Record, carray, compiled, copy_bytes, pointer, run_program
from sim.explore.engine.frames import HEADERS_BYTES, IPV4_DESTINATION
from sim.explore.engine.packets import (
    add_entry,
    datagram_label,
    down_owner,
    entry_of,
    intern,
    packet_at,
    write_number,
)
from sim.explore.engine.packing import host_at
from sim.explore.engine.world import (
    AT_RESTARTS,
    AT_TABLES,
    CHANGED,
    DEAD,
    DEAD_HOST,
    DOWN,
    FOREIGN_SLOT,
    HEAD_BYTES,
    LABEL_SHIFT,
    MACHINE_ERROR,
    MAX_ENTRIES,
    MAX_PACKETS,
    MISADDRESSED,
    NOTHING,
    OUTSIDER_ADMITTED,
    PACKET_SHIFT,
)


@compiled
def restore_switch(world: Record) -> None:
    """Put the registers of the state that is worked on into the switch."""
    places = carray(pointer(world.span_at), (world.span_count,), np.int64)
    sizes = carray(pointer(world.span_bytes), (world.span_count,), np.int64)
    at = np.uintp(world.state + HEAD_BYTES)
    for span in range(world.span_count):
        copy_bytes(np.uintp(places[span]), at, np.uintp(sizes[span]))
        at += np.uintp(sizes[span])


@compiled
def _save_switch(world: Record, job: Integer) -> Integer:
    """Take the switch's registers into the state; returns NOTHING, CHANGED, or FOREIGN_SLOT if another job's changed."""
    places = carray(pointer(world.span_at), (world.span_count,), np.int64)
    sizes = carray(pointer(world.span_bytes), (world.span_count,), np.int64)
    jobs = carray(pointer(world.span_job), (world.span_count,), np.int64)
    state = carray(pointer(world.state), (world.fixed_bytes,), np.uint8)
    at = np.int64(HEAD_BYTES)
    result = np.int64(NOTHING)
    for span in range(world.span_count):
        cells = carray(pointer(places[span]), (sizes[span],), np.uint8)
        for each in range(sizes[span]):
            if state[at + each] != cells[each]:
                state[at + each] = cells[each]
                if jobs[span] != job:
                    result = np.int64(FOREIGN_SLOT)
                elif result == NOTHING:
                    result = np.int64(CHANGED)
        at += sizes[span]
    return result


@compiled
def deliver_up(world: Record, entry: Integer) -> Integer:
    """Run a packet through the switch, whose registers are restored; answers are added to the packets in flight."""
    number = entry >> PACKET_SHIFT
    lengths = carray(pointer(world.lengths), (MAX_PACKETS,), np.int32)
    owners = carray(pointer(world.of), (MAX_PACKETS,), np.int16)
    ports = carray(pointer(world.ports), (MAX_PACKETS,), np.int16)
    state = carray(pointer(world.state), (world.fixed_bytes,), np.uint8)
    length = np.int64(lengths[number])
    owner = np.int64(owners[number])
    tables = np.int64(state[AT_TABLES])
    copy_bytes(np.uintp(world.in_frame), np.uintp(packet_at(world, number)), np.uintp(length))
    write_number(world, number, entry >> LABEL_SHIFT & 15, world.in_frame)
    world.switch_runs += 1
    left = run_switch(world, length, np.int64(ports[number]))
    if left < 0:
        return np.int64(MACHINE_ERROR)
    admitted = carray(pointer(world.admitted), (world.versions, world.owners + 1), np.uint8)
    outsider = admitted[tables, owner if owner < world.owners else world.owners] == 0
    job = np.int64(-1)
    if not outsider:
        job = owner // world.epochs // world.workers
    result = _save_switch(world, job)
    if outsider and (result != NOTHING or left > 0):
        return np.int64(OUTSIDER_ADMITTED)
    if result < 0:
        return result
    out_ports = carray(pointer(world.out_ports), (left + 1,), np.uint16)
    out_lengths = carray(pointer(world.out_lengths), (left + 1,), np.int32)
    for each in range(left):
        frame = world.out_frames + each * world.out_stride
        host = np.int64(out_ports[each])
        size = np.int64(out_lengths[each])
        if host >= world.hosts or not _addressed(world, frame, size, host):
            return np.int64(MISADDRESSED)
        if state[host_at(world, host)] == DEAD_HOST and world.epochs == 1:
            continue
        whose = down_owner(world, host, frame, size)
        label = datagram_label(world, np.int64(DOWN), frame, size)
        if label > world.slots:
            label = np.int64(DEAD)
        answer = intern(world, np.int64(DOWN), whose, host, frame, size)
        if answer < 0 or world.entry_count + 8 > MAX_ENTRIES:
            return np.int64(MACHINE_ERROR)
        if add_entry(world, entry_of(answer, label)) and result == NOTHING:
            result = np.int64(CHANGED)
    return result


@compiled
def run_switch(world: Record, length: Integer, port: Integer) -> Integer:
    """Run the program, with the tables of the state that is worked on, on the frame in `in_frame`.

    Returns how many frames leave the switch, which are in `out_frames`; -1 if the program failed.
    """
    state = carray(pointer(world.state), (world.fixed_bytes,), np.uint8)
    carray(pointer(world.in_length), (1,), np.int32)[0] = length
    carray(pointer(world.in_port), (1,), np.uint16)[0] = port
    context = world.contexts + np.int64(state[AT_TABLES]) * world.context_bytes
    words = carray(pointer(context), (world.context_bytes // 8,), np.int64)
    words[world.inputs] = world.in_frame
    words[world.inputs + 1] = world.in_stride
    words[world.inputs + 2] = world.in_length
    words[world.inputs + 3] = world.in_port
    words[world.inputs + 4] = 1
    words[world.inputs + 5] = 0
    words[world.out_count] = 0
    if run_program(world.code, context) != 0:
        return np.int64(-1)
    return words[world.out_count]


@compiled
def _addressed(world: Record, frame: Integer, length: Integer, host: Integer) -> bool:
    """Whether a frame that leaves by a host's port has its addresses."""
    if length < HEADERS_BYTES:
        return False
    data = carray(pointer(frame), (length,), np.uint8)
    own = carray(pointer(world.headers), (world.hosts, 3, HEADERS_BYTES), np.uint8)[host, 2]
    for each in range(6):
        if data[each] != own[each]:
            return False
    for each in range(4):
        if data[IPV4_DESTINATION + each] != own[IPV4_DESTINATION + each]:
            return False
    return data[36] == own[36] and data[37] == own[37]


@compiled
def control(world: Record) -> Integer:
    """Let the controller write its next entry."""
    state = carray(pointer(world.state), (world.fixed_bytes,), np.uint8)
    if state[AT_TABLES] + 1 >= world.versions:
        return np.int64(NOTHING)
    state[AT_TABLES] += np.uint8(1)
    return np.int64(CHANGED)


@compiled
def restart_switch(world: Record) -> Integer:
    """Let the switch come up with empty registers and tables."""
    state = carray(pointer(world.state), (world.fixed_bytes,), np.uint8)
    if state[AT_RESTARTS] >= world.restarts or state[AT_TABLES] > world.workers:
        return np.int64(NOTHING)
    state[AT_RESTARTS] += np.uint8(1)
    state[AT_TABLES] = np.uint8(world.workers)
    for each in range(world.switch_bytes):
        state[HEAD_BYTES + each] = np.uint8(0)
    return np.int64(CHANGED)
