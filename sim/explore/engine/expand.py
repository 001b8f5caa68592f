"""The search: take a state, make every step from it, keep what is new.

States lie in an arena as records of variable length. For each state its parent and the step from it are kept, so that a
way to it can be told.

Where packets may arrive any number of times, or never, a state with more packets in flight can do whatever the same
state with fewer can. So a state whose packets are a part of those of another one, all else equal, is left out
(`subsume`). States that are equal but for their packets are linked from their first one. Breadth first finds shortest
ways. Largest first, in which of the states with the least progress the one with the most packets is expanded next,
leaves out the most: when a state is expanded, most of those that are equal but for their packets have been found. With
it, steps that only add packets are made before all others, and then alone (`reduce`).
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Final

import numpy as np

from host_agent.wire.constants import KIND_STATUS
from sim.explore.engine.compiled import (
    Integer,
    Record,
    carray,
    compiled,
    compiled_inline,
    copy_bytes,
    pointer,
)
from sim.explore.engine.fair import FAIR_ROUNDS, fair_end, someone_is_dead
from sim.explore.engine.finished import check_part, leave_out_finished, moved_back
from sim.explore.engine.names import check_names
from sim.explore.engine.packets import contains, merge_labels, packet_kind, remove_copy
from sim.explore.engine.packing import host_at, unpack
from sim.explore.engine.steps import (
    ANSWERED,
    BEGIN,
    CONTROL,
    DELIVER,
    DRIVE,
    JOIN,
    KEEP,
    KILL,
    KIND_SHIFT,
    LOSE,
    RESTART,
    SATURATE,
    TIRED,
    WHAT_SHIFT,
    begin,
    control,
    deliver_down,
    deliver_up,
    drive,
    join,
    kill,
    restart_switch,
    restore_switch,
    step_code,
    timers_of,
)
from sim.explore.engine.visited import hash_bytes, insert
from sim.explore.engine.world import (
    ALIVE,
    AT_BEGUN,
    AT_DONE,
    AT_EPOCH,
    AT_KILLS,
    AT_LIFE,
    AT_NEXT,
    AT_RESTARTS,
    AT_TABLES,
    DEAD,
    DOWN,
    HEAD_BYTES,
    LABEL_SHIFT,
    LEFT_OUT_WRONGLY,
    MAX_ENTRIES,
    MAX_PACKETS,
    NOTHING,
    PACKET_SHIFT,
    STUCK,
    UP,
)

__all__ = [
    "BREADTH_FIRST",
    "COUNTS",
    "DEPTH_FIRST",
    "EXHAUSTED",
    "FOUND",
    "LARGEST_FIRST",
    "LEVELS",
    "MORE_ROOM",
    "PAUSED",
    "SEARCH",
    "apply",
    "check_end",
    "check_parts",
    "emit",
    "explore",
    "part_bytes",
]

EXHAUSTED, PAUSED, MORE_ROOM, FOUND = range(4)
"""Why `explore` came back: nothing is left; as many states as asked were expanded; memory is short; a violation."""

BREADTH_FIRST, DEPTH_FIRST, LARGEST_FIRST = range(3)

LEVELS: Final = 1024
COUNTS: Final = 256
"""Of `LARGEST_FIRST`: measures of progress, and numbers of packets, that are told apart."""

RECORD_BYTES: Final = 32
"""Of a record's header, in words of 32 bits: bytes in all, packets, the state's number, whether it was dropped; then, 64
bits each, one more than the offsets of the next record that is equal but for its packets, and of the next in the same
bucket. The bytes stand at the record's end again."""

SEARCH: Final = np.dtype(
    [
        (name, np.int64)
        for name in (
            *(
                "head",
                "tail",
                "arena",
                "arena_bytes",
                "keys",
                "mask",
                "states",
                "capacity",
                "parents",
                "codes",
            ),
            *("ends", "ends_mask", "ends_count", "order", "liveness", "subsume", "blank", "work", "seen"),
            *("buckets", "tops", "low", "waiting"),
            *("parts", "part_room", "part_count", "part_checked", "part_keys", "part_mask"),
            *(
                "expanded",
                "saturated",
                "subsumed",
                "dropped",
                "found",
                "found_state",
                "found_code",
                "longest",
            ),
        )
    ]
)
"""The search: an arena from head to tail, a table of `states` hashes, parents and steps, and a table of states without packets:
hash, hash, one more than the offset of the first record."""


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
def apply(world: Record, code: Integer, blank: Integer) -> Integer:
    """Make a step from the state that is worked on; returns NOTHING, CHANGED, or what is violated."""
    world.steps += 1
    result = _make(world, code, blank)
    if result < 0:
        return result
    if world.collect != 0:
        if moved_back(world):
            return np.int64(LEFT_OUT_WRONGLY)
        leave_out_finished(world)
    if world.merge != 0:
        merge_labels(world)
    return result


