"""Batches of datagrams through real sockets: what goes out as messages comes in as the same datagrams."""

import ctypes
import errno
import random
import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest

from host_agent.transport.exchange import BATCH
from host_agent.transport.messages import (
    LARGEST_MESSAGE_BYTES,
    LINK,
    UdpSocket,
    fetch,
    make_inbox,
    make_outbox,
    next_datagram,
    send,
)
from host_agent.transport.system_calls import POLLFD
from host_agent.wire import Header
from host_agent.wire.constants import FLAG_CONGESTED, HEADER_BYTES, KIND_RESULT, KIND_STATUS, VERSION
from host_agent.wire.header import CE, ECT
from netsum_common.sockets import SOL_UDP, UDP_GRO

ROW_BYTES = 1048
DEADLINE_S = 60


class End:
    """A socket with its buffers."""

    def __init__(self, segments: bool) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        if segments:
            self.socket.setsockopt(SOL_UDP, UDP_GRO, 1)
        self.link = np.zeros(1, LINK)
        self.link["fd"] = self.socket.fileno()
        self.link["segments"] = BATCH if segments else 1
        self.link["message_bytes"] = LARGEST_MESSAGE_BYTES
        self.outbox = make_outbox(ROW_BYTES)
        wake, work = np.zeros(1, np.int64), np.zeros(2, np.int64)
        inbox = make_inbox(ROW_BYTES, segments)
        self.ends = UdpSocket(wake, self.link, inbox, self.outbox, np.zeros(2, POLLFD), work)

    def send(self, datagrams: list[bytes]) -> None:
        assert len(datagrams) <= BATCH
        for row, datagram in zip(self.outbox.rows, datagrams, strict=False):
            row[: len(datagram)] = np.frombuffer(datagram, np.uint8)
        self.outbox.lengths[: len(datagrams)] = [len(datagram) for datagram in datagrams]
        assert not send(self.ends, len(datagrams))

    def receive(self) -> list[bytes]:
        """All that came in one call; where a datagram came alone and was longer than a row, what fits."""
        fetch(self.ends)
        datagrams = []
        while (datagram := next_datagram(self.ends))[1] >= 0:
            datagrams.append(ctypes.string_at(*datagram))
        return datagrams

    def receive_all(self, expected: int) -> list[bytes]:
        received: list[bytes] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(received) < expected and time.monotonic() < deadline:
            batch = self.receive()
            received += batch
        return received


@pytest.fixture
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[End, End]]:
    left, right = (End(segments) for segments in request.param)
    left.socket.connect(right.socket.getsockname())
    right.socket.connect(left.socket.getsockname())
    yield left, right
    left.socket.close()
    right.socket.close()


every_pair = pytest.mark.parametrize(
    "ends", [(False, False), (True, True), (True, False), (False, True)], indirect=True
)


@every_pair
def test_what_is_sent_is_received(ends: tuple[End, End]) -> None:
    left, right = ends
    chance = random.Random(5)
    for _ in range(20):
        runs = [(chance.choice([1, 20, 276, 1044]), chance.choice([1, 2, 30])) for _ in range(5)]
        batch = [chance.randbytes(length) for length, count in runs for _ in range(count)][:BATCH]
        left.send(batch)
        assert right.receive_all(len(batch)) == batch
        assert right.receive() == []


@pytest.mark.parametrize("ends", [(False, False)], indirect=True)
def test_a_mark_of_a_queue_is_in_the_result_that_it_was_on(ends: tuple[End, End]) -> None:
    left, right = ends
    right.socket.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    header = Header.from_bytes(bytes([VERSION << 4 | KIND_RESULT]) + bytes(HEADER_BYTES - 1))
    others = [header._replace(kind=KIND_STATUS).to_bytes(), b"x"]
    for service, expected in ((0, header), (ECT, header), (CE, header._replace(flags=FLAG_CONGESTED))):
        left.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, service)
        left.send([header.to_bytes(), *others])
        assert right.receive_all(3) == [expected.to_bytes(), *others]


@every_pair
def test_more_datagrams_than_fit_a_message(ends: tuple[End, End]) -> None:
    left, right = ends
    batch = [bytes([i]) * 1044 for i in range(BATCH)]
    left.send(batch)
    assert right.receive_all(BATCH) == batch
    assert left.link["messages"][0] == (2 if left.link["segments"][0] > 1 else BATCH)


@every_pair
def test_a_datagram_that_is_too_long_shows(ends: tuple[End, End]) -> None:
    left, right = ends
    left.socket.send(bytes(3000))
    left.socket.send(b"next")
    long, following = right.receive_all(2)
    assert len(long) >= ROW_BYTES
    assert following == b"next"


@pytest.mark.parametrize("ends", [(True, True)], indirect=True)
def test_when_no_process_listens(ends: tuple[End, End]) -> None:
    left, right = ends
    right.socket.close()
    deadline = time.monotonic() + DEADLINE_S
    while left.link["refused"][0] == 0 and time.monotonic() < deadline:
        left.send([b"x"] * 3)
        assert left.receive() == []
    assert left.link["refused"][0] > 0
    assert left.link["send_errors"][0] == 0


@pytest.mark.parametrize("ends", [(False, False)], indirect=True)
def test_what_cannot_be_sent_is_counted_and_left_out(ends: tuple[End, End]) -> None:
    left, right = ends
    left.outbox.vectors["base"][1] = 0
    left.send([b"one", b"two", b"three"])
    assert right.receive_all(2) == [b"one", b"three"]
    assert left.link["send_errors"][0] == 1
    assert left.link["send_errno"][0] == errno.EFAULT
