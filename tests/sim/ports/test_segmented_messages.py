"""A worker's messages of several datagrams, on virtual cables: the switch gets packets, never a message."""

import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest

from host_agent.transport.messages import LINK, UdpSocket, make_inbox, make_outbox, send
from host_agent.transport.segmentation import MOST_SEGMENTS, segments_towards
from host_agent.transport.system_calls import POLLFD
from host_agent.transport.udp import BURST_BYTES
from sim.switch.ports import InterfacePorts
from tests.sim.ports.cables import DEADLINE_S, Cables
from topologies.namespaces import missing_for_namespaces, run

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(missing_for_namespaces() is not None, reason=str(missing_for_namespaces())),
]

WORKER, SWITCH = "10.9.0.1", "10.9.0.254"
ROW_BYTES = 1048
HEADERS = 42


@pytest.fixture(scope="module")
def cables() -> Iterator[Cables]:
    with Cables(1) as up:
        up.ip("address", "add", f"{WORKER}/24", "dev", "h1")
        up.ip("neighbour", "add", SWITCH, "lladdr", "02:00:00:00:00:fe", "dev", "h1")
        yield up


def test_an_interface_that_cuts_messages_up_takes_them(cables: Cables) -> None:
    assert segments_towards(WORKER) == MOST_SEGMENTS


def test_the_limit_of_an_interface_counts(cables: Cables) -> None:
    cables.ip("link", "set", "h1", "gso_max_segs", "1")
    assert segments_towards(WORKER) == 1
    cables.ip("link", "set", "h1", "gso_max_segs", "5")
    assert segments_towards(WORKER) == 5
    cables.ip("link", "set", "h1", "gso_max_segs", "65535")


def test_an_interface_that_hands_messages_over_whole_gets_none(cables: Cables) -> None:
    run("ethtool", "-K", "h1", "gso", "on", "tx", "on", "tx-udp-segmentation", "on")
    try:
        assert segments_towards(WORKER) == 1
    finally:
        run("ethtool", "-K", "h1", "gso", "off", "tx", "off")


def test_an_address_that_no_interface_has() -> None:
    assert segments_towards("192.0.2.1") == 1


@pytest.mark.parametrize("lengths", [[1044] * 40, [276] * 60 + [20] * 3, [20, 1044, 1044, 20, 276, 276, 276]])
def test_messages_arrive_as_packets_in_order(cables: Cables, lengths: list[int]) -> None:
    with (
        InterfacePorts([(1, "s1")]) as ports,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as worker,
    ):
        worker.bind((WORKER, 0))
        worker.connect((SWITCH, 28275))
        link, outbox = np.zeros(1, LINK), make_outbox(ROW_BYTES)
        link["fd"], link["segments"], link["message_bytes"] = worker.fileno(), MOST_SEGMENTS, BURST_BYTES
        payloads = [bytes([number]) * length for number, length in enumerate(lengths)]
        for row, payload in zip(outbox.rows, payloads, strict=False):
            row[: len(payload)] = np.frombuffer(payload, np.uint8)
        outbox.lengths[: len(lengths)] = lengths
        wake, work = np.zeros(1, np.int64), np.zeros(2, np.int64)
        ends = UdpSocket(wake, link, make_inbox(ROW_BYTES, False), outbox, np.zeros(2, POLLFD), work)
        assert not send(ends, len(lengths))
        assert link["messages"][0] < len(lengths)
        assert link["send_errors"][0] == 0
        came: list[bytes] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(came) < len(payloads) and time.monotonic() < deadline:
            count = ports.receive(100)
            frames = zip(ports.record.frames[:count], ports.record.lengths[:count], strict=True)
            came += [frame[HEADERS:length].tobytes() for frame, length in frames]
        assert came == payloads
        assert ports.statistics()[1]["merged"] == 0
