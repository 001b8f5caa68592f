"""A UDP socket as a link of the loop: batches of datagrams as the messages of a system call.

Where the path allows it (`segmentation`), a run of datagrams of one length is one message (UDP_SEGMENT, UDP_GRO): it passes
the network code once, which is most of the cost of a datagram. A mark of a queue (IP_RECVTOS) goes into the datagram.
"""

from socket import IPPROTO_IP
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from host_agent.transport.exchange import BATCH, LINKS, Operations
from host_agent.transport.system_calls import (
    ERRNO_AGAIN,
    ERRNO_INTERRUPTED,
    ERRNO_IO,
    ERRNO_REFUSED,
    POLLIN,
    POLLOUT,
    poll,
)
from host_agent.wire.header import CE, note_mark
from netsum_common.compiled import Integer, Record, Records, compiled
from netsum_common.sockets import (
    CONTROL,
    CONTROL_BYTES,
    IO_VECTOR,
    MESSAGE,
    MESSAGE_BYTES,
    MSG_DONTWAIT,
    SEGMENT_CONTROL_BYTES,
    SOL_UDP,
    UDP_GRO,
    UDP_SEGMENT,
    VECTOR_BYTES,
    last_errno,
    places_of,
    recvmmsg,
    sendmmsg,
)

LARGEST_MESSAGE_BYTES: Final = 65_507
MESSAGES_OF_SEVERAL: Final = 8  # Messages a call receives if each can hold many datagrams.
_MESSAGE_STRIDE: Final = (1 << 16) + 33 * 64
"""Odd in cache lines, so that the beginnings of all messages do not fall into one set of the cache."""

BATCHES_IN_FLIGHT: Final = 8
"""While many chunks are in flight, the socket is read about this many times between the transmission of a chunk and its RESULT. A
wakeup for every RESULT costs more than handling it, for the worker and for the sender. Reading an eighth of the chunks in
flight at a time leaves seven eighths under way, so that no link is idle."""
FEWEST_TO_PACE: Final = 16
SHORTEST_PAUSE_NS: Final = 100_000
"""Shorter pauses would last longer than intended: the system's timers have a slack of 50 microseconds."""
LONGEST_PAUSE_NS: Final = 1_000_000

LINK: Final = np.dtype(
    [
        ("fd", np.int64),
        ("segments", np.int64),  # how many datagrams a message may hold,
        ("message_bytes", np.int64),  # and how many bytes if they are several
        ("paces", np.int64),  # 1: pause between small batches
        ("messages", np.int64),  # of the outbox, to be sent
        ("messages_sent", np.int64),
        ("received", np.int64),  # messages in the inbox
        ("message", np.int64),  # the message whose datagrams are taken next
        ("offset", np.int64),  # and from which byte of it on
        ("refused", np.int64),  # ICMP: nothing listens on the switch's port
        ("send_errors", np.int64),
        ("send_errno", np.int64),  # the last one
    ]
)
"""State of a socket."""


class Inbox(NamedTuple):
    """Messages as they come."""

    messages: npt.NDArray[np.uint8]
    vectors: Records
    controls: Records
    headers: Records


class Outbox(NamedTuple):
    """A batch of datagrams, one a row, and the messages that they become."""

    vectors: Records
    controls: Records
    headers: Records
    rows: npt.NDArray[np.uint8]
    lengths: npt.NDArray[np.int32]


class UdpSocket(NamedTuple):
    """A link as compiled code sees it."""

    wake: npt.NDArray[np.int64]  # Set by another thread that wants the driver to come back.
    links: Records  # LINK array, one element. Its state.
    # inbox, outbox: its buffers.
    inbox: Inbox
    outbox: Outbox
    # POLLFD array, two elements. The socket, and an eventfd that wakes the loop when it waits.
    poll_fds: Records
    work: npt.NDArray[np.int64]  # To work in.


def make_inbox(row_bytes: int, merged: bool) -> Inbox:
    """Allocate buffers; `merged` says whether messages that come may hold several datagrams."""
    count, size = (MESSAGES_OF_SEVERAL, _MESSAGE_STRIDE) if merged else (BATCH, row_bytes)
    messages = np.zeros((count, size), np.uint8)
    vectors, headers, controls = (np.zeros(count, dtype) for dtype in (IO_VECTOR, MESSAGE, CONTROL))
    vectors["base"] = places_of(messages)
    vectors["length"] = size
    headers["vectors"] = places_of(vectors)
    headers["vector_count"] = 1
    headers["control"] = places_of(controls)
    return Inbox(messages, vectors, controls, headers)


def make_outbox(row_bytes: int) -> Outbox:
    """Allocate buffers."""
    rows = np.zeros((BATCH, row_bytes), np.uint8)
    vectors, headers, controls = (np.zeros(BATCH, dtype) for dtype in (IO_VECTOR, MESSAGE, CONTROL))
    vectors["base"] = places_of(rows)
    headers["control"] = places_of(controls)
    controls["length"] = SEGMENT_CONTROL_BYTES
    controls["level"] = SOL_UDP
    controls["type"] = UDP_SEGMENT
    return Outbox(vectors, controls, headers, rows, np.zeros(BATCH, np.int32))