@compiled
def _make(world: Record, code: Integer, blank: Integer) -> Integer:
    kind, what, how = code >> KIND_SHIFT, code >> WHAT_SHIFT & 0xFFFF, code & 0x3FF
    if kind in (DELIVER, KEEP, LOSE):
        entry = np.int64(carray(pointer(world.entries), (MAX_ENTRIES,), np.uint32)[what])
        if world.copies > 0 and kind != KEEP:
            remove_copy(world, what)
        if kind == LOSE:
            return np.int64(1)
        ways = carray(pointer(world.ways), (MAX_PACKETS,), np.int8)
        if ways[entry >> PACKET_SHIFT] == UP:
            restore_switch(world)
            result = deliver_up(world, entry)
        else:
            result = deliver_down(world, entry, how)
        if result == NOTHING and world.copies > 0 and kind != KEEP:
            return np.int64(1)
        return result
    if kind == DRIVE:
        return drive(world, what, how)
    if kind == BEGIN:
        return begin(world, what)
    if kind == KILL:
        return kill(world, what)
    if kind == JOIN:
        return join(world, what, blank)
    if kind == CONTROL:
        return control(world)
    if kind == RESTART:
        return restart_switch(world)
    return _saturate(world)


@compiled
def _saturate(world: Record) -> Integer:
    """Make every sending of a worker and every delivery to the switch that does nothing but add packets.

    As packets may arrive any number of times, or never, the state with the answers can do whatever the one without them
    can. `snapshot` and `useful` are left to say which packets change the switch.
    """
    ways = carray(pointer(world.ways), (MAX_PACKETS,), np.int8)
    useful = carray(pointer(world.useful), (MAX_ENTRIES,), np.uint8)
    state = carray(pointer(world.from_state), (world.fixed_bytes,), np.uint8)
    copy_bytes(np.uintp(world.queue), np.uintp(world.entries), np.uintp(4 * world.entry_count))
    for host in range(world.hosts):
        if state[host_at(world, host) + AT_LIFE] != ALIVE:
            continue
        armed = timers_of(world, unpack(world, np.int64(host)))
        chosen = armed
        while True:  # every set of armed timers
            count = world.entry_count
            result = drive(world, np.int64(host), chosen)
            if result < 0:
                return result
            if result != NOTHING:
                _keep_or_undo(world, count)
            if chosen == 0:
                break
            chosen = (chosen - 1) & armed
    held = world.entry_count
    world.snapshot_count = held
    copy_bytes(np.uintp(world.snapshot), np.uintp(world.entries), np.uintp(4 * held))
    before = carray(pointer(world.snapshot), (MAX_ENTRIES,), np.uint32)
    for place in range(held):
        entry = np.int64(before[place])
        useful[place] = np.uint8(0)
        if ways[entry >> PACKET_SHIFT] != UP:
            continue
        count = world.entry_count
        restore_switch(world)
        result = deliver_up(world, entry)
        if result < 0:
            return result
        if result != NOTHING and not _keep_or_undo(world, count):
            useful[place] = np.uint8(1)
    return np.int64(1)


@compiled
def _keep_or_undo(world: Record, count: Integer) -> bool:
    """Keep what a step has added if it has changed nothing else than the packets, of which there were `count`."""
    mine = carray(pointer(world.entries), (MAX_ENTRIES,), np.uint32)
    before = carray(pointer(world.queue), (MAX_ENTRIES,), np.uint32)
    if _only_packets_differ(world) and contains(mine, world.entry_count, before, count):
        copy_bytes(np.uintp(world.queue), np.uintp(world.entries), np.uintp(4 * world.entry_count))
        return True
    copy_bytes(np.uintp(world.state), np.uintp(world.from_state), np.uintp(world.fixed_bytes))
    copy_bytes(np.uintp(world.entries), np.uintp(world.queue), np.uintp(4 * count))
    world.entry_count = count
    return False


