"""Batches of datagrams as the messages of a system call.

Where the way allows it (`segmentation`), a run of datagrams of one length is one message (UDP_SEGMENT, UDP_GRO): it goes
through the network code once. That is most of what a datagram costs.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from host_agent.compiled import Integer, Record, Records, compiled
from host_agent.transport.system_calls import (
    CONTROL,
    ERRNO_AGAIN,
    ERRNO_INTERRUPTED,
    ERRNO_IO,
    ERRNO_REFUSED,
    IOVEC,
    MMSGHDR,
    MSG_DONTWAIT,
    SEGMENT_CONTROL_BYTES,
    SOL_UDP,
    UDP_GRO,
    UDP_SEGMENT,
    copy_bytes,
    last_errno,
    recvmmsg,
    sendmmsg,
)

BATCH: Final = 64
"""Datagrams in a batch."""
LARGEST_MESSAGE_BYTES: Final = 65_507
MESSAGES_OF_SEVERAL: Final = 8
"""Messages a call receives if each can hold many datagrams."""
_HEADER_BYTES: Final = MMSGHDR.itemsize
_VECTOR_BYTES: Final = IOVEC.itemsize
_CONTROL_BYTES: Final = CONTROL.itemsize

LINK: Final = np.dtype(
    [
        ("fd", np.int64),
        ("segments", np.int64),  # how many datagrams a message may hold,
        ("message_bytes", np.int64),  # and how many bytes if they are several
        ("rests", np.int64),  # 1: pause between small batches
        ("wake", np.int64),  # set by another thread that wants the driver to come back
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
    """Messages as they come, and a batch of their datagrams, one a row."""

    messages: npt.NDArray[np.uint8]
    vectors: Records
    controls: Records
    headers: Records
    rows: npt.NDArray[np.uint8]
    lengths: npt.NDArray[np.int32]


class Outbox(NamedTuple):
    """A batch of datagrams, one a row, and the messages that they become."""

    vectors: Records
    controls: Records
    headers: Records
    rows: npt.NDArray[np.uint8]
    lengths: npt.NDArray[np.int32]


def make_inbox(row_bytes: int, merged: bool) -> Inbox:
    """Allocate buffers; `merged` says whether messages that come may hold several datagrams. Else they are the rows."""
    rows = np.zeros((BATCH, row_bytes), np.uint8)
    messages = np.zeros((MESSAGES_OF_SEVERAL, LARGEST_MESSAGE_BYTES), np.uint8) if merged else rows
    vectors, headers, controls = (np.zeros(len(messages), dtype) for dtype in (IOVEC, MMSGHDR, CONTROL))
    vectors["base"] = _addresses(messages)
    vectors["bytes"] = messages.shape[1]
    headers["iov"] = _addresses(vectors)
    headers["iov_count"] = 1
    headers["control"] = _addresses(controls)
    return Inbox(messages, vectors, controls, headers, rows, np.zeros(BATCH, np.int32))


def make_outbox(row_bytes: int) -> Outbox:
    """Allocate buffers."""
    rows = np.zeros((BATCH, row_bytes), np.uint8)
    vectors, headers, controls = (np.zeros(BATCH, dtype) for dtype in (IOVEC, MMSGHDR, CONTROL))
    vectors["base"] = _addresses(rows)
    headers["control"] = _addresses(controls)
    controls["bytes"] = SEGMENT_CONTROL_BYTES
    controls["level"] = SOL_UDP
    controls["type"] = UDP_SEGMENT
    return Outbox(vectors, controls, headers, rows, np.zeros(BATCH, np.int32))


def _addresses(array: npt.NDArray[Any]) -> npt.NDArray[np.uintp]:
    return (array.ctypes.data + np.arange(len(array)) * array.strides[0]).astype(np.uintp)


@compiled
def receive(link: Record, inbox: Inbox) -> Integer:
    """Take the next batch of datagrams into the inbox's rows, without waiting; returns how many there are."""
    if link.message == link.received:
        for i in range(inbox.headers.size):
            inbox.headers[i].control_bytes = np.uintp(_CONTROL_BYTES)
        received = np.int64(recvmmsg(link.fd, inbox.headers.ctypes.data, inbox.headers.size, MSG_DONTWAIT, 0))
        if received < 0 and last_errno() == ERRNO_REFUSED:
            link.refused += 1
        link.received = max(received, 0)
        link.message = 0
        link.offset = 0
    count = 0
    row_bytes = inbox.rows.shape[1]
    in_place = inbox.messages.ctypes.data == inbox.rows.ctypes.data
    while link.message < link.received and count < inbox.rows.shape[0]:
        message_bytes = np.int64(inbox.headers[link.message].bytes)
        length = message_bytes
        control = inbox.controls[link.message]
        if (
            inbox.headers[link.message].control_bytes > 0
            and control.level == SOL_UDP
            and control.type == UDP_GRO
        ):
            length = min(max(np.int64(control.received_segment), np.int64(1)), message_bytes - link.offset)
        if not in_place:
            at = inbox.messages.ctypes.data + link.message * inbox.messages.shape[1] + link.offset
            copy_bytes(inbox.rows[count].ctypes.data, at, min(length, row_bytes))
        inbox.lengths[count] = np.int32(length)
        count += 1
        link.offset += length
        if link.offset >= message_bytes:
            link.message += 1
            link.offset = 0
    return count


@compiled
def prepare(link: Record, outbox: Outbox, count: int) -> None:
    """Make messages of the first `count` rows of the outbox, to be sent by `send`."""
    messages = 0
    row = 0
    while row < count:
        length = np.int64(outbox.lengths[row])
        header = outbox.headers[messages]
        header.iov = np.uintp(outbox.vectors.ctypes.data + row * _VECTOR_BYTES)
        first = row
        while row < count and outbox.lengths[row] == length:
            datagrams = row - first + 1
            if datagrams > 1 and (datagrams > link.segments or datagrams * length > link.message_bytes):
                break
            outbox.vectors[row].bytes = np.uintp(length)
            row += 1
        header.iov_count = np.uintp(row - first)
        several = row - first > 1
        header.control_bytes = np.uintp(_CONTROL_BYTES if several else 0)
        outbox.controls[messages].sent_segment = np.uint16(length)
        messages += 1
    link.messages = messages
    link.messages_sent = 0


@compiled
def send(link: Record, outbox: Outbox) -> bool:
    """Send what was prepared, without waiting; returns whether the socket's buffer is full."""
    while link.messages_sent < link.messages:
        first = outbox.headers.ctypes.data + link.messages_sent * _HEADER_BYTES
        sent = np.int64(sendmmsg(link.fd, first, link.messages - link.messages_sent, MSG_DONTWAIT))
        if sent > 0:
            link.messages_sent += sent
            continue
        error = last_errno()
        if error == ERRNO_AGAIN:
            return True
        if error == ERRNO_REFUSED:
            link.refused += 1  # what an earlier datagram met; this message was not sent yet
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
