"""Compiled: frames of network interfaces, taken from rings that the kernel fills and sent in batches.

A ring (`PACKET_RX_RING`, version 2) is memory that the kernel shares: taking a frame costs no system call, and looking at
all ports costs a read each. Frames are sent through one socket for all ports, in the order in which they left the program, so
that the copies of a multicast packet cost one system call together.
"""

# The integers of compiled code are NumPy's.
# mypy: disable-error-code="no-any-return,return-value"

import errno
from typing import NamedTuple

import numpy as np

from netsum_common.compiled import Array, Integer, compiled
from netsum_common.frames import lost, put16
from netsum_common.memory import copy_bytes, load8, load16, load32, load_acquire, store_release
from netsum_common.sockets import MSG_DONTWAIT, last_errno, monotonic_ns, sendmmsg
from sim.switch.ports.abi import LINK_ADDRESS_BYTES, await_events
from sim.switch.ports.frames import (
    DROPPED_IN,
    DROPPED_OUT,
    MERGED,
    OVERSIZED,
    PORT_DOWN,
    QUEUE_FULL,
    RECEIVED,
    RECEIVED_BYTES,
    REFUSED,
    SENT,
    SENT_BYTES,
    PortRecord,
    finish_checksum,
)
from sim.switch.ports.kinds import RECEIVERS, TRANSMITTERS

# linux/if_packet.h: offsets in `struct tpacket2_hdr`, and bits of its status.
_LENGTH, _KEPT, _MAC, _SECONDS, _NANOSECONDS, _VLAN_TCI, _VLAN_TPID = 4, 8, 12, 16, 20, 24, 26
_TO_USER, _VLAN_VALID, _VLAN_TPID_VALID = 0x1, 0x10, 0x40
# linux/virtio_net.h: offsets in `struct virtio_net_hdr`, which ends where the frame begins, and a bit of its flags.
_VNET_BYTES, _GSO_TYPE, _CHECKSUM_START, _CHECKSUM_OFFSET = 10, 1, 6, 8
_NEEDS_CHECKSUM = 1

_MAC_ADDRESSES_BYTES, _VLAN_BYTES, _ETH_P_8021Q = 12, 4, 0x8100
_SHARE = 32  # Frames taken from a ring before the next ring has its turn.

_NO_ROOM = (errno.ENOBUFS, errno.EAGAIN)
_GONE = (errno.ENETDOWN, errno.ENXIO, errno.ENODEV)


class RingInbox(NamedTuple):
    """Rings and the buffers for frames that arrive in them."""

    # poller, waker: an epoll descriptor over the rings' sockets, and over an eventfd that only wakes.
    poller: int
    waker: int
    events: Array  # uint32[:, EVENT_WORDS]. Room for what epoll reports.
    # rings, heads: uint64[:], int64[:]. Where each ring begins in memory, and which of its frames comes next.
    rings: Array
    heads: Array
    places: Array  # uint32[:]. Where in a ring each of its frames begins.
    first: Array  # int64[1]. The ring that has the first turn next time.
    numbers: Array  # uint16[:]. The switch port of each ring.
    spin_ns: int  # How long to look at the rings before sleeping.
    record: PortRecord


class RingOutbox(NamedTuple):
    """The socket that sends, and the room for a batch."""

    descriptor: int  # The socket, for all ports.
    positions: Array  # int32[:]. The position of each switch port among the interfaces, or -1.
    addresses: Array  # LINK_ADDRESS[:]. Each interface's; index 0 means that it is not there.
    # messages, vectors, owners: MESSAGE[:], IO_VECTOR[:], int32[:]. Room for a batch; message i points at vector i, and
    # goes to an interface.
    messages: Array
    vectors: Array
    owners: Array
    record: PortRecord


@compiled
def receive_frames(inbox: RingInbox, timeout_ms: Integer) -> Integer:
    """Wait for frames, at most `timeout_ms`, and copy them out of the rings; return how many."""
    count = _sweep(inbox)
    if count > 0:
        return count
    if inbox.spin_ns > 0 and timeout_ms > 0:
        until_ns = monotonic_ns(inbox.record.work) + inbox.spin_ns
        while monotonic_ns(inbox.record.work) < until_ns:
            count = _sweep(inbox)
            if count > 0:
                return count
    await_events(inbox.poller, inbox.events, inbox.waker, timeout_ms, inbox.record.work)
    return _sweep(inbox)


@compiled
def _sweep(inbox: RingInbox) -> Integer:
    """Take the frames in the rings, a share of each in turn."""
    rings, heads, places = inbox.rings, inbox.heads, inbox.places
    capacity = inbox.record.frames.shape[0]
    count = np.int64(0)
    more = rings.shape[0] > 0
    while more and count < capacity:
        more = False
        for turn in range(rings.shape[0]):
            ring = (inbox.first[0] + turn) % rings.shape[0]
            taken = 0
            while taken < _SHARE and count < capacity:
                at = np.uintp(rings[ring]) + np.uintp(places[heads[ring]])
                status = np.int64(load_acquire(at))
                if status & _TO_USER == 0:
                    break
                count += _take(inbox, ring, at, status, count)
                store_release(at, np.uint32(0))
                heads[ring] = heads[ring] + 1 if heads[ring] + 1 < places.shape[0] else 0
                taken += 1
            more = more or taken == _SHARE
    if rings.shape[0] > 0:
        inbox.first[0] = (inbox.first[0] + 1) % rings.shape[0]
    return count


