"""The heap of events: a 4-ary heap, as two of its nodes share a cache line.

Packets on a link arrive in the order in which they were sent, so only the first packet of each link is in the heap
(`sim.network.engine.links`). The heap stays small even with many packets in flight.

Events are ordered by (time, class, sequence). At the same time, Python's events come first, then arriving packets, then other
events, then workers' timers. Within a class, events are in the order of scheduling, except that timers are in the order of the
workers' numbers: the order must not depend on how often a timer was set.
"""

# mypy: disable-error-code="no-any-return,return-value"

from typing import Final

import numpy as np
from numba import carray

from netsum_common.compiled import Integer, Record, compiled, compiled_inline
from netsum_common.memory import pointer

HEAP_WORDS: Final = 4
CONTROL, ARRIVAL, WORKER_TIMER, FLOW_TIMER, MESSAGE_READY, GENERATE, SWITCH_RESUMES = range(7)
"""Kinds of events. A packet arrives at the end of a link; the others are due at a worker, flow, message, generator or switch."""

_CLASS_SHIFT: Final = 60
_KIND_SHIFT: Final = 56
_TARGET_SHIFT: Final = 32
_TARGET_MASK: Final = 0xFFFFFF
_PACKET_MASK: Final = 0xFFFFFFFF


@compiled_inline
def event_kind(what: Integer) -> Integer:
    """Return the kind of an event."""
    return what >> _KIND_SHIFT


@compiled_inline
def event_target(what: Integer) -> Integer:
    """Return the number of the link, worker or other object that the event concerns."""
    return what >> _TARGET_SHIFT & _TARGET_MASK


@compiled_inline
def event_packet(what: Integer) -> Integer:
    """Return the packet of an event, or another number below 2^32 that the event carries."""
    return what & _PACKET_MASK


@compiled
def push(world: Record, time_ps: Integer, kind: Integer, target: Integer, packet: Integer) -> None:
    """Schedule an event. There must be room in the heap."""
    tie = np.int64(3) << _CLASS_SHIFT | target if kind == WORKER_TIMER else next_tie(world, kind)
    push_tied(world, time_ps, tie, kind, target, packet)


@compiled
def next_tie(world: Record, kind: Integer) -> Integer:
    """Return the tie breaker of an event that is scheduled now, which orders it among events of the same time."""
    order = np.int64(0) if kind == CONTROL else (np.int64(1) if kind == ARRIVAL else np.int64(2))
    world.sequence += 1
    return order << _CLASS_SHIFT | world.sequence


@compiled
def push_tied(
    world: Record, time_ps: Integer, tie: Integer, kind: Integer, target: Integer, packet: Integer
) -> None:
    """Schedule an event with a given tie breaker."""
    heap = carray(pointer(world.heap), (world.heap_room, HEAP_WORDS), np.int64)
    at: Integer = world.heap_count
    world.heap_count += 1
    while at > 0:
        parent = (at - 1) >> 2
        if heap[parent, 0] < time_ps or (heap[parent, 0] == time_ps and heap[parent, 1] < tie):
            break
        heap[at, 0] = heap[parent, 0]
        heap[at, 1] = heap[parent, 1]
        heap[at, 2] = heap[parent, 2]
        at = parent
    heap[at, 0] = time_ps
    heap[at, 1] = tie
    heap[at, 2] = kind << _KIND_SHIFT | target << _TARGET_SHIFT | packet


@compiled_inline
def first_event(world: Record) -> tuple[Integer, Integer]:
    """Return the time and the kind of the first event of a heap that is not empty."""
    heap = carray(pointer(world.heap), (1, HEAP_WORDS), np.int64)
    return heap[0, 0], heap[0, 2]


@compiled
def remove_first(world: Record) -> None:
    """Take the first event off the heap."""
    heap = carray(pointer(world.heap), (world.heap_room, HEAP_WORDS), np.int64)
    world.heap_count -= 1
    count = world.heap_count
    _sink(world, heap[count, 0], heap[count, 1], heap[count, 2])


@compiled
def replace_first(
    world: Record, time_ps: Integer, tie: Integer, kind: Integer, target: Integer, packet: Integer
) -> None:
    """Put another event in the place of the first one."""
    _sink(world, time_ps, tie, kind << _KIND_SHIFT | target << _TARGET_SHIFT | packet)


@compiled
def _sink(world: Record, time_ps: Integer, tie: Integer, what: Integer) -> None:
    """Put an event into a heap whose first place is free."""
    heap = carray(pointer(world.heap), (world.heap_room, HEAP_WORDS), np.int64)
    count = world.heap_count
    at: Integer = np.int64(0)
    while True:
        child = 4 * at + 1
        if child >= count:
            break
        least: Integer = child
        for other in range(child + 1, min(child + 4, count)):
            if heap[other, 0] < heap[least, 0] or (
                heap[other, 0] == heap[least, 0] and heap[other, 1] < heap[least, 1]
            ):
                least = other
        if time_ps < heap[least, 0] or (time_ps == heap[least, 0] and tie < heap[least, 1]):
            break
        heap[at, 0] = heap[least, 0]
        heap[at, 1] = heap[least, 1]
        heap[at, 2] = heap[least, 2]
        at = least
    heap[at, 0] = time_ps
    heap[at, 1] = tie
    heap[at, 2] = what
