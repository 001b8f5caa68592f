"""The search: take a state, make every step from it, keep new states (`found_states`).

Breadth first finds shortest ways. Largest first, in which of the states with the least progress the one with the most
packets is expanded next, leaves out the most: when a state is expanded, most of those that are equal but for their
packets have been found. With it, steps that only add packets are made before all others, and then alone (`reduce`).
"""

# mypy: disable-error-code="no-any-return"

import numpy as np
from numba import carray

from host_agent.wire.constants import KIND_STATUS
from netsum_common.compiled import Integer, Record, compiled, compiled_inline
from netsum_common.memory import compare_bytes, copy_bytes, pointer
from sim.explore.engine import step_codes as codes
from sim.explore.engine import world as w
from sim.explore.engine.finished import check_part
from sim.explore.engine.found_states import (
    BREADTH_FIRST,
    COUNTS,
    DEPTH_FIRST,
    LEVELS,
    RECORD_BYTES,
    emit,
    links_of,
    part_bytes,
    words_of,
)
from sim.explore.engine.packets import contains, packet_kind
from sim.explore.engine.packing import host_at, unpack
from sim.explore.engine.step_codes import step_code
from sim.explore.engine.steps import apply, only_packets_differ
from sim.explore.engine.views import entries_of, packet_of
from sim.explore.engine.worker_steps import timers_of

EXHAUSTED, PAUSED, MORE_ROOM, FOUND = range(4)
"""Why `explore` came back: nothing is left; as many states as asked were expanded; memory is short; a violation."""


@compiled_inline
def reset(world: Record) -> None:
    """Put back the state that is expanded."""
    copy_bytes(
        np.uintp(world.state),
        np.uintp(world.from_state),
        np.uintp(world.fixed_bytes + 4 * world.from_count),
    )
    world.entry_count = world.from_count


