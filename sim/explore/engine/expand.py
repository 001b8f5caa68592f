"""The search: take a state, make every step from it, keep what is new.

States lie in an arena as records of variable length. For each state its parent and the step from it are kept, so that a
way to it can be told.

Where packets may arrive any number of times, or never, a state with more packets in flight can do whatever the same
state with fewer can. So a state whose packets are a part of those of another one, all else equal, is left out
(`subsume`). States that are equal but for their packets are linked from their first one. Breadth first finds shortest
ways; largest first, in which the state with the most packets is expanded next, leaves out the most.
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
from sim.explore.engine.fair import FAIR_ROUNDS, fair_end
from sim.explore.engine.names import check_names
from sim.explore.engine.packets import packet_kind, remove_copy
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
    AT_KILLS,
    AT_LIFE,
    AT_TABLES,
    DEAD,
    DOWN,
    HEAD_BYTES,
    LABEL_SHIFT,
    MAX_ENTRIES,
    MAX_PACKETS,
    NOTHING,
    PACKET_SHIFT,
    STUCK,
    UP,
)

__all__ = [
    "BREADTH_FIRST",
    "DEPTH_FIRST",
    "EXHAUSTED",
    "FOUND",
    "LARGEST_FIRST",
    "MORE_ROOM",
    "PAUSED",
    "SEARCH",
    "apply",
    "check_end",
    "emit",
    "explore",
]

EXHAUSTED, PAUSED, MORE_ROOM, FOUND = range(4)
"""Why `explore` came back: nothing is left; as many states as asked were expanded; memory is short; a violation."""

BREADTH_FIRST, DEPTH_FIRST, LARGEST_FIRST = range(3)

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
            *("buckets", "top", "waiting"),
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
    kind, what, how = code >> KIND_SHIFT, code >> WHAT_SHIFT & 0xFFFF, code & 0x3FF
    world.steps += 1
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
    """Deliver to the switch every packet that changes nothing in it; returns whether answers have come of it.

    As packets may arrive any number of times, or never, the state with the answers can do whatever the one without them can.
    """
    ways = carray(pointer(world.ways), (MAX_PACKETS,), np.int8)
    before = carray(pointer(world.from_entries), (MAX_ENTRIES,), np.uint32)
    added = False
    for place in range(world.from_count):
        entry = np.int64(before[place])
        if ways[entry >> PACKET_SHIFT] != UP:
            continue
        count = world.entry_count
        restore_switch(world)
        result = deliver_up(world, entry)
        if result < 0:
            return result
        if result == NOTHING:
            continue
        if _registers_differ(world):
            # Take it back: the registers, and the answers, all of which are new.
            copy_bytes(np.uintp(world.state), np.uintp(world.from_state), np.uintp(world.fixed_bytes))
            copy_bytes(np.uintp(world.entries), np.uintp(world.queue), np.uintp(4 * count))
            world.entry_count = count
        else:
            added = True
            copy_bytes(np.uintp(world.queue), np.uintp(world.entries), np.uintp(4 * world.entry_count))
    return np.int64(1 if added else 0)


@compiled
def _registers_differ(world: Record) -> bool:
    now = carray(pointer(world.state), (world.fixed_bytes,), np.uint8)
    then = carray(pointer(world.from_state), (world.fixed_bytes,), np.uint8)
    for each in range(HEAD_BYTES, HEAD_BYTES + world.switch_bytes):  # noqa: SIM110 - compiled code has no generators
        if now[each] != then[each]:
            return True
    return False


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
        buckets = carray(pointer(search.buckets), (MAX_ENTRIES,), np.int64)
        while buckets[search.top] == 0:
            search.top -= 1
        at = buckets[search.top] - 1
        buckets[search.top] = _links(search)[at // 8 + 3]
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
    return emit(world, search, number, code)


@compiled
def _expand(world: Record, search: Record, number: Integer) -> None:
    entries = carray(pointer(world.from_entries), (MAX_ENTRIES,), np.uint32)
    ways = carray(pointer(world.ways), (MAX_PACKETS,), np.int8)
    state = carray(pointer(world.from_state), (world.fixed_bytes,), np.uint8)
    if world.reduce:
        reset(world)
        copy_bytes(np.uintp(world.queue), np.uintp(world.entries), np.uintp(4 * world.entry_count))
        result = _saturate(world)
        world.steps += 1
        code = step_code(np.int64(SATURATE), np.int64(0), np.int64(0))
        if result < 0:
            search.found, search.found_state, search.found_code = result, number, code
            return
        if result != NOTHING:
            search.saturated += 1
            emit(world, search, number, code)
            return
    for place in range(world.from_count):
        packet = np.int64(entries[place]) >> PACKET_SHIFT
        label = np.int64(entries[place]) >> LABEL_SHIFT & 15
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
        _try(world, search, number, step_code(np.int64(RESTART), np.int64(0), np.int64(0)))


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
    if known and search.subsume and _is_subsumed(world, search, np.int64(ends[place, 2]) - 1):
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
        buckets = carray(pointer(search.buckets), (MAX_ENTRIES,), np.int64)
        links[at // 8 + 3] = buckets[count]
        buckets[count] = at + 1
        search.top = max(search.top, count)
    if known:
        if search.subsume:
            links[at // 8 + 2] = np.int64(ends[place, 2])
            ends[place, 2] = np.uint64(at + 1)
        return True
    own0, own1 = work[2], work[3]
    if search.liveness and not check_end(world, search, number):
        return False
    # The run to the end has used the table, but added nothing to it.
    ends[place, 0] = own0
    ends[place, 1] = own1
    ends[place, 2] = np.uint64(at + 1)
    search.ends_count += 1
    return True


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
def _is_subsumed(world: Record, search: Record, at: Integer) -> bool:
    """Whether a record from `at` on holds all packets of the state that is worked on; drops those that hold fewer."""
    mine = carray(pointer(world.entries), (MAX_ENTRIES,), np.uint32)
    words, links = _words(search), _links(search)
    while at >= 0:
        count = np.int64(words[at // 4 + 1])
        first = (at + RECORD_BYTES + world.fixed_bytes) // 4
        theirs = words[first : first + count]
        if count >= world.entry_count:
            if _contains(theirs, count, mine, world.entry_count):
                return True
        elif search.order == LARGEST_FIRST and _contains(mine, world.entry_count, theirs, count):
            words[at // 4 + 3] = np.uint32(1)
        at = links[at // 8 + 2] - 1
    return False


@compiled
def _contains(large: Record, large_count: Integer, small: Record, small_count: Integer) -> bool:
    """Whether a sorted array contains all of another."""
    at = np.int64(0)
    for each in range(small_count):
        while at < large_count and large[at] < small[each]:
            at += 1
        if at == large_count or large[at] != small[each]:
            return False
        at += 1
    return True


@compiled
def check_end(world: Record, search: Record, number: Integer) -> bool:
    """See whether a new state leads to the end when its packets are lost."""
    work = carray(pointer(search.work), (2,), np.uint64)
    table = carray(pointer(search.ends), (search.ends_mask + 1, 3), np.uint64)
    state = carray(pointer(world.state), (world.fixed_bytes,), np.uint8)
    mourning = state[AT_KILLS] > 0 and state[AT_TABLES] == 0
    seen = carray(pointer(search.seen), (FAIR_ROUNDS, 2), np.uint64)
    result = fair_end(world, table, search.ends_mask, search.blank, seen, work)
    if result == STUCK and mourning:
        result = check_names(world)
    if result < 0:
        search.found = result
        search.found_state = number
        search.found_code = 0
        return False
    return True
