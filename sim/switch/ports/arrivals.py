"""Compiled: datagrams received in batches, and their frames for the program.

The cost of a datagram is its way through the system's UDP code. So datagrams of one size for one receiver go
through it as one message, which is cut up where it is received (`UDP_SEGMENT`), or not even there if the
receiver does that itself (`UDP_GRO`), as is done here: over loopback a run of 16 costs a quarter of 16 datagrams.
"""

# The integers of compiled code are NumPy's.
# mypy: disable-error-code="no-any-return,return-value"

from typing import NamedTuple

import numpy as np

from netsum_common.compiled import Array, Integer, compiled
from netsum_common.frames import HEADER_BYTES, lost, swap16, swap32, write_headers
from netsum_common.memory import copy_bytes
from netsum_common.sockets import CONTROL_BYTES, MSG_DONTWAIT, UDP_GRO, recvmmsg
from sim.switch.ports.abi import ADDRESS_BYTES, EVENT_DATA_WORD, await_events, realtime_ns
from sim.switch.ports.frames import DROPPED_IN, OVERSIZED, RECEIVED, RECEIVED_BYTES, PortRecord
from sim.switch.ports.kinds import RECEIVERS


class DatagramInbox(NamedTuple):
    """Sockets and the buffers for datagrams that arrive on them."""

    # poller, waker: an epoll descriptor over the sockets, whose data are the descriptors, and over an eventfd that only
    # wakes.
    poller: int
    waker: int
    events: Array  # uint32[:, EVENT_WORDS]. Room for what epoll reports.
    # positions, numbers: int32[:], uint16[:]. The position of each descriptor's socket among the ports, or -1; the number
    # of the switch port of each.
    positions: Array
    numbers: Array
    # own_ip, own_port: the switch's address, and the UDP port it shows to the program.
    own_ip: int
    own_port: int
    # messages, controls, senders, arrivals: MESSAGE[:], CONTROL[:], ADDRESS[:], uint8[:, :]. Room for messages; message i
    # points at control i, sender i and row i of `arrivals`.
    messages: Array
    controls: Array
    senders: Array
    arrivals: Array
    # owners, cursor: int32[:], int64[5]. The socket of each message; which message is the first not yet made frames of, how
    # many messages there are, how many bytes of the first one are done, how many datagrams a message has had of late, and
    # when they came.
    owners: Array
    cursor: Array
    record: PortRecord


@compiled
def receive_datagrams(inbox: DatagramInbox, timeout_ms: Integer) -> Integer:
    """Wait for datagrams, at most `timeout_ms`, and make frames of them.

    Returns number of frames. Datagrams for which there was no room come first in the next call.
    """
    cursor, messages, controls, statistics = (
        inbox.cursor,
        inbox.messages,
        inbox.controls,
        inbox.record.statistics,
    )
    frames, arrivals = inbox.record.frames, inbox.arrivals
    if cursor[0] == cursor[1]:
        _fetch(inbox, timeout_ms)
    capacity = frames.shape[0]
    room = frames.shape[1] - HEADER_BYTES
    count = np.int64(0)
    while cursor[0] < cursor[1] and count < capacity:
        at = cursor[0]
        socket = inbox.owners[at]
        total = np.int64(messages[at]["length"])
        segment = total
        if messages[at]["control_length"] > 0 and controls[at]["type"] == UDP_GRO:
            segment = np.int64(controls[at]["received_segment"])
        source_ip = np.int64(swap32(inbox.senders[at]["ip"]))
        source_port = np.int64(swap16(inbox.senders[at]["port"]))
        offset = cursor[2]
        while count < capacity:
            size = min(segment, total - offset)
            statistics[socket, RECEIVED] += 1
            statistics[socket, RECEIVED_BYTES] += size
            if size > room:
                statistics[socket, OVERSIZED] += 1
            elif lost(inbox.record.draws_in, socket, inbox.record.drop_ppm):
                statistics[socket, DROPPED_IN] += 1
            else:
                frame = frames[count]
                payload = np.uintp(arrivals[at].ctypes.data) + np.uintp(offset)
                copy_bytes(np.uintp(frame.ctypes.data) + np.uintp(HEADER_BYTES), payload, np.uintp(size))
                write_headers(frame, size, source_ip, source_port, inbox.own_ip, inbox.own_port)
                inbox.record.lengths[count] = HEADER_BYTES + size
                inbox.record.ports[count] = inbox.numbers[socket]
                inbox.record.times[count] = cursor[4]
                count += 1
            offset += size
            if offset >= total:
                break
        if offset >= total:
            cursor[0] += 1
            offset = 0
        cursor[2] = offset
    return count


@compiled
def _fetch(inbox: DatagramInbox, timeout_ms: Integer) -> None:
    """Wait for messages and receive about as many as fill the frames."""
    cursor, messages, controls = inbox.cursor, inbox.messages, inbox.controls
    ready = await_events(inbox.poller, inbox.events, inbox.waker, timeout_ms, inbox.record.work)
    cursor[4] = realtime_ns(inbox.record.work)
    wanted = min(messages.shape[0], max(ready, inbox.record.frames.shape[0] // max(1, cursor[3])))
    count = np.int64(0)
    for index in range(ready):
        descriptor = inbox.events[index, EVENT_DATA_WORD]
        socket = inbox.positions[descriptor] if descriptor < inbox.positions.shape[0] else np.int32(-1)
        if socket < 0 or count == wanted:
            continue
        # The remaining room is shared among the sockets that are still to be read, so that none starves.
        share = max(1, (wanted - count) // (ready - index))
        for at in range(count, count + share):
            messages[at]["name_length"] = ADDRESS_BYTES
            messages[at]["control_length"] = CONTROL_BYTES
        first = np.uintp(messages.ctypes.data) + np.uintp(count * messages.itemsize)
        got = recvmmsg(np.int32(descriptor), first, share, MSG_DONTWAIT, np.uintp(0))
        for at in range(count, count + max(got, 0)):
            inbox.owners[at] = socket
        count += max(got, 0)
    datagrams = np.int64(0)
    for at in range(count):
        size = np.int64(1)
        if messages[at]["control_length"] > 0 and controls[at]["type"] == UDP_GRO:
            size = max(np.int64(1), np.int64(controls[at]["received_segment"]))
            datagrams += (np.int64(messages[at]["length"]) + size - 1) // size
        else:
            datagrams += 1
    cursor[0] = 0
    cursor[1] = count
    cursor[2] = 0
    if count > 0:
        cursor[3] = (datagrams + count - 1) // count


RECEIVERS[DatagramInbox] = receive_datagrams
