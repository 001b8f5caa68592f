"""The steps of a switch: a packet arrives at it, the controller writes an entry, it restarts."""

# mypy: disable-error-code="no-any-return"

import numpy as np
from numba import carray

from netsum_common.compiled import Integer, Record, compiled, compiled_inline
from netsum_common.memory import copy_bytes, pointer
from sim.explore.engine import world as w
from sim.explore.engine.packets import (
    add_entry,
    datagram_label,
    down_owner,
    entry_of,
    goes_to,
    intern,
    packet_at,
    write_number,
)
from sim.explore.engine.packing import host_at, tables_at
from sim.explore.engine.views import packet_of, state_of
from sim.frames import HEADERS_BYTES, IPV4_DESTINATION
from sim.switch.ports.program_call import run_program

_IPV4_AT, _UDP_AT = 14, 34
"""Offsets of the headers in a frame."""


@compiled
def restore_switch(world: Record, switch: Integer) -> None:
    """Put a switch's registers of the state that is worked on into the machine that runs all switches."""
    places = carray(pointer(world.span_at), (world.span_count,), np.int64)
    sizes = carray(pointer(world.span_bytes), (world.span_count,), np.int64)
    at = np.uintp(world.state + w.HEAD_BYTES + switch * world.one_switch_bytes)
    for span in range(world.span_count):
        copy_bytes(np.uintp(places[span]), at, np.uintp(sizes[span]))
        at += np.uintp(sizes[span])


@compiled
def _save_switch(world: Record, switch: Integer, job: Integer) -> Integer:
    """Take a switch's registers into the state; returns NOTHING, CHANGED, or FOREIGN_SLOT if another job's changed."""
    places = carray(pointer(world.span_at), (world.span_count,), np.int64)
    sizes = carray(pointer(world.span_bytes), (world.span_count,), np.int64)
    jobs = carray(pointer(world.span_job), (world.span_count,), np.int64)
    state = state_of(world)
    at = np.int64(w.HEAD_BYTES) + switch * world.one_switch_bytes
    result = np.int64(w.NOTHING)
    for span in range(world.span_count):
        cells = carray(pointer(places[span]), (sizes[span],), np.uint8)
        for each in range(sizes[span]):
            if state[at + each] != cells[each]:
                state[at + each] = cells[each]
                if jobs[span] != job:
                    result = np.int64(w.FOREIGN_SLOT)
                elif result == w.NOTHING:
                    result = np.int64(w.CHANGED)
        at += sizes[span]
    return result


@compiled
def arrive_at_switch(world: Record, entry: Integer) -> Integer:
    """Run a packet through its switch, whose registers are restored; what leaves is added to the packets in flight."""
    number = entry >> w.PACKET_SHIFT
    state = state_of(world)
    packet = packet_of(world, number)
    length, owner, port, switch = packet.length, packet.owner, packet.port, packet.to
    tables = switch * world.versions + state[tables_at(switch)]
    copy_bytes(np.uintp(world.in_frame), np.uintp(packet_at(world, number)), np.uintp(length))
    write_number(world, number, entry >> w.LABEL_SHIFT & 15, world.in_frame)
    world.switch_runs += 1
    left = run_switch(world, switch, length, port)
    if left < 0:
        return np.int64(w.MACHINE_ERROR)
    columns = (world.hosts + world.switches) * world.epochs
    admitted = carray(pointer(world.admitted), (world.switches * world.versions, columns + 1), np.uint8)
    known = 0 <= owner < world.owners
    outsider = admitted[tables, port * world.epochs + owner % world.epochs if known else columns] == 0
    job = np.int64(-1)
    if not outsider:
        job = owner // world.epochs // world.workers
    result = _save_switch(world, switch, job)
    if outsider and (result != w.NOTHING or left > 0):
        return np.int64(w.OUTSIDER_ADMITTED)
    if result < 0:
        return result
    out_ports = carray(pointer(world.out_ports), (left + 1,), np.uint16)
    out_lengths = carray(pointer(world.out_lengths), (left + 1,), np.int32)
    for each in range(left):
        frame = world.out_frames + each * world.out_stride
        leaves_by = np.int64(out_ports[each])
        size = np.int64(out_lengths[each])
        way = way_out(world, switch, leaves_by)
        if way < 0 or not _addressed(world, frame, size, way, leaves_by):
            return np.int64(w.MISADDRESSED)
        if leaves_by < world.hosts and state[host_at(world, leaves_by)] == w.DEAD_HOST and world.epochs == 1:
            continue
        label = datagram_label(world, way, frame, size)
        if label > world.slots:
            label = np.int64(w.DEAD)
        host = leaves_by
        if leaves_by >= world.hosts:
            # Between switches a PROBE and its STATUS are the asker's; all else is of the hosts below.
            host = carray(pointer(world.first_below), (world.switches,), np.int64)[leaves_by - world.hosts]
            if label != 0 and known:
                host = owner // world.epochs
        whose = down_owner(world, host, frame, size)
        answer = intern(world, way, whose, leaves_by, frame, size)
        if answer < 0 or world.entry_count + 8 > w.MAX_ENTRIES:
            return np.int64(w.MACHINE_ERROR)
        if add_entry(world, entry_of(answer, label)) and result == w.NOTHING:
            result = np.int64(w.CHANGED)
    return result


