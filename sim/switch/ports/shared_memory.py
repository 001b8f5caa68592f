"""Compiled: datagrams of workers on this machine, through rings in memory that the switch shares with each of them.

A port of another driver may have any number of rings beside it: packets for a worker that has one go there, all others to
the port itself. A worker's memory is the worker's: its indices and lengths are copied before they are checked, data is copied
before it is used, and rings whose indices are impossible are not read again.
"""

# The integers of compiled code are NumPy's.
# mypy: disable-error-code="no-any-return,return-value"

from typing import Any, NamedTuple

import numpy as np

from netsum_common.compiled import Array, Integer, compiled, compiled_inline
from netsum_common.frames import (
    ETHERNET_BYTES,
    HEADER_BYTES,
    UDP_BYTES,
    find_datagram,
    get16,
    get32,
    lost,
    write_headers,
)
from netsum_common.memory import (
    copy_bytes,
    fence,
    load32,
    load_acquire,
    prefetch,
    prefetch_to_write,
    store_release,
)
from netsum_common.rings import (
    DOWN_HEAD,
    DOWN_TAIL,
    FOR_DATAGRAMS,
    FOR_ROOM,
    SWITCH_SLEEPS,
    UP_HEAD,
    UP_TAIL,
    WORKER_SLEEPS,
)
from netsum_common.sockets import monotonic_ns, ring_bell, sched_yield
from sim.switch.ports.abi import realtime_ns
from sim.switch.ports.frames import (
    DROPPED_IN,
    DROPPED_OUT,
    OVERSIZED,
    QUEUE_FULL,
    RECEIVED,
    RECEIVED_BYTES,
    SENT,
    SENT_BYTES,
    PortRecord,
)
from sim.switch.ports.kinds import RECEIVERS, TRANSMITTERS, receive, transmit

FREE, ATTACHED, BROKEN, LEFT = range(4)
"""States of rings: BROKEN ones had an impossible index, LEFT ones a worker that has closed its connection."""

RINGS = np.dtype(
    [
        (name, np.int64)
        for name in (
            "state",
            "base",  # where the memory is
            "rows",
            "row_bytes",
            *("up_lengths", "up_rows", "down_lengths", "down_rows"),  # addresses
            *("up_tail", "down_head"),  # the switch's own; their values in the memory are for the worker
            "down_tail",  # how far the worker has read, at the last look
            "unpublished",  # 1: rows were written that the worker cannot see yet
            "bell",  # the worker's eventfd
            "position",  # of the port among the driver's
            "port",
            *("ip", "udp_port"),  # the worker's
        )
    ]
)
"""The two rings of a worker, as the switch keeps them."""

_AHEAD = 4  # Distance of the row that is prefetched: the worker has it in another processor's cache.
SHARE = 32  # Datagrams taken from a worker before the next worker has its turn.
_BATCHES_BETWEEN_LOOKS = 8  # While rings are never empty, the driver below is polled after this many batches.


class MemoryInbox(NamedTuple):
    """Rings, and the inbox of the driver whose ports they are beside."""

    below: Any  # named tuple. The inbox of the driver.
    # rings, used: RINGS[:], int64[1]. The rings, and how many records of them have ever been in use.
    rings: Array
    used: Array
    cursor: Array  # int64[3]. The ring that has the first turn next time, a count of batches, and the last one's datagrams.
    one: Array  # int64[1]. 1.
    # own_ip, own_port: the switch's address as programs see it.
    own_ip: int
    own_port: int
    spin_ns: Array  # int64[2]. How long to look at the rings before sleeping, and after how many datagrams at least.
    record: PortRecord  # The driver's.


class MemoryOutbox(NamedTuple):
    """Rings, and the outbox of the driver whose ports they are beside; as `MemoryInbox`."""

    below: Any
    rings: Array
    used: Array
    one: Array
    record: PortRecord


