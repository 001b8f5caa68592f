"""The steps: each changes the state that is worked on by running the shipped machine code."""

# mypy: disable-error-code="no-any-return"

import numpy as np
from numba import carray

from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import compare_bytes, copy_bytes, pointer
from sim.explore.engine import step_codes as codes
from sim.explore.engine import world as w
from sim.explore.engine.finished import leave_out_finished, moved_back
from sim.explore.engine.packets import contains, merge_labels, remove_copy
from sim.explore.engine.packing import host_at, unpack
from sim.explore.engine.switch_steps import arrive_at_switch, control, restart_switch, restore_switch
from sim.explore.engine.views import entries_of, packet_of
from sim.explore.engine.worker_steps import arrive_at_worker, begin, drive, fail, join, kill, offer, timers_of


@compiled
def apply(world: Record, code: Integer, blank: Integer) -> Integer:
    """Make a step from the state that is worked on; returns NOTHING, CHANGED, or the violation."""
    world.steps += 1
    result = _make(world, code, blank)
    if result < 0:
        return result
    if world.collect != 0:
        if moved_back(world):
            return np.int64(w.LEFT_OUT_WRONGLY)
        leave_out_finished(world)
    if world.merge != 0:
        merge_labels(world)
    return result


@compiled
def _make(world: Record, code: Integer, blank: Integer) -> Integer:
    kind, what, how = code >> codes.KIND_SHIFT, code >> codes.WHAT_SHIFT & codes.WHAT, code & codes.HOW
    if kind in (codes.DELIVER, codes.KEEP, codes.LOSE):
        entry = np.int64(entries_of(world)[what])
        if world.copies > 0 and kind != codes.KEEP:
            remove_copy(world, what)
        if kind == codes.LOSE:
            return np.int64(1)
        switch = packet_of(world, entry >> w.PACKET_SHIFT).to
        if switch != w.TO_WORKER:
            restore_switch(world, switch)
            result = arrive_at_switch(world, entry)
        else:
            result = arrive_at_worker(world, entry, how)
        if result == w.NOTHING and world.copies > 0 and kind != codes.KEEP:
            return np.int64(1)
        return result
    if kind == codes.DRIVE:
        return drive(world, what, how)
    if kind == codes.BEGIN:
        return begin(world, what, how)
    if kind == codes.OFFER:
        return offer(world, what, how)
    if kind == codes.FAIL:
        return fail(world, what)
    if kind == codes.KILL:
        return kill(world, what)
    if kind == codes.JOIN:
        return join(world, what, blank)
    if kind == codes.CONTROL:
        return control(world)
    if kind == codes.RESTART:
        return restart_switch(world, what)
    return _saturate(world)


@compiled
def _saturate(world: Record) -> Integer:
    """Make every sending of a worker and every delivery to a switch that does nothing but add packets.

    As packets may arrive any number of times, or never, the state with the answers can make every step of the one without
    them. `snapshot` and `useful` are left to say which packets change a switch.
    """
    useful = carray(pointer(world.useful), (w.MAX_ENTRIES,), np.uint8)
    state = carray(pointer(world.from_state), (world.fixed_bytes,), np.uint8)
    copy_bytes(np.uintp(world.queue), np.uintp(world.entries), np.uintp(4 * world.entry_count))
    for host in range(world.hosts):
        if state[host_at(world, host) + w.AT_LIFE] != w.ALIVE:
            continue
        armed = timers_of(world, unpack(world, np.int64(host)))
        chosen = armed
        while True:  # every set of armed timers
            count = world.entry_count
            result = drive(world, np.int64(host), chosen)
            if result < 0:
                return result
            if result != w.NOTHING:
                _keep_or_undo(world, count)
            if chosen == 0:
                break
            chosen = (chosen - 1) & armed
    held = world.entry_count
    world.snapshot_count = held
    copy_bytes(np.uintp(world.snapshot), np.uintp(world.entries), np.uintp(4 * held))
    before = carray(pointer(world.snapshot), (w.MAX_ENTRIES,), np.uint32)
    for place in range(held):
        entry = np.int64(before[place])
        useful[place] = np.uint8(0)
        switch = packet_of(world, entry >> w.PACKET_SHIFT).to
        if switch == w.TO_WORKER:
            continue
        count = world.entry_count
        restore_switch(world, switch)
        result = arrive_at_switch(world, entry)
        if result < 0:
            return result
        if result != w.NOTHING and not _keep_or_undo(world, count):
            useful[place] = np.uint8(1)
    return np.int64(1)


@compiled
def _keep_or_undo(world: Record, count: Integer) -> bool:
    """Keep the packets that a step has added if it has changed nothing else; there were `count`."""
    mine = entries_of(world)
    before = carray(pointer(world.queue), (w.MAX_ENTRIES,), np.uint32)
    if only_packets_differ(world) and contains(mine, world.entry_count, before, count):
        copy_bytes(np.uintp(world.queue), np.uintp(world.entries), np.uintp(4 * world.entry_count))
        return True
    copy_bytes(np.uintp(world.state), np.uintp(world.from_state), np.uintp(world.fixed_bytes))
    copy_bytes(np.uintp(world.entries), np.uintp(world.queue), np.uintp(4 * count))
    world.entry_count = count
    return False


@compiled
def only_packets_differ(world: Record) -> bool:
    """Whether the state that is worked on is the one that is expanded, but for its packets."""
    return compare_bytes(np.uintp(world.state), np.uintp(world.from_state), np.uintp(world.fixed_bytes)) == 0