@compiled
def _only_packets_differ(world: Record) -> bool:
    now = carray(pointer(world.state), (world.fixed_bytes // 8,), np.uint64)
    then = carray(pointer(world.from_state), (world.fixed_bytes // 8,), np.uint64)
    for each in range(world.fixed_bytes // 8):  # noqa: SIM110 - compiled code has no generators
        if now[each] != then[each]:
            return False
    return True


@compiled
def explore(world: Record, search: Record, budget: Integer) -> Integer:
    """Expand states until there are no more, or `budget` of them have been."""
    for _ in range(budget):
        if search.waiting == 0:
            return np.int64(EXHAUSTED)
        worst = (RECORD_BYTES + 8 + world.fixed_bytes + MAX_ENTRIES) * 1024
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
        number = np.int64(_words(search)[at // 4 + 2])
        search.expanded += 1
        _expand(world, search, number)
        if search.found != 0:
            return np.int64(FOUND)
    return np.int64(PAUSED)


@compiled_inline
def _words(search: Record) -> Record:
    return carray(pointer(search.arena), (search.arena_bytes // 4,), np.uint32)


@compiled_inline
def _links(search: Record) -> Record:
    return carray(pointer(search.arena), (search.arena_bytes // 8,), np.int64)


@compiled
def _take(world: Record, search: Record) -> Integer:
    """Take the next state, to be expanded; returns the offset of its record, or -1 if it was dropped."""
    words = _words(search)
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
        buckets[search.low, top] = _links(search)[at // 8 + 3]
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
    if result == NOTHING:
        return True
    more = world.reduce != 0 and _only_adds(world)
    if more:
        search.saturated += 1
    elif code >> KIND_SHIFT == SATURATE:
        return True
    return emit(world, search, number, code) and not more


@compiled
def _only_adds(world: Record) -> bool:
    """Whether the state that is worked on is the one that is expanded, with more packets: then it can do all that one can."""
    if not _only_packets_differ(world):
        return False
    mine = carray(pointer(world.entries), (MAX_ENTRIES,), np.uint32)
    before = carray(pointer(world.from_entries), (MAX_ENTRIES,), np.uint32)
    if not contains(mine, world.entry_count, before, world.from_count):
        return False
    if world.entry_count != world.from_count:
        return True
    for each in range(world.entry_count):  # noqa: SIM110 - compiled code has no generators
        if mine[each] != before[each]:
            return True
    return False


@compiled
def _expand(world: Record, search: Record, number: Integer) -> None:
    entries = carray(pointer(world.from_entries), (MAX_ENTRIES,), np.uint32)
    ways = carray(pointer(world.ways), (MAX_PACKETS,), np.int8)
    state = carray(pointer(world.from_state), (world.fixed_bytes,), np.uint8)
    useful = carray(pointer(world.useful), (MAX_ENTRIES,), np.uint8)
    tried = carray(pointer(world.snapshot), (MAX_ENTRIES,), np.uint32)
    at = np.int64(0)
    if world.reduce and not _try(
        world, search, number, step_code(np.int64(SATURATE), np.int64(0), np.int64(0))
    ):
        return
    for host in range(world.hosts):
        if state[host_at(world, host) + AT_LIFE] == ALIVE:
            reset(world)
            armed = timers_of(world, unpack(world, np.int64(host)))
            chosen = armed
            while True:  # every set of armed timers
                if not _try(world, search, number, step_code(np.int64(DRIVE), np.int64(host), chosen)):
                    return
                if chosen == 0:
                    break
                chosen = (chosen - 1) & armed
            if not _try(world, search, number, step_code(np.int64(BEGIN), np.int64(host), np.int64(0))):
                return
            if world.kills > state[AT_KILLS] and not _try(
                world, search, number, step_code(np.int64(KILL), np.int64(host), np.int64(0))
            ):
                return
        if world.epochs > 1 and not _try(
            world, search, number, step_code(np.int64(JOIN), np.int64(host), np.int64(0))
        ):
            return
    if world.epochs > 1:
        if not _try(world, search, number, step_code(np.int64(CONTROL), np.int64(0), np.int64(0))):
            return
        if not _try(world, search, number, step_code(np.int64(RESTART), np.int64(0), np.int64(0))):
            return
    for place in range(world.from_count):
        packet = np.int64(entries[place]) >> PACKET_SHIFT
        label = np.int64(entries[place]) >> LABEL_SHIFT & 15
        if world.reduce != 0 and ways[packet] == UP:
            while at < world.snapshot_count and tried[at] < entries[place]:
                at += 1
            if at < world.snapshot_count and tried[at] == entries[place] and useful[at] == 0:
                continue
        if not _try(world, search, number, step_code(np.int64(DELIVER), place, np.int64(0))):
            return
        answers_probe = ways[packet] == DOWN and label != 0 and packet_kind(world, packet)[0] == KIND_STATUS
        tired = step_code(np.int64(DELIVER), place, np.int64(TIRED))
        if world.attrition and answers_probe and not _try(world, search, number, tired):
            return
        answered = step_code(np.int64(DELIVER), place, np.int64(ANSWERED))
        again = world.copies == 0 and answers_probe and label != DEAD
        if again and not _try(world, search, number, answered):
            return
        if world.copies > 0:
            if not _try(world, search, number, step_code(np.int64(KEEP), place, np.int64(0))):
                return
            if not _try(world, search, number, step_code(np.int64(LOSE), place, np.int64(0))):
                return


@compiled
def emit(world: Record, search: Record, parent: Integer, code: Integer) -> bool:
    """Keep the state that is worked on if it is new; returns whether to go on."""
    entries = carray(pointer(world.entries), (MAX_ENTRIES,), np.uint32)
    count = world.entry_count
    if count & 1:
        entries[count] = np.uint32(0)
    words = world.fixed_bytes // 8 + (count + 1) // 2
    work = carray(pointer(search.work), (4,), np.uint64)
    hash_bytes(world.state, words, search.work)
    keys = carray(pointer(search.keys), (search.mask + 1, 2), np.uint64)
    if not insert(keys, search.mask, work[0:2]):
        return True
    place = _place_of_end(world, search)
    ends = carray(pointer(search.ends), (search.ends_mask + 1, 3), np.uint64)
    known = ends[place, 0] != 0
    if known and search.subsume and _is_subsumed(world, search, ends, place):
        search.subsumed += 1
        return True
    number = search.states
    search.states += 1
    search.waiting += 1
    search.longest = max(search.longest, count)
    carray(pointer(search.parents), (search.capacity,), np.uint32)[number] = np.uint32(parent)
    carray(pointer(search.codes), (search.capacity,), np.uint32)[number] = np.uint32(code)
    size = RECORD_BYTES + world.fixed_bytes + 8 * ((count + 1) // 2) + 8
    at = search.tail
    arena = _words(search)
    arena[at // 4] = np.uint32(size)
    arena[at // 4 + 1] = np.uint32(count)
    arena[at // 4 + 2] = np.uint32(number)
    arena[at // 4 + 3] = np.uint32(0)
    links = _links(search)
    links[at // 8 + 2] = 0
    links[at // 8 + 3] = 0
    copy_bytes(
        np.uintp(search.arena + at + RECORD_BYTES),
        np.uintp(world.state),
        np.uintp(world.fixed_bytes + 4 * count),
    )
    search.tail += size
    arena[search.tail // 4 - 1] = np.uint32(size)
    if search.order == LARGEST_FIRST:
        buckets = carray(pointer(search.buckets), (LEVELS, COUNTS), np.int64)
        tops = carray(pointer(search.tops), (LEVELS,), np.int64)
        level, size_class = progress_of(world), min(count, COUNTS - 1)
        links[at // 8 + 3] = buckets[level, size_class]
        buckets[level, size_class] = at + 1
        tops[level] = max(tops[level], size_class)
        search.low = min(search.low, level)
    if known:
        if search.subsume:
            links[at // 8 + 2] = np.int64(ends[place, 2])
            ends[place, 2] = np.uint64(at + 1)
        return True
    own0, own1 = work[2], work[3]
    if world.collect != 0:
        _keep_parts(world, search)
    if search.liveness and not check_end(world, search, number):
        return False
    # The run to the end has used the table, but added nothing to it.
    ends[place, 0] = own0
    ends[place, 1] = own1
    ends[place, 2] = np.uint64(at + 1)
    search.ends_count += 1
    return True


@compiled
def progress_of(world: Record) -> Integer:
    """Return how far the workers and the switch are, from 0 to LEVELS - 1. Only the order of the search depends on it."""
    state = carray(pointer(world.state), (world.fixed_bytes,), np.uint8)
    total = 8 * (np.int64(state[AT_TABLES]) + state[AT_KILLS] + state[AT_RESTARTS])
    for host in range(world.hosts):
        at = host_at(world, host)
        total += 2 * np.int64(state[at + AT_NEXT]) + state[at + AT_DONE] + state[at + AT_BEGUN]
        total += 64 * np.int64(state[at + AT_EPOCH])
    cells = carray(pointer(world.progress_at), (world.progress_cells, 2), np.int64)
    for cell in range(world.progress_cells):
        seen = np.int64(state[cells[cell, 1]])
        while seen != 0:
            seen &= seen - 1
            total += 1
        total += world.workers * ((np.int64(state[cells[cell, 0]]) - world.first_chunk) & 15)
    return min(total, np.int64(LEVELS - 1))


@compiled
def _keep_parts(world: Record, search: Record) -> None:
    """Keep each worker's block with the head and the switch, if that is new, for `check_parts`."""
    work = carray(pointer(search.work), (2,), np.uint64)
    keys = carray(pointer(search.part_keys), (search.part_mask + 1, 2), np.uint64)
    front = HEAD_BYTES + world.switch_bytes
    size = np.int64(part_bytes(world))
    for host in range(world.hosts):
        part = search.parts + search.part_count * size
        carray(pointer(part), (size,), np.uint8)[:] = np.uint8(0)
        carray(pointer(part), (1,), np.uint8)[0] = np.uint8(host)
        copy_bytes(np.uintp(part + 1), np.uintp(world.state), np.uintp(front))
        copy_bytes(
            np.uintp(part + 1 + front),
            np.uintp(world.state + host_at(world, host)),
            np.uintp(world.host_bytes),
        )
        hash_bytes(part, size // 8, search.work)
        if insert(keys, search.part_mask, work):
            search.part_count += 1


@compiled
def part_bytes(world: Record) -> Integer:
    """Return the size of a part: a worker's number, the head, the switch and the worker's block, padded to 8 bytes."""
    return (1 + HEAD_BYTES + world.switch_bytes + world.host_bytes + 7) // 8 * 8


@compiled
def check_parts(world: Record, search: Record, budget: Integer) -> Integer:
    """Check so many parts; returns EXHAUSTED, PAUSED or FOUND."""
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


@compiled
def _place_of_end(world: Record, search: Record) -> Integer:
    """Return where the state that is worked on, without its packets, is in the table, or belongs."""
    work = carray(pointer(search.work), (4,), np.uint64)
    ends = carray(pointer(search.ends), (search.ends_mask + 1, 3), np.uint64)
    hash_bytes(world.state, world.fixed_bytes // 8, np.int64(search.work + 16))
    at = np.int64(work[3] & np.uint64(search.ends_mask))
    while ends[at, 0] != 0 and (ends[at, 0] != work[2] or ends[at, 1] != work[3]):
        at = (at + 1) & search.ends_mask
    return at


@compiled
def _is_subsumed(world: Record, search: Record, ends: Record, place: Integer) -> bool:
    """Whether a record of a list holds all packets of the state that is worked on; drops those that hold fewer."""
    mine = carray(pointer(world.entries), (MAX_ENTRIES,), np.uint32)
    words, links = _words(search), _links(search)
    at = np.int64(ends[place, 2]) - 1
    before = np.int64(-1)
    while at >= 0:
        following = links[at // 8 + 2] - 1
        count = np.int64(words[at // 4 + 1])
        first = (at + RECORD_BYTES + world.fixed_bytes) // 4
        theirs = words[first : first + count]
        if count >= world.entry_count:
            if contains(theirs, count, mine, world.entry_count):
                return True
        elif search.order == LARGEST_FIRST and contains(mine, world.entry_count, theirs, count):
            words[at // 4 + 3] = np.uint32(1)
            if before < 0:
                ends[place, 2] = np.uint64(following + 1)
            else:
                links[before // 8 + 2] = following + 1
            at = following
            continue
        before = at
        at = following
    return False


@compiled
def check_end(world: Record, search: Record, number: Integer) -> bool:
    """See whether a new state leads to the end when its packets are lost."""
    work = carray(pointer(search.work), (2,), np.uint64)
    table = carray(pointer(search.ends), (search.ends_mask + 1, 3), np.uint64)
    seen = carray(pointer(search.seen), (FAIR_ROUNDS, 2), np.uint64)
    result = fair_end(world, table, search.ends_mask, search.blank, seen, work)
    if result == STUCK and someone_is_dead(world):
        result = check_names(world)
    if result < 0:
        search.found = result
        search.found_state = number
        search.found_code = 0
        return False
    return True