@compiled
def receive_memory(inbox: MemoryInbox, timeout_ms: Integer) -> Integer:
    """Wait for datagrams in rings, or frames of the driver below, at most `timeout_ms`; return how many frames there are."""
    cursor = inbox.cursor
    cursor[1] += 1
    if cursor[1] % _BATCHES_BETWEEN_LOOKS == 0 or inbox.used[0] == 0:
        count = receive(inbox.below, 0 if inbox.used[0] > 0 else timeout_ms)
        if count > 0 or inbox.used[0] == 0:
            return count
    count = _sweep(inbox)
    if count > 0 or timeout_ms == 0:
        return count
    if inbox.spin_ns[0] > 0 and cursor[2] >= inbox.spin_ns[1]:
        until_ns = monotonic_ns(inbox.record.work) + inbox.spin_ns[0]
        while monotonic_ns(inbox.record.work) < until_ns:
            count = _sweep(inbox)
            if count > 0:
                return count
            sched_yield()
    _set_asleep(inbox, FOR_DATAGRAMS)
    count = _sweep(inbox)
    if count == 0:
        count = receive(inbox.below, timeout_ms)
    _set_asleep(inbox, 0)
    return count if count > 0 else _sweep(inbox)


@compiled
def _set_asleep(inbox: MemoryInbox, asleep: Integer) -> None:
    """Let the workers know whether they must wake the switch."""
    for at in range(inbox.used[0]):
        ring = inbox.rings[at]
        if ring.state == ATTACHED:
            store_release(np.uintp(ring.base + SWITCH_SLEEPS), np.uint32(asleep))
    fence()


@compiled
def _sweep(inbox: MemoryInbox) -> Integer:
    """Make frames of the datagrams in the rings, a share of each worker's in turn."""
    used, capacity = inbox.used[0], inbox.record.frames.shape[0]
    count = np.int64(0)
    more = used > 0
    now_ns = np.int64(0)
    while more and count < capacity:
        more = False
        for turn in range(used):
            at = (inbox.cursor[0] + turn) % used
            if inbox.rings[at].state == ATTACHED:
                if now_ns == 0 and load32(np.uintp(inbox.rings[at].base + UP_HEAD)) != np.uint32(
                    inbox.rings[at].up_tail
                ):
                    now_ns = realtime_ns(inbox.record.work)
                before = count
                count = _take(inbox, inbox.rings[at], count, now_ns)
                more = more or count - before == SHARE
    if used > 0:
        inbox.cursor[0] = (inbox.cursor[0] + 1) % used
    if count > 0:
        inbox.cursor[2] = count
    return count


@compiled
def _take(inbox: MemoryInbox, ring: Any, count: Integer, now_ns: Integer) -> Integer:
    """Make frames of a worker's next datagrams, a share at most; return how many frames there are then."""
    counts, position = inbox.record.statistics[ring.position], ring.position
    waiting = np.int64(load_acquire(np.uintp(ring.base + UP_HEAD))) - ring.up_tail & 0xFFFFFFFF
    if waiting == 0:
        return count
    if waiting > ring.rows:
        ring.state = BROKEN
        return count
    room = inbox.record.frames.shape[1] - HEADER_BYTES
    end = min(count + SHARE, inbox.record.frames.shape[0])
    while waiting > 0 and count < end:
        at = ring.up_tail & ring.rows - 1
        size = np.int64(load32(np.uintp(ring.up_lengths + 4 * at)))
        ring.up_tail = ring.up_tail + 1 & 0xFFFFFFFF
        waiting -= 1
        if size == 0:
            continue
        counts[RECEIVED] += 1
        counts[RECEIVED_BYTES] += size
        if size > min(room, ring.row_bytes):
            counts[OVERSIZED] += 1
        elif lost(inbox.record.draws_in, position, inbox.record.drop_ppm):
            counts[DROPPED_IN] += 1
        else:
            frame = inbox.record.frames[count]
            prefetch(ring.up_rows + (ring.up_tail + _AHEAD & ring.rows - 1) * ring.row_bytes, size)
            copy_bytes(
                np.uintp(frame.ctypes.data + HEADER_BYTES),
                np.uintp(ring.up_rows + at * ring.row_bytes),
                np.uintp(size),
            )
            write_headers(frame, size, ring.ip, ring.udp_port, inbox.own_ip, inbox.own_port)
            inbox.record.lengths[count] = HEADER_BYTES + size
            inbox.record.ports[count] = ring.port
            inbox.record.times[count] = now_ns
            count += 1
    store_release(np.uintp(ring.base + UP_TAIL), np.uint32(ring.up_tail))
    fence()
    if load32(np.uintp(ring.base + WORKER_SLEEPS)) == FOR_ROOM:
        _wake(ring, inbox.one)
    return count