@compiled
def explore(world: Record, search: Record, budget: Integer) -> Integer:
    """Expand states until there are no more, or `budget` of them have been."""
    for _ in range(budget):
        if search.waiting == 0:
            return np.int64(EXHAUSTED)
        worst = (RECORD_BYTES + 8 + world.fixed_bytes + w.MAX_ENTRIES) * 1024
        if search.tail + worst > search.arena_bytes or search.states + 4096 > search.capacity:
            return np.int64(MORE_ROOM)
        if search.ends_count * 2 + 8192 > search.ends_mask:
            return np.int64(MORE_ROOM)
        if (search.states + search.subsumed) * 4 + 32768 > 3 * search.mask:
            return np.int64(MORE_ROOM)
        if search.part_count + 8192 > search.part_room or search.part_count * 2 + 16384 > search.part_mask:
            return np.int64(MORE_ROOM)
        at = _take(world, search)
        if at < 0:
            continue
        number = np.int64(words_of(search)[at // 4 + 2])
        search.expanded += 1
        _expand(world, search, number)
        if search.found != 0:
            return np.int64(FOUND)
    return np.int64(PAUSED)


@compiled
def _take(world: Record, search: Record) -> Integer:
    """Take the next state, to be expanded; returns the offset of its record, or -1 if it was dropped."""
    words = words_of(search)
    search.waiting -= 1
    if search.order == BREADTH_FIRST:
        at = search.head
        search.head += np.int64(words[at // 4])
    elif search.order == DEPTH_FIRST:
        search.tail -= np.int64(words[search.tail // 4 - 1])
        at = search.tail
    else:
        buckets = carray(pointer(search.buckets), (LEVELS, COUNTS), np.int64)
        tops = carray(pointer(search.tops), (LEVELS,), np.int64)
        while buckets[search.low, tops[search.low]] == 0:
            if tops[search.low] > 0:
                tops[search.low] -= 1
            else:
                search.low += 1
        top = tops[search.low]
        at = buckets[search.low, top] - 1
        buckets[search.low, top] = links_of(search)[at // 8 + 3]
    if words[at // 4 + 3] != 0:
        search.dropped += 1
        return np.int64(-1)
    world.from_count = np.int64(words[at // 4 + 1])
    copy_bytes(
        np.uintp(world.from_state),
        np.uintp(search.arena + at + RECORD_BYTES),
        np.uintp(world.fixed_bytes + 4 * world.from_count),
    )
    return at


@compiled
def _try(world: Record, search: Record, number: Integer, code: Integer) -> bool:
    """Make a step from the state that is expanded and keep where it leads; returns whether to go on."""
    reset(world)
    result = apply(world, code, search.blank)
    if result < 0:
        search.found = result
        search.found_state = number
        search.found_code = code
        return False
    if result == w.NOTHING:
        if code & codes.TIRED == 0:
            world.armed = 0  # with timers it is what DRIVE does with them
        return True
    more = world.reduce != 0 and _only_adds(world)
    if more:
        search.saturated += 1
    elif code >> codes.KIND_SHIFT == codes.SATURATE:
        return True
    return emit(world, search, number, code) and not more


@compiled
def _try_all(world: Record, search: Record, number: Integer, code: Integer) -> bool:
    """Make a step of a worker that may send in the same call, with every set of timers that are armed then."""
    world.armed = 0
    if not _try(world, search, number, code):
        return False
    armed = world.armed
    chosen = armed
    while chosen != 0:
        if not _try(world, search, number, code | chosen):
            return False
        chosen = (chosen - 1) & armed
    return True


@compiled
def _only_adds(world: Record) -> bool:
    """Whether the state that is worked on is the one that is expanded, with more packets: then it can do all that one can."""
    if not only_packets_differ(world):
        return False
    mine = entries_of(world)
    before = carray(pointer(world.from_entries), (w.MAX_ENTRIES,), np.uint32)
    if not contains(mine, world.entry_count, before, world.from_count):
        return False
    size = np.uintp(4 * world.from_count)
    return world.entry_count != world.from_count or (
        compare_bytes(np.uintp(world.entries), np.uintp(world.from_entries), size) != 0
    )


@compiled_inline
def _code(kind: int, what: Integer, how: Integer) -> Integer:
    return step_code(np.int64(kind), np.int64(what), np.int64(how))


@compiled
def _try_drives(world: Record, search: Record, number: Integer, host: Integer) -> bool:
    """Let a worker send, with every set of its armed timers; returns whether to go on."""
    reset(world)
    armed = timers_of(world, unpack(world, host))
    chosen = armed
    while _try(world, search, number, _code(codes.DRIVE, host, chosen)):
        if chosen == 0:
            return True
        chosen = (chosen - 1) & armed
    return False


@compiled
def _try_worker(world: Record, search: Record, number: Integer, host: Integer) -> bool:
    """Make the steps of a living worker; returns whether to go on."""
    if not _try_drives(world, search, number, host):
        return False
    if not _try_all(world, search, number, _code(codes.BEGIN, host, 0)):
        return False
    if world.quorum != 0 and not _try_all(world, search, number, _code(codes.OFFER, host, 0)):
        return False
    if world.deadlines != 0 and not _try(world, search, number, _code(codes.FAIL, host, 0)):
        return False
    state = carray(pointer(world.from_state), (world.fixed_bytes,), np.uint8)
    return world.kills <= state[w.AT_KILLS] or _try(world, search, number, _code(codes.KILL, host, 0))


@compiled
def _try_workers(world: Record, search: Record, number: Integer) -> bool:
    """Make the steps of all workers; returns whether to go on."""
    state = carray(pointer(world.from_state), (world.fixed_bytes,), np.uint8)
    for each in range(world.hosts):
        host = np.int64(each)
        alive = state[host_at(world, host) + w.AT_LIFE] == w.ALIVE
        if alive and not _try_worker(world, search, number, host):
            return False
        if world.epochs > 1 and not _try(world, search, number, _code(codes.JOIN, host, 0)):
            return False
    return True


@compiled
def _try_control(world: Record, search: Record, number: Integer) -> bool:
    """Make the steps of the controller and of restarted switches; returns whether to go on."""
    if not _try(world, search, number, _code(codes.CONTROL, 0, 0)):
        return False
    switch = np.int64(0)
    while switch < world.switches and _try(world, search, number, _code(codes.RESTART, switch, 0)):
        switch += 1
    return switch == world.switches


@compiled
def _try_packet(world: Record, search: Record, number: Integer, place: Integer) -> bool:
    """Deliver, keep and lose the packet at a place; returns whether to go on."""
    if not _try_all(world, search, number, _code(codes.DELIVER, place, 0)):
        return False
    entries = carray(pointer(world.from_entries), (w.MAX_ENTRIES,), np.uint32)
    packet = np.int64(entries[place]) >> w.PACKET_SHIFT
    label = np.int64(entries[place]) >> w.LABEL_SHIFT & 15
    to_worker = packet_of(world, packet).to == w.TO_WORKER
    # The STATUS answers a PROBE.
    if to_worker and label != 0 and packet_kind(world, packet)[0] == KIND_STATUS:
        tired = _code(codes.DELIVER, place, codes.TIRED)
        if world.attrition and not _try_all(world, search, number, tired):
            return False
        answered = _code(codes.DELIVER, place, codes.ANSWERED)
        again = world.copies == 0 and label != w.DEAD
        if again and not _try_all(world, search, number, answered):
            return False
    if world.copies == 0:
        return True
    return _try_all(world, search, number, _code(codes.KEEP, place, 0)) and _try(
        world, search, number, _code(codes.LOSE, place, 0)
    )


@compiled
def _try_packets(world: Record, search: Record, number: Integer) -> None:
    """Make the steps of all packets, but for those to a switch that are known to add nothing."""
    entries = carray(pointer(world.from_entries), (w.MAX_ENTRIES,), np.uint32)
    useful = carray(pointer(world.useful), (w.MAX_ENTRIES,), np.uint8)
    tried = carray(pointer(world.snapshot), (w.MAX_ENTRIES,), np.uint32)
    at = np.int64(0)
    for each in range(world.from_count):
        place = np.int64(each)
        packet = np.int64(entries[place]) >> w.PACKET_SHIFT
        if world.reduce != 0 and packet_of(world, packet).to != w.TO_WORKER:
            while at < world.snapshot_count and tried[at] < entries[place]:
                at += 1
            if at < world.snapshot_count and tried[at] == entries[place] and useful[at] == 0:
                continue
        if not _try_packet(world, search, number, place):
            return


@compiled
def _expand(world: Record, search: Record, number: Integer) -> None:
    """Make every step from the state that was taken, until one shows that no other is needed."""
    if world.reduce and not _try(world, search, number, _code(codes.SATURATE, 0, 0)):
        return
    if not _try_workers(world, search, number):
        return
    if world.epochs > 1 and not _try_control(world, search, number):
        return
    _try_packets(world, search, number)


@compiled
def check_parts(world: Record, search: Record, budget: Integer) -> Integer:
    """Check `count` parts; returns EXHAUSTED, PAUSED or FOUND."""
    size = np.int64(part_bytes(world))
    for _ in range(budget):
        if search.part_checked == search.part_count:
            return np.int64(EXHAUSTED)
        result = check_part(world, search.parts + search.part_checked * size, search.blank)
        if result < 0:
            search.found = result
            return np.int64(FOUND)
        search.part_checked += 1
    return np.int64(PAUSED)
