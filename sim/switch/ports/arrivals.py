"""Compiled: datagrams received in batches, and the frames they are to the program.

What a datagram costs is its way through the system's UDP code. So datagrams of one size for one receiver go
through it as one message, which is cut up where it is received (`UDP_SEGMENT`), or not even there if the
receiver does that itself (`UDP_GRO`), as is done here: over loopback a run of 16 costs a quarter of 16 datagrams.
"""

# Numba's decorator is untyped, and the integers of compiled code are NumPy's.
# mypy: disable-error-code="untyped-decorator,no-any-return,return-value"

import numpy as np
from numba import njit

from sim.switch.ports.abi import (
    ADDRESS_BYTES,
    CONTROL_BYTES,
    EVENT_DATA_WORD,
    MSG_DONTWAIT,
    UDP_GRO,
    epoll_wait,
    recvmmsg,
)
from sim.switch.ports.frames import (
    DROPPED_IN,
    HEADER_BYTES,
    OVERSIZED,
    RECEIVED,
    RECEIVED_BYTES,
    Array,
    lost,
    swap16,
    swap32,
    write_headers,
)


@njit(cache=True, nogil=True)
def receive(
    poller: int,
    events: Array,
    timeout_ms: int,
    positions: Array,
    numbers: Array,
    own_ip: int,
    own_port: int,
    messages: Array,
    controls: Array,
    senders: Array,
    arrivals: Array,
    owners: Array,
    cursor: Array,
    frames: Array,
    lengths: Array,
    ports: Array,
    draws: Array,
    drop_ppm: int,
    statistics: Array,
) -> int:
    """Wait for datagrams and make frames of them.

    Parameters
    ----------
    poller : int
        An epoll descriptor over the sockets, whose data are the descriptors; one that is no socket's only wakes.
    events : uint32[:, EVENT_WORDS]
        Room for what epoll reports.
    timeout_ms : int
        How long to wait when nothing is there.
    positions, numbers : int32[:], uint16[:]
        The position of each descriptor's socket among the ports, or -1; the number of the switch port of each.
    own_ip, own_port : int
        The switch's address, and the UDP port it shows to the program.
    messages, controls, senders, arrivals : MESSAGE[:], CONTROL[:], ADDRESS[:], uint8[:, :]
        Room for messages; message i points at control i, sender i and row i of `arrivals`.
    owners, cursor : int32[:], int64[4]
        The socket of each message; which message is the first not yet made frames of, how many messages there are,
        how many bytes of the first one are done, and how many datagrams a message has had of late.
    frames, lengths, ports : uint8[:, :], int32[:], uint16[:]
        The frames, their lengths and the switch ports they came in by.
    draws, drop_ppm : uint64[:], int
        Random state of each socket, and how many of a million packets to lose.
    statistics : int64[:, :]
        Counts of each socket, by the columns above.

    Returns
    -------
    int
        Number of frames. Datagrams for which there was no room come first in the next call.
    """
    if cursor[0] == cursor[1]:
        _fetch(poller, events, timeout_ms, positions, messages, controls, owners, cursor, frames.shape[0])
    capacity = frames.shape[0]
    room = frames.shape[1] - HEADER_BYTES
    count = 0
    while cursor[0] < cursor[1] and count < capacity:
        at = cursor[0]
        socket = owners[at]
        total = np.int64(messages[at]["length"])
        segment = total
        if messages[at]["control_length"] > 0 and controls[at]["type"] == UDP_GRO:
            segment = np.int64(controls[at]["size"] & np.uint64(0xFFFFFFFF))
        source_ip = np.int64(swap32(senders[at]["ip"]))
        source_port = np.int64(swap16(senders[at]["port"]))
        offset = cursor[2]
        while count < capacity:
            size = min(segment, total - offset)
            statistics[socket, RECEIVED] += 1
            statistics[socket, RECEIVED_BYTES] += size
            if size > room:
                statistics[socket, OVERSIZED] += 1
            elif lost(draws, socket, drop_ppm):
                statistics[socket, DROPPED_IN] += 1
            else:
                frames[count, HEADER_BYTES : HEADER_BYTES + size] = arrivals[at, offset : offset + size]
                write_headers(frames[count], size, source_ip, source_port, own_ip, own_port)
                lengths[count] = HEADER_BYTES + size
                ports[count] = numbers[socket]
                count += 1
            offset += size
            if offset >= total:
                break
        if offset >= total:
            cursor[0] += 1
            offset = 0
        cursor[2] = offset
    return count


@njit(cache=True, nogil=True)
def _fetch(
    poller: int,
    events: Array,
    timeout_ms: int,
    positions: Array,
    messages: Array,
    controls: Array,
    owners: Array,
    cursor: Array,
    frames: int,
) -> None:
    """Wait for messages and receive about as many as fill the frames."""
    ready = epoll_wait(poller, np.uintp(events.ctypes.data), events.shape[0], timeout_ms)
    wanted = min(messages.shape[0], max(ready, frames // max(1, cursor[3])))
    count = np.int64(0)
    for index in range(ready):
        descriptor = events[index, EVENT_DATA_WORD]
        socket = positions[descriptor] if descriptor < positions.shape[0] else np.int32(-1)
        if socket < 0 or count == wanted:
            continue
        # What is left is shared among the sockets still to be read, so that none starves.
        share = max(1, (wanted - count) // (ready - index))
        for at in range(count, count + share):
            messages[at]["name_length"] = ADDRESS_BYTES
            messages[at]["control_length"] = CONTROL_BYTES
        first = np.uintp(messages.ctypes.data) + np.uintp(count * messages.itemsize)
        got = recvmmsg(np.int32(descriptor), first, share, MSG_DONTWAIT, np.uintp(0))
        for at in range(count, count + max(got, 0)):
            owners[at] = socket
        count += max(got, 0)
    datagrams = np.int64(0)
    for at in range(count):
        size = np.int64(1)
        if messages[at]["control_length"] > 0 and controls[at]["type"] == UDP_GRO:
            size = max(np.int64(1), np.int64(controls[at]["size"] & np.uint64(0xFFFFFFFF)))
            datagrams += (np.int64(messages[at]["length"]) + size - 1) // size
        else:
            datagrams += 1
    cursor[0] = 0
    cursor[1] = count
    cursor[2] = 0
    if count > 0:
        cursor[3] = (datagrams + count - 1) // count