@compiled
def _take(inbox: RingInbox, ring: Integer, at: Integer, status: Integer, row: Integer) -> Integer:
    """Copy a frame into a row, as it was on the wire; return 1, or 0 if it is none for the program."""
    counts = inbox.record.statistics[ring]
    wire = np.int64(load32(at + np.uintp(_LENGTH)))
    start = at + np.uintp(load16(at + np.uintp(_MAC)))
    offload = start - np.uintp(_VNET_BYTES)
    # The kernel takes the tag out of the frame and keeps it beside it.
    tag = _VLAN_BYTES if status & _VLAN_VALID else 0
    length = wire + tag
    counts[RECEIVED] += 1
    counts[RECEIVED_BYTES] += length
    if load8(offload + np.uintp(_GSO_TYPE)) != 0:
        counts[MERGED] += 1
        return 0
    if (
        load32(at + np.uintp(_KEPT)) < wire
        or length > inbox.record.frames.shape[1]
        or wire < _MAC_ADDRESSES_BYTES
    ):
        counts[OVERSIZED] += 1
        return 0
    if lost(inbox.record.draws_in, ring, inbox.record.drop_ppm):
        counts[DROPPED_IN] += 1
        return 0
    frame = inbox.record.frames[row]
    begin = np.uintp(frame.ctypes.data)
    if tag == 0:
        copy_bytes(begin, start, np.uintp(wire))
    else:
        moved = np.uintp(_MAC_ADDRESSES_BYTES)
        copy_bytes(begin, start, moved)
        tpid = np.int64(load16(at + np.uintp(_VLAN_TPID))) if status & _VLAN_TPID_VALID else _ETH_P_8021Q
        put16(frame, _MAC_ADDRESSES_BYTES, tpid)
        put16(frame, _MAC_ADDRESSES_BYTES + 2, np.int64(load16(at + np.uintp(_VLAN_TCI))))
        copy_bytes(begin + moved + np.uintp(_VLAN_BYTES), start + moved, np.uintp(wire) - moved)
    if load8(offload) & _NEEDS_CHECKSUM:
        summed = np.int64(load16(offload + np.uintp(_CHECKSUM_START))) + tag
        field = summed + np.int64(load16(offload + np.uintp(_CHECKSUM_OFFSET)))
        if field + 2 <= length:
            finish_checksum(frame, summed, field, length)
    inbox.record.lengths[row] = length
    inbox.record.ports[row] = inbox.numbers[ring]
    seconds = np.int64(load32(at + np.uintp(_SECONDS)))
    inbox.record.times[row] = seconds * 1_000_000_000 + np.int64(load32(at + np.uintp(_NANOSECONDS)))
    return 1


@compiled
def transmit_frames(
    outbox: RingOutbox, ports: Array, lengths: Array, frames: Array, total: Integer
) -> Integer:
    """Send frames that leave the switch, in order.

    A frame for which the interface's queue has no room is dropped and counted, as by a switch's port.

    `ports`, `lengths`, `frames` (uint16[:], int32[:], uint8[:, :]): the first `total` of these. Returns number of frames for
    ports that lead to no interface.
    """
    messages, vectors, addresses = outbox.messages, outbox.vectors, outbox.addresses
    stride: Integer = frames.strides[0]
    no_such_port = np.int64(0)
    done = np.int64(0)
    while done < total:
        batch = min(total - done, messages.shape[0])
        count = np.int64(0)
        for i in range(done, done + batch):
            position = outbox.positions[ports[i]]
            if position < 0:
                no_such_port += 1
            elif lost(outbox.record.draws_out, position, outbox.record.drop_ppm):
                outbox.record.statistics[position, DROPPED_OUT] += 1
            elif addresses[position]["index"] == 0:
                outbox.record.statistics[position, PORT_DOWN] += 1
            else:
                messages[count]["name"] = np.uint64(addresses.ctypes.data) + np.uint64(
                    position * LINK_ADDRESS_BYTES
                )
                vectors[count]["base"] = np.uint64(frames.ctypes.data) + np.uint64(i * stride)
                vectors[count]["length"] = lengths[i]
                outbox.owners[count] = position
                count += 1
        _send(outbox, count)
        done += batch
    return no_such_port


@compiled
def _send(outbox: RingOutbox, count: Integer) -> None:
    """Send the first messages and count what became of them."""
    messages, statistics = outbox.messages, outbox.record.statistics
    at = np.int64(0)
    while at < count:
        first = np.uintp(messages.ctypes.data) + np.uintp(at * messages.itemsize)
        sent: Integer = np.int64(sendmmsg(outbox.descriptor, first, count - at, MSG_DONTWAIT))
        for i in range(at, at + max(sent, 0)):
            statistics[outbox.owners[i], SENT] += 1
            statistics[outbox.owners[i], SENT_BYTES] += np.int64(outbox.vectors[i]["length"])
        at += max(sent, 0)
        if sent > 0 or at == count:
            continue
        reason = last_errno()
        if reason == errno.EINTR:
            continue
        column = REFUSED
        if reason in _NO_ROOM:
            column = QUEUE_FULL
        elif reason in _GONE:
            column = PORT_DOWN
        statistics[outbox.owners[at], column] += 1
        at += 1


RECEIVERS[RingInbox] = receive_frames
TRANSMITTERS[RingOutbox] = transmit_frames
