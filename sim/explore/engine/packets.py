"""Packets: each different one is kept once, states hold their numbers.

The number of a PROBE is taken out of it, and of the STATUS that answers it; an entry's label stands for it.
"""

# mypy: disable-error-code="no-any-return"

from typing import Final

import numpy as np
from numba import carray

from host_agent.protocol.records import PROBE_NUMBERS
from host_agent.wire.constants import (
    COMPLETER_UNKNOWN,
    FLAG_MISMATCH,
    HEADER_BYTES,
    HEADER_OFFSET_EXPONENT,
    KIND_PROBE,
    KIND_STATUS,
)
from host_agent.wire.header import HEADER_WORDS, read_header
from netsum_common.compiled import Integer, Record, compiled, compiled_inline
from netsum_common.memory import compare_bytes, copy_bytes, pointer
from sim.explore.engine import world as w
from sim.explore.engine.views import entries_of, packet_of
from sim.frames import HEADERS_BYTES

_INDEX_SIZE: Final = 4 * w.MAX_PACKETS
_NUMBER_AT: Final = HEADERS_BYTES + HEADER_OFFSET_EXPONENT


def index_size() -> int:
    """Return the size of the hash index over packets."""
    return _INDEX_SIZE


@compiled_inline
def packet_at(world: Record, number: Integer) -> Integer:
    """Return the address of a packet's frame."""
    return world.packets + number * world.packet_bytes