@compiled
def fetch(udp: UdpSocket) -> None:
    """Receive messages, if the datagrams of all earlier ones were taken."""
    link, inbox = udp.links[0], udp.inbox
    if link.message < link.received:
        return
    for i in range(inbox.headers.size):
        inbox.headers[i].control_length = CONTROL_BYTES
    received = np.int64(recvmmsg(link.fd, inbox.headers.ctypes.data, inbox.headers.size, MSG_DONTWAIT, 0))
    if received < 0 and last_errno() == ERRNO_REFUSED:
        link.refused += 1
    link.received = max(received, 0)
    link.message = 0
    link.offset = 0


@compiled
def next_datagram(udp: UdpSocket) -> tuple[Integer, Integer]:
    """Return where the next datagram that was fetched is, and its length."""
    link, inbox = udp.links[0], udp.inbox
    if link.message >= link.received:
        return np.int64(0), np.int64(-1)
    header, control = inbox.headers[link.message], inbox.controls[link.message]
    datagram = inbox.messages.ctypes.data + link.message * inbox.messages.shape[1] + link.offset
    length = np.int64(header.length) - link.offset
    if header.control_length > 0 and control.level == SOL_UDP and control.type == UDP_GRO:
        length = min(length, max(np.int64(control.received_segment), np.int64(1)))
    elif header.control_length > 0 and control.level == IPPROTO_IP and control.received_segment & CE == CE:
        note_mark(datagram, length)
    link.offset += length
    if link.offset >= np.int64(header.length):
        link.message += 1
        link.offset = 0
    return datagram, length


@compiled
def prepare(link: Record, outbox: Outbox, count: int) -> None:
    """Make messages of the first `count` rows of the outbox, to be sent by `send`."""
    messages = 0
    row = 0
    while row < count:
        length = np.int64(outbox.lengths[row])
        header = outbox.headers[messages]
        header.vectors = np.uint64(outbox.vectors.ctypes.data + row * VECTOR_BYTES)
        first = row
        while row < count and outbox.lengths[row] == length:
            datagrams = row - first + 1
            if datagrams > 1 and (datagrams > link.segments or datagrams * length > link.message_bytes):
                break
            outbox.vectors[row].length = np.uint64(length)
            row += 1
        header.vector_count = np.uint64(row - first)
        several = row - first > 1
        header.control_length = np.uint64(CONTROL_BYTES if several else 0)
        outbox.controls[messages].sent_segment = np.uint16(length)
        messages += 1
    link.messages = messages
    link.messages_sent = 0


@compiled
def free_rows(udp: UdpSocket) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return the rows of the outbox and room for their lengths; none while datagrams wait there."""
    outbox = udp.outbox
    link = udp.links[0]
    count = outbox.lengths.size if link.messages_sent == link.messages else 0
    return outbox.rows[:count], outbox.lengths[:count]


@compiled
def send(udp: UdpSocket, count: int) -> bool:
    """Send that many rows of the outbox, or what waits there; returns whether the socket's buffer is full."""
    link, outbox = udp.links[0], udp.outbox
    if count > 0:
        prepare(link, outbox, count)
    while link.messages_sent < link.messages:
        first = outbox.headers.ctypes.data + link.messages_sent * MESSAGE_BYTES
        sent = np.int64(sendmmsg(link.fd, first, link.messages - link.messages_sent, MSG_DONTWAIT))
        if sent > 0:
            link.messages_sent += sent
            continue
        error = last_errno()
        if error == ERRNO_AGAIN:
            return True
        if error == ERRNO_REFUSED:
            link.refused += 1  # the error of an earlier datagram; this message was not sent yet
        elif error == ERRNO_IO and link.segments > 1:
            # Linux before 6.11 cuts up messages only for interfaces that compute checksums. Lost, as on the network.
            link.segments = 1
            link.messages_sent += 1
        elif error != ERRNO_INTERRUPTED:
            # Lost, as on the network: the core will send it again.
            link.send_errors += 1
            link.send_errno = error
            link.messages_sent += 1
    return False


@compiled
def wait(udp: UdpSocket, core: Record, received: int, blocked: bool, timeout_ns: int) -> Integer:
    """Wait until the socket is ready, or pause after a wakeup that brought little; returns what ppoll does."""
    link, poll_fds = udp.links[0], udp.poll_fds
    if received > 0 and not blocked and link.paces != 0:
        pause_ns = min(pace_ns(core, received), timeout_ns)
        if pause_ns > 0:
            return poll(poll_fds[1:], pause_ns, udp.work)
    poll_fds[0].events = np.int16(POLLIN | POLLOUT) if blocked else np.int16(POLLIN)
    return poll(poll_fds, timeout_ns, udp.work)


@compiled
def pace_ns(core: Record, received: Integer) -> Integer:
    """Return how long to pause after a wakeup that brought few of many chunks in flight; 0: no pause."""
    if core.in_flight < FEWEST_TO_PACE or received * BATCHES_IN_FLIGHT >= core.in_flight:
        return np.int64(0)
    pause_ns = min(core.result_ns // BATCHES_IN_FLIGHT, LONGEST_PAUSE_NS)
    return pause_ns if pause_ns >= SHORTEST_PAUSE_NS else np.int64(0)


LINKS[UdpSocket] = Operations(fetch, next_datagram, free_rows, send, wait)
