"""Permutations of interchangeable workers: their effect on a state, and the state that stands for all permuted ones.

Permutation 0 leaves everything in place. A permutation moves each worker's block whole, a worker's bit in each bitmap, and
all that belongs to a worker: its addresses, its number, and, in lanes, its values. Lanes hold the sum over a set of workers
in a round; the permuted set has another sum (`world.sums`). Where lanes hold anything else, as with a fault, no
permutation is made, and the state stands for itself.
"""

# mypy: disable-error-code="no-any-return"

from typing import Final

import numpy as np
from numba import carray

from host_agent.wire.constants import (
    FLAG_LANES,
    HEADER_BYTES,
    HEADER_OFFSET_WORKER_ID,
    KIND_CONTRIBUTE,
    KIND_RESULT,
    KIND_STATUS,
    STATUS_BYTES,
)
from host_agent.wire.header import swap
from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import compare_bytes, copy_bytes, pointer
from sim.explore.engine import world as w
from sim.explore.engine.packets import intern, packet_at, packet_kind
from sim.explore.engine.packing import host_at, quorum_chunk_at
from sim.explore.engine.views import entries_of, packet_of, state_of
from sim.explore.engine.visited import mixed
from sim.frames import HEADERS_BYTES, IPV4_DESTINATION

_ETHERNET_SOURCE: Final = 6
_IPV4_SOURCE: Final = IPV4_DESTINATION - 4
_IPV4_CHECKSUM: Final = IPV4_DESTINATION - 6


@compiled
def stand_in(world: Record) -> Integer:
    """Replace the state that is worked on by the one that stands for all its permutations; returns which one led there.

    That is the one in which the keys of workers that may change places are in order (`_find_keys`), and of several the one
    whose bytes are least.
    """
    if world.permutations == 1 or not _find_keys(world):
        return np.int64(0)
    size = np.uintp(world.fixed_bytes + 4 * world.entry_count)
    best, made = np.int64(0), np.int64(0)  # the best one, and which one stands in `least`
    copy_bytes(np.uintp(world.least), np.uintp(world.state), size)
    for which in range(1, world.permutations):
        order = _compare_keys(world, np.int64(which), best)
        if order < 0:
            best = np.int64(which)
        elif order == 0:
            if made != best and not permute(world, best, world.state, world.entry_count, world.least):
                return np.int64(0)
            made = best
            if not permute(world, np.int64(which), world.state, world.entry_count, world.turned):
                return np.int64(0)
            if compare_bytes(np.uintp(world.turned), np.uintp(world.least), size) < 0:
                world.least, world.turned = world.turned, world.least
                best = made = np.int64(which)
    if made != best and not permute(world, best, world.state, world.entry_count, world.least):
        return np.int64(0)
    copy_bytes(np.uintp(world.state), np.uintp(world.least), size)
    return best


@compiled
def _find_keys(world: Record) -> bool:
    """Hash each worker's block, bits and packets. Returns False if there is a packet with unknown lanes.

    A worker keeps both hashes under any permutation.
    """
    keys = carray(pointer(world.keys), (world.hosts, 2), np.uint64)
    cells = carray(pointer(world.seen_at), (world.seen_cells, 2), np.int64)
    state = state_of(world)
    size = world.host_bytes - (2 * world.rounds if world.quorum != 0 else 0)
    for host in range(world.hosts):
        at = world.state + host_at(world, host)
        value = np.uint64(0)
        for word in range(0, size - 7, 8):
            value = mixed(value ^ carray(pointer(at + word), (1,), np.uint64)[0])
        value = mixed(value ^ carray(pointer(at + size - 8), (1,), np.uint64)[0])
        for cell in range(world.seen_cells):
            bit = host - cells[cell, 1]
            if 0 <= bit < world.workers:
                seen = carray(pointer(world.state + cells[cell, 0]), (1,), np.uint32)[0]
                value = value << np.uint64(1) | value >> np.uint64(63)
                value ^= np.uint64(seen >> np.uint32(bit) & np.uint32(1))
        if world.quorum != 0:
            quorum_chunk = quorum_chunk_at(world, host)
            for number in range(world.rounds):
                mine = np.int64(state[quorum_chunk + 2 * number + 1]) >> host & 1
                value = mixed(value ^ np.uint64(state[quorum_chunk + 2 * number] * 2 + mine))
        keys[host, 0] = mixed(value)
        keys[host, 1] = np.uint64(0)
    entries = entries_of(world)
    for place in range(world.entry_count):
        entry = np.int64(entries[place])
        packet = entry >> w.PACKET_SHIFT
        orbit = _orbit(world, packet)
        if orbit < 0:
            return False
        rest = entry & ((1 << w.PACKET_SHIFT) - 1)
        keys[packet_of(world, packet).port, 1] += mixed(np.uint64(orbit << w.PACKET_SHIFT | rest))
    return True