@compiled
def _hash(address: Integer, length: Integer, salt: Integer) -> Integer:
    words = carray(pointer(address), (length // 8,), np.uint64)
    data = carray(pointer(address), (length,), np.uint8)
    value = np.uint64(0xCBF29CE484222325) ^ np.uint64(salt)
    for each in range(length // 8):
        value = (value ^ words[each]) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(32)
    for each in range(length & ~7, length):
        value = (value ^ np.uint64(data[each])) * np.uint64(0x100000001B3)
    return np.int64((value ^ (value >> np.uint64(29))) & np.uint64(_INDEX_SIZE - 1))


@compiled
def goes_to(world: Record, way: Integer, port: Integer) -> Integer:
    """Return the switch at which a packet arrives that goes up or down by a port, or TO_WORKER."""
    if port < world.hosts:
        if way == w.UP:
            return carray(pointer(world.leaf_of), (world.hosts,), np.int64)[port]
        return np.int64(w.TO_WORKER)
    if way == w.UP:
        return carray(pointer(world.parents), (world.switches,), np.int64)[port - world.hosts]
    return port - world.hosts


@compiled
def intern(
    world: Record, way: Integer, owner: Integer, port: Integer, frame: Integer, length: Integer
) -> Integer:
    """Return the number of a packet, a new one if it has not been seen; -1 if there are too many."""
    index = carray(pointer(world.index), (_INDEX_SIZE,), np.int32)
    at = _hash(frame, length, way * 64 + port)
    while index[at] != 0:
        number = np.int64(index[at]) - 1
        packet = packet_of(world, number)
        if (
            packet.length == length
            and packet.way == way
            and packet.port == port
            and packet.owner == owner
            and compare_bytes(np.uintp(packet_at(world, number)), np.uintp(frame), np.uintp(length)) == 0
        ):
            return number
        at = (at + 1) & (_INDEX_SIZE - 1)
    number = world.packet_count
    if number >= w.MAX_PACKETS:
        return np.int64(-1)
    world.packet_count += 1
    index[at] = number + 1
    packet = packet_of(world, number)
    packet.length, packet.way, packet.owner, packet.port = length, way, owner, port
    packet.to = goes_to(world, way, port)
    packet.chunk = 0x7FFFFFFF
    if length >= HEADERS_BYTES + HEADER_BYTES:
        header = read_header(carray(pointer(frame + HEADERS_BYTES), (HEADER_WORDS,), np.uint32))
        packet.chunk = np.int64(header[11] - world.first_chunk) & 0x7FFFFFFF
    copy_bytes(np.uintp(packet_at(world, number)), np.uintp(frame), np.uintp(length))
    return number


@compiled
def packet_kind(world: Record, number: Integer) -> tuple[Integer, Integer, Integer]:
    """Return the kind, the flags and the quorum bit of a packet's header."""
    words = carray(pointer(packet_at(world, number) + HEADERS_BYTES), (HEADER_WORDS,), np.uint32)
    header = read_header(words)
    return header[1], header[2], header[4]


@compiled
def datagram_label(world: Record, way: Integer, frame: Integer, length: Integer) -> Integer:
    """Take a PROBE's number out of a frame, and who completed a slot, which decides nothing; return the number, 0 for none."""
    if length < HEADERS_BYTES + HEADER_BYTES:
        return np.int64(0)
    header = read_header(carray(pointer(frame + HEADERS_BYTES), (HEADER_WORDS,), np.uint32))
    kind, flags, number = header[1], header[2], header[12]
    completer = carray(pointer(frame + _NUMBER_AT + 2), (2,), np.uint8)
    completer[0] |= np.uint8(COMPLETER_UNKNOWN >> 8)
    completer[1] = np.uint8(COMPLETER_UNKNOWN & 255)
    if way == w.UP and kind != KIND_PROBE:
        return np.int64(0)
    if way == w.DOWN and (kind != KIND_STATUS or number > PROBE_NUMBERS):
        return np.int64(0)
    data = carray(pointer(frame), (length,), np.uint8)
    data[_NUMBER_AT] = np.uint8(0)
    data[_NUMBER_AT + 1] = np.uint8(0)
    if way == w.DOWN and flags & FLAG_MISMATCH:
        return np.int64(0)  # the number in a MISMATCH is not used
    return number


@compiled
def write_number(world: Record, number: Integer, label: Integer, frame: Integer) -> None:
    """Put the number that a label stands for into a copy of a packet."""
    if label == 0:
        return
    value = np.int64(w.DEAD_NUMBER) if label == w.DEAD else label
    data = carray(pointer(frame), (_NUMBER_AT + 2,), np.uint8)
    data[_NUMBER_AT] = np.uint8(value >> 8)
    data[_NUMBER_AT + 1] = np.uint8(value & 255)


@compiled
def down_owner(world: Record, host: Integer, frame: Integer, length: Integer) -> Integer:
    """Return whose epoch a packet to a host is of, by its token; -1 if of none."""
    if length < HEADERS_BYTES + HEADER_BYTES:
        return np.int64(-1)
    header = read_header(carray(pointer(frame + HEADERS_BYTES), (HEADER_WORDS,), np.uint32))
    tokens = carray(pointer(world.tokens), (world.owners,), np.int64)
    for epoch in range(world.epochs):
        if tokens[host * world.epochs + epoch] == header[7]:
            return np.int64(host * world.epochs + epoch)
    return np.int64(-1)


@compiled_inline
def entry_of(number: Integer, label: Integer) -> Integer:
    """Return an entry with one copy."""
    return number << w.PACKET_SHIFT | label << w.LABEL_SHIFT | 1


@compiled
def add_entry(world: Record, entry: Integer) -> bool:
    """Put a copy of a packet into the state that is worked on; returns whether that changes it."""
    entries = entries_of(world)
    key = entry >> w.LABEL_SHIFT
    low, high = np.int64(0), world.entry_count
    while low < high:
        middle = (low + high) // 2
        if np.int64(entries[middle]) >> w.LABEL_SHIFT < key:
            low = middle + 1
        else:
            high = middle
    if low < world.entry_count and np.int64(entries[low]) >> w.LABEL_SHIFT == key:
        copies = np.int64(entries[low]) & 255
        if copies >= world.copies:
            return False
        entries[low] = np.uint32(key << w.LABEL_SHIFT | copies + 1)
        return True
    for each in range(world.entry_count, low, -1):
        entries[each] = entries[each - 1]
    entries[low] = np.uint32(entry)
    world.entry_count += 1
    return True


@compiled
def contains(large: Record, large_count: Integer, small: Record, small_count: Integer) -> bool:
    """Whether sorted entries hold all of others; a packet with a live label also stands for the one with the label `DEAD`."""
    at = np.int64(0)
    for each in range(small_count):
        while at < large_count and large[at] < small[each]:
            at += 1
        if at < large_count and large[at] == small[each]:
            at += 1
            continue
        dead = np.int64(small[each]) >> w.LABEL_SHIFT & 15 == w.DEAD
        if not dead or at == 0 or large[at - 1] >> w.PACKET_SHIFT != small[each] >> w.PACKET_SHIFT:
            return False
    return True


@compiled
def merge_labels(world: Record) -> None:
    """Take out entries with the label `DEAD` whose packet is also there with a live one.

    A STATUS with a live label is delivered both ways, and a PROBE brings such a STATUS.
    """
    entries = entries_of(world)
    kept = np.int64(0)
    for place in range(world.entry_count):
        entry = np.int64(entries[place])
        if (
            entry >> w.LABEL_SHIFT & 15 == w.DEAD
            and kept > 0
            and np.int64(entries[kept - 1]) >> w.PACKET_SHIFT == entry >> w.PACKET_SHIFT
        ):
            continue
        entries[kept] = entries[place]
        kept += 1
    world.entry_count = kept


@compiled
def remove_copy(world: Record, place: Integer) -> None:
    """Take a copy of the packet at a place out of the state that is worked on."""
    entries = entries_of(world)
    if np.int64(entries[place]) & 255 > 1:
        entries[place] -= np.uint32(1)
        return
    world.entry_count -= 1
    for each in range(place, world.entry_count):
        entries[each] = entries[each + 1]