@compiled
def way_out(world: Record, switch: Integer, port: Integer) -> Integer:
    """Return the way of a packet that leaves a switch by a port, UP or DOWN; -1 if the switch has no such port."""
    if port < world.hosts:
        leaf = carray(pointer(world.leaf_of), (world.hosts,), np.int64)[port]
        return np.int64(w.DOWN if leaf == switch else -1)
    child = port - world.hosts
    if child == 0 or child >= world.switches:
        return np.int64(-1)
    if child == switch:
        return np.int64(w.UP)
    parent = carray(pointer(world.parents), (world.switches,), np.int64)[child]
    return np.int64(w.DOWN if parent == switch else -1)


@compiled
def run_switch(world: Record, switch: Integer, length: Integer, port: Integer) -> Integer:
    """Run a switch's program, with its tables in the state that is worked on, on the frame in `in_frame`.

    Returns how many frames leave the switch, which are in `out_frames`; -1 if the program failed.
    """
    state = state_of(world)
    carray(pointer(world.in_length), (1,), np.int32)[0] = length
    carray(pointer(world.in_port), (1,), np.uint16)[0] = port
    tables = switch * world.versions + np.int64(state[tables_at(switch)])
    context = world.contexts + tables * world.context_bytes
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
def _addressed(world: Record, frame: Integer, length: Integer, way: Integer, port: Integer) -> bool:
    """Whether a frame that leaves by a port has the addresses of what is at its other end, and headers that it accepts."""
    if length < HEADERS_BYTES:
        return False
    data = carray(pointer(frame), (length,), np.uint8)
    switch = goes_to(world, way, port)
    places = world.hosts + world.switches
    own = carray(pointer(world.headers), (places, 3, HEADERS_BYTES), np.uint8)[
        port if switch < 0 else world.hosts + switch, 2
    ]
    for each in range(6):
        if data[each] != own[each]:
            return False
    for each in range(4):
        if data[IPV4_DESTINATION + each] != own[IPV4_DESTINATION + each]:
            return False
    if data[36] != own[36] or data[37] != own[37]:
        return False
    return _has_valid_headers(data, length)


@compiled_inline
def _has_valid_headers(data: Record, length: Integer) -> bool:
    """Whether a host's kernel takes a frame: lengths, the IPv4 checksum, and no UDP checksum."""
    words = np.int64(0)
    for at in range(_IPV4_AT, _UDP_AT, 2):
        words += _word(data, at)
    words = (words & 0xFFFF) + (words >> 16)
    lengths = _word(data, _IPV4_AT + 2) == length - _IPV4_AT and _word(data, _UDP_AT + 4) == length - _UDP_AT
    return lengths and (words & 0xFFFF) + (words >> 16) == 0xFFFF and _word(data, _UDP_AT + 6) == 0


@compiled_inline
def _word(data: Record, at: Integer) -> Integer:
    return np.int64(data[at]) << 8 | np.int64(data[at + 1])


@compiled
def stage_of(world: Record) -> Integer:
    """Return 0 while all switches hold all of the first epoch, 2 when they hold all of the last one, else 1."""
    state = state_of(world)
    complete = carray(pointer(world.complete), (world.switches,), np.int64)
    first = last = True
    for switch in range(world.switches):
        version = np.int64(state[tables_at(switch)])
        first &= version == 0
        last &= version == complete[switch]
    if last:
        return np.int64(2)
    return np.int64(0 if first else 1)


@compiled
def first_is_gone(world: Record) -> bool:
    """Whether no switch has any entry of the first epoch."""
    state = state_of(world)
    emptied = carray(pointer(world.emptied), (world.switches,), np.int64)
    gone = True
    for switch in range(world.switches):
        gone &= state[tables_at(switch)] >= emptied[switch]
    return gone


@compiled
def control(world: Record) -> Integer:
    """Let the controller write its next entry: it deletes from the leaves to the root, and writes from the root to the leaves."""
    state = state_of(world)
    emptied = carray(pointer(world.emptied), (world.switches,), np.int64)
    complete = carray(pointer(world.complete), (world.switches,), np.int64)
    for switch in range(world.switches - 1, -1, -1):
        if state[tables_at(switch)] < emptied[switch]:
            state[tables_at(switch)] += np.uint8(1)
            return np.int64(w.CHANGED)
    for switch in range(world.switches):
        if state[tables_at(switch)] < complete[switch]:
            state[tables_at(switch)] += np.uint8(1)
            return np.int64(w.CHANGED)
    return np.int64(w.NOTHING)


@compiled
def restart_switch(world: Record, switch: Integer) -> Integer:
    """Let a switch come up with empty registers and tables."""
    state = state_of(world)
    emptied = carray(pointer(world.emptied), (world.switches,), np.int64)
    if state[w.AT_RESTARTS] >= world.restarts:
        return np.int64(w.NOTHING)
    for each in range(world.switches):
        if state[tables_at(each)] > emptied[each]:
            return np.int64(w.NOTHING)
    state[w.AT_RESTARTS] += np.uint8(1)
    state[tables_at(switch)] = np.uint8(emptied[switch])
    at = w.HEAD_BYTES + switch * world.one_switch_bytes
    for each in range(world.one_switch_bytes):
        state[at + each] = np.uint8(0)
    return np.int64(w.CHANGED)