@compiled
def _compare_keys(world: Record, one: Integer, other: Integer) -> Integer:
    """Return a number below 0 if the keys that one permutation makes come before another's, 0 if they are the same."""
    keys = carray(pointer(world.keys), (world.hosts, 2), np.uint64)
    origins = carray(pointer(world.origins), (world.permutations, world.hosts), np.uint8)
    for host in range(world.hosts):
        for each in range(2):
            first, second = keys[origins[one, host], each], keys[origins[other, host], each]
            if first != second:
                return np.int64(-1 if first < second else 1)
    return np.int64(0)


@compiled
def permute(world: Record, which: Integer, source: Integer, count: Integer, target: Integer) -> bool:
    """Write the permuted state with `count` packets; returns False if it is not known."""
    if not permute_fixed(world, which, source, target):
        return False
    given = carray(pointer(source + world.fixed_bytes), (count,), np.uint32)
    made = carray(pointer(target + world.fixed_bytes), (count,), np.uint32)
    for each in range(count):
        entry = np.int64(given[each])
        number = image_of(world, which, entry >> w.PACKET_SHIFT)
        if number < 0:
            return False
        moved = np.uint32(number << w.PACKET_SHIFT | entry & ((1 << w.PACKET_SHIFT) - 1))
        place = each
        while place > 0 and made[place - 1] > moved:
            made[place] = made[place - 1]
            place -= 1
        made[place] = moved
    return True


@compiled
def permute_fixed(world: Record, which: Integer, source: Integer, target: Integer) -> bool:
    """Write the permuted state without its packets; returns False if it is not known."""
    places = carray(pointer(world.places), (world.permutations, world.hosts), np.uint8)
    copy_bytes(np.uintp(target), np.uintp(source), np.uintp(world.fixed_bytes))
    for host in range(world.hosts):
        copy_bytes(
            np.uintp(target + host_at(world, np.int64(places[which, host]))),
            np.uintp(source + host_at(world, host)),
            np.uintp(world.host_bytes),
        )
    cells = carray(pointer(world.seen_at), (world.seen_cells, 2), np.int64)
    for cell in range(world.seen_cells):
        seen = carray(pointer(target + cells[cell, 0]), (1,), np.uint32)
        seen[0] = np.uint32(_permuted_workers(world, which, cells[cell, 1], np.int64(seen[0])))
    places_of_lanes = carray(pointer(world.lanes_at), (world.lane_cells, w.ELEMENTS), np.int64)
    for cell in range(world.lane_cells):
        one = carray(pointer(target + places_of_lanes[cell, 0]), (1,), np.uint32)
        other = carray(pointer(target + places_of_lanes[cell, 1]), (1,), np.uint32)
        number = _permuted_sum(world, which, one[0], other[0])
        if number < 0:
            return False
        sums = carray(pointer(world.sums + number * w.ELEMENTS * 4), (w.ELEMENTS,), np.uint32)
        one[0], other[0] = sums[0], sums[1]
    if world.quorum != 0:
        state = carray(pointer(target), (world.fixed_bytes,), np.uint8)
        for host in range(world.hosts):
            for number in range(world.rounds):
                at = quorum_chunk_at(world, host) + 2 * number + 1
                state[at] = np.uint8(_permuted_workers(world, which, np.int64(0), np.int64(state[at])))
    return True


@compiled
def _permuted_workers(world: Record, which: Integer, first: Integer, workers: Integer) -> Integer:
    """Return the bitmap of the workers that a permutation makes of those of a bitmap, of the job whose first host is `first`."""
    places = carray(pointer(world.places), (world.permutations, world.hosts), np.uint8)
    moved = workers >> world.workers << world.workers
    for worker in range(world.workers):
        moved |= (workers >> worker & 1) << (np.int64(places[which, first + worker]) - first)
    return moved