@compiled_inline
def _wake(ring: Any, one: Array) -> None:
    store_release(np.uintp(ring.base + WORKER_SLEEPS), np.uint32(0))
    ring_bell(ring.bell, one)


@compiled
def transmit_memory(
    outbox: MemoryOutbox, ports: Array, lengths: Array, frames: Array, total: Integer
) -> Integer:
    """Write the datagrams of frames for workers that have rings there, and let the driver below send all others."""
    used = outbox.used[0]
    if used == 0:
        return transmit(outbox.below, ports, lengths, frames, total)
    no_such_port: Integer = np.int64(0)
    begin: Integer = np.int64(0)
    last: Integer = np.int64(0)
    for i in range(total):
        offset, size = find_datagram(frames[i], lengths[i])
        if size < 0:
            continue
        row = frames[i]
        ip, udp_port = get32(row, ETHERNET_BYTES + 16), get16(row, offset - UDP_BYTES + 2)
        found: Integer = np.int64(-1)
        for step in range(used):  # Copies for the workers of a job follow each other as their rings do.
            at = last + 1 + step
            at -= used if at >= used else 0
            ring = outbox.rings[at]
            if (
                ring.udp_port == udp_port
                and ring.ip == ip
                and ring.port == ports[i]
                and ring.state == ATTACHED
            ):
                found = at
                break
        if found < 0:
            continue
        last = found
        if begin < i:
            no_such_port += transmit(
                outbox.below, ports[begin:i], lengths[begin:i], frames[begin:i], i - begin
            )
        begin = i + 1
        _put(outbox, outbox.rings[found], row, offset, size)
    if begin < total:
        rest = total - begin
        no_such_port += transmit(outbox.below, ports[begin:], lengths[begin:], frames[begin:], rest)
    for at in range(used):
        ring = outbox.rings[at]
        if ring.unpublished != 0:
            ring.unpublished = 0
            store_release(np.uintp(ring.base + DOWN_HEAD), np.uint32(ring.down_head))
            fence()
            if load32(np.uintp(ring.base + WORKER_SLEEPS)) != 0:
                _wake(ring, outbox.one)
    return no_such_port


@compiled
def _put(outbox: MemoryOutbox, ring: Any, row: Array, offset: Integer, size: Integer) -> None:
    """Write a datagram into a worker's ring, which it sees when the batch is complete."""
    counts = outbox.record.statistics[ring.position]
    if lost(outbox.record.draws_out, ring.position, outbox.record.drop_ppm):
        counts[DROPPED_OUT] += 1
        return
    if ring.down_head - ring.down_tail & 0xFFFFFFFF == ring.rows:
        ring.down_tail = np.int64(load_acquire(np.uintp(ring.base + DOWN_TAIL)))
    waiting = ring.down_head - ring.down_tail & 0xFFFFFFFF
    if waiting > ring.rows:
        ring.state = BROKEN
        return
    if waiting == ring.rows or size > ring.row_bytes:
        counts[QUEUE_FULL] += 1
        return
    at = ring.down_head & ring.rows - 1
    prefetch_to_write(ring.down_rows + (ring.down_head + _AHEAD & ring.rows - 1) * ring.row_bytes, size)
    copy_bytes(
        np.uintp(ring.down_rows + at * ring.row_bytes), np.uintp(row.ctypes.data + offset), np.uintp(size)
    )
    store_release(np.uintp(ring.down_lengths + 4 * at), np.uint32(size))
    ring.down_head = ring.down_head + 1 & 0xFFFFFFFF
    ring.unpublished = 1
    counts[SENT] += 1
    counts[SENT_BYTES] += size


RECEIVERS[MemoryInbox] = receive_memory
TRANSMITTERS[MemoryOutbox] = transmit_memory
