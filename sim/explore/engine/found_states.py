"""The states that were found: kept in an arena if they are new.

States lie in the arena as records of variable length. For each state its parent and the step from it are kept, so that a
schedule that leads to it can be reconstructed.

Where packets may arrive any number of times, or never, a state with more packets in flight can make every step
that the same state with fewer can make. So a state whose packets are a part of those of another one, all else equal, is left out
(`subsume`). States that are equal but for their packets are linked from their first one.
"""

# mypy: disable-error-code="no-any-return"

from typing import Final

import numpy as np
from numba import carray

from netsum_common.compiled import Integer, Record, compiled, compiled_inline
from netsum_common.memory import copy_bytes, pointer
from sim.explore.engine import world as w
from sim.explore.engine.fair import FAIR_ROUNDS, fair_end, someone_is_dead
from sim.explore.engine.names import check_names
from sim.explore.engine.packets import contains
from sim.explore.engine.packing import host_at, tables_at
from sim.explore.engine.symmetry import permute_fixed, stand_in
from sim.explore.engine.views import entries_of, state_of
from sim.explore.engine.visited import hash_bytes, insert

BREADTH_FIRST, DEPTH_FIRST, LARGEST_FIRST = range(3)

LEVELS: Final = 1024
COUNTS: Final = 256
"""LARGEST_FIRST: number of progress buckets and of packet-count buckets."""

RECORD_BYTES: Final = 32
"""Size of a record's header, in words of 32 bits: bytes in all, packets, the state's number, whether it was dropped; then, 64
bits each, one more than the offsets of the next record that is equal but for its packets, and of the next in the same
bucket. The bytes stand at the record's end again."""

SEARCH: Final = np.dtype(
    [
        (name, np.int64)
        for name in (
            *("head", "tail", "arena", "arena_bytes", "keys", "mask", "states", "capacity", "parents"),
            *("codes",),
            *("ends", "ends_mask", "ends_count", "order", "liveness", "subsume", "blank", "work", "seen"),
            *("buckets", "tops", "low", "waiting"),
            *("parts", "part_room", "part_count", "part_checked", "part_keys", "part_mask"),
            *("expanded", "saturated", "subsumed", "dropped", "found", "found_state", "found_code"),
            *("longest",),
        )
    ]
)
"""The search: an arena from head to tail, a table of `states` hashes, parents and steps, and a table of states without packets:
hash, hash, one more than the offset of the first record."""


@compiled_inline
def words_of(search: Record) -> Record:
    """Return the arena as words of 32 bits."""
    return carray(pointer(search.arena), (search.arena_bytes // 4,), np.uint32)


@compiled_inline
def links_of(search: Record) -> Record:
    """Return the arena as words of 64 bits."""
    return carray(pointer(search.arena), (search.arena_bytes // 8,), np.int64)


@compiled
def emit(world: Record, search: Record, parent: Integer, code: Integer) -> bool:
    """Keep the state that is worked on if it is new; returns whether to go on."""
    stand_in(world)
    entries = entries_of(world)
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
    arena = words_of(search)
    arena[at // 4] = np.uint32(size)
    arena[at // 4 + 1] = np.uint32(count)
    arena[at // 4 + 2] = np.uint32(number)
    arena[at // 4 + 3] = np.uint32(0)
    links = links_of(search)
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
    """Return how far the workers and the switches are, from 0 to LEVELS - 1. Only the order of the search depends on it."""
    state = state_of(world)
    total = 8 * (np.int64(state[w.AT_KILLS]) + state[w.AT_RESTARTS])
    for switch in range(world.switches):
        total += 8 * np.int64(state[tables_at(switch)])
    for host in range(world.hosts):
        at = host_at(world, host)
        total += 2 * np.int64(state[at + w.AT_NEXT]) + state[at + w.AT_DONE] + state[at + w.AT_BEGUN]
        total += 64 * np.int64(state[at + w.AT_EPOCH])
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
    """Keep each worker's block with the head and the switch, or of a tree all of them, if that is new, for `check_parts`."""
    work = carray(pointer(search.work), (2,), np.uint64)
    keys = carray(pointer(search.part_keys), (search.part_mask + 1, 2), np.uint64)
    front = w.HEAD_BYTES + world.switch_bytes
    size = np.int64(part_bytes(world))
    for host in range(world.hosts if world.switches == 1 else 1):
        part = search.parts + search.part_count * size
        carray(pointer(part), (size,), np.uint8)[:] = np.uint8(0)
        carray(pointer(part), (1,), np.uint8)[0] = np.uint8(host)
        if world.switches > 1:
            copy_bytes(np.uintp(part + 1), np.uintp(world.state), np.uintp(world.fixed_bytes))
        else:
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
    """Return the size of a part: a worker's number, the head, the switch and the worker's block, padded to 8 bytes.

    The effect of a packet between switches depends on all of them, so in a tree a part is the whole state but its packets.
    """
    if world.switches > 1:
        return (1 + world.fixed_bytes + 7) // 8 * 8
    return (1 + w.HEAD_BYTES + world.switch_bytes + world.host_bytes + 7) // 8 * 8


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
    mine = entries_of(world)
    words, links = words_of(search), links_of(search)
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
    copy_bytes(np.uintp(world.least), np.uintp(world.state), np.uintp(world.fixed_bytes))
    # The network serves workers in the order of their numbers, so each order is another run.
    for which in range(world.permutations):
        if which > 0 and not permute_fixed(world, np.int64(which), world.least, world.state):
            break
        result = fair_end(world, table, search.ends_mask, search.blank, seen, work)
        if result == w.STUCK and someone_is_dead(world):
            result = check_names(world)
        if result < 0:
            search.found = result
            search.found_state = number
            search.found_code = 0
            return False
    return True