@compiled
def _permuted_sum(world: Record, which: Integer, one: Integer, other: Integer) -> Integer:
    """Return the number of the sum that a permutation makes of one, given by its two elements; -1 if it is none."""
    keys = carray(pointer(world.sum_keys), (world.sum_count,), np.uint64)
    key = np.uint64(one) << np.uint64(32) | np.uint64(other)
    low, high = np.int64(0), world.sum_count
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    if low == world.sum_count or keys[low] != key:
        return np.int64(-1)
    number = carray(pointer(world.sum_numbers), (world.sum_count,), np.int64)[low]
    first = (number >> world.workers) // world.rounds * world.workers
    workers = number & ((1 << world.workers) - 1)
    return number - workers + _permuted_workers(world, which, first, workers)


@compiled
def image_of(world: Record, which: Integer, number: Integer) -> Integer:
    """Return the number of the packet that a permutation makes of a packet; -1 if that is not known."""
    if _orbit(world, number) < 0:
        return np.int64(-1)
    images = carray(pointer(world.images), (w.MAX_PACKETS, world.permutations + 1), np.int32)
    return np.int64(images[number, which])


@compiled
def _orbit(world: Record, number: Integer) -> Integer:
    """Return the least number of all permutations of a packet; -1 if they are not known."""
    images = carray(pointer(world.images), (w.MAX_PACKETS, world.permutations + 1), np.int32)
    if images[number, world.permutations] == 0:
        least = number
        for which in range(world.permutations):
            image = _find_image(world, np.int64(which), number)
            images[number, which] = image
            least = min(least, image)
        images[number, world.permutations] = least + 1 if least >= 0 else -1
    return np.int64(images[number, world.permutations])


@compiled
def _find_image(world: Record, which: Integer, number: Integer) -> Integer:
    places = carray(pointer(world.places), (world.permutations, world.hosts), np.uint8)
    packet = packet_of(world, number)
    length, way, owner, port = packet.length, packet.way, packet.owner, packet.port
    first = port // world.workers * world.workers
    host = np.int64(places[which, port])
    copy_bytes(np.uintp(world.in_frame), np.uintp(packet_at(world, number)), np.uintp(length))
    data = carray(pointer(world.in_frame), (length,), np.uint8)
    own = carray(pointer(world.headers), (world.hosts, 3, HEADERS_BYTES), np.uint8)[host, 2]
    ethernet, ipv4 = (0, IPV4_DESTINATION) if way == w.DOWN else (_ETHERNET_SOURCE, _IPV4_SOURCE)
    total = 0xFFFF - (np.int64(data[_IPV4_CHECKSUM]) << 8 | np.int64(data[_IPV4_CHECKSUM + 1]))
    for each in (0, 2):
        for frame, begin, sign in ((own, IPV4_DESTINATION, 1), (data, ipv4, -1)):
            total += sign * (np.int64(frame[begin + each]) << 8 | np.int64(frame[begin + each + 1]))
    total = 0xFFFF - total % 0xFFFF
    data[_IPV4_CHECKSUM], data[_IPV4_CHECKSUM + 1] = np.uint8(total >> 8), np.uint8(total)
    data[ethernet : ethernet + 6] = own[0:6]
    data[ipv4 : ipv4 + 4] = own[IPV4_DESTINATION : IPV4_DESTINATION + 4]
    worker = HEADERS_BYTES + HEADER_OFFSET_WORKER_ID
    if data[worker] < world.workers:
        data[worker] = np.uint8(places[which, first + data[worker]] - first)
    kind, flags, quorum = packet_kind(world, number)
    words = carray(pointer(world.in_frame + HEADERS_BYTES + HEADER_BYTES), (4,), np.uint32)
    at = np.int64(0)
    if kind == KIND_STATUS or (kind == KIND_RESULT and quorum != 0):
        words[0] = swap(np.uint32(_permuted_workers(world, which, first, np.int64(swap(words[0])))))
        at = np.int64(STATUS_BYTES // 4)
    if flags & FLAG_LANES and kind in (KIND_CONTRIBUTE, KIND_RESULT):
        moved = _permuted_sum(world, which, np.int64(swap(words[at])), np.int64(swap(words[at + 1])))
        if moved < 0:
            return np.int64(-1)
        sums = carray(pointer(world.sums + moved * w.ELEMENTS * 4), (w.ELEMENTS,), np.uint32)
        words[at], words[at + 1] = swap(sums[0]), swap(sums[1])
    if owner >= 0:
        owner = np.int64(places[which, owner])
    return intern(world, way, owner, host, world.in_frame, length)
