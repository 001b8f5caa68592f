"""Ports on network interfaces: frames as they were on the wire, both ways; queues, losses, faults."""

import socket
import struct
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from sim.switch.ports import InterfacePorts, PortUnavailableError
from tests.sim.ports.cables import DEADLINE_S, Cables, end_of, frames_of, send_all
from topologies.namespaces import missing_for_namespaces, run

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(missing_for_namespaces() is not None, reason=str(missing_for_namespaces())),
]

HEADER = bytes.fromhex("020000000002 020000000001 88b5")
PORTS = [(1, "s1"), (2, "s2")]
Offloads = tuple[socket.socket, tuple[str, int]]
"""A host's socket, and where it sends to."""


@pytest.fixture(scope="module")
def cables() -> Iterator[Cables]:
    with Cables(2) as up:
        yield up


def transmit(ports: InterfacePorts, frames: Sequence[tuple[int, bytes]]) -> int:
    lengths = np.array([len(frame) for _, frame in frames], np.int32)
    rows = np.zeros((len(frames), int(lengths.max())), np.uint8)
    for row, (_, frame) in zip(rows, frames, strict=True):
        row[: len(frame)] = np.frombuffer(frame, np.uint8)
    return ports.transmit(np.array([port for port, _ in frames], np.uint16), lengths, rows)


def numbered(count: int, size: int = 60) -> list[bytes]:
    return [HEADER + number.to_bytes(2, "big") + bytes(size - 16) for number in range(count)]


def test_frames_come_in_and_go_out_as_they_are(cables: Cables) -> None:
    with InterfacePorts(PORTS) as ports, end_of("h1") as one, end_of("h2") as two:
        assert ports.names == {1: "s1", 2: "s2"}
        before_ns = time.time_ns()
        one.send(HEADER + b"to no known station")
        two.send(HEADER + bytes(1486))
        assert sorted(frames_of(ports, 2)) == [
            (1, HEADER + b"to no known station"),
            (2, HEADER + bytes(1486)),
        ]
        assert before_ns <= ports.record.times[0] <= time.time_ns()
        assert transmit(ports, [(2, HEADER + b"a"), (1, HEADER + b"b"), (9, HEADER), (2, HEADER + b"c")]) == 1
        assert two.recv(2000) == HEADER + b"a"
        assert two.recv(2000) == HEADER + b"c"
        assert one.recv(2000) == HEADER + b"b"
        # The switch's own frames are none that came in.
        assert ports.receive(0) == 0
        counts = ports.statistics()
        assert [counts[1][name] for name in ("received", "sent", "sent_bytes")] == [1, 1, 15]
        assert [counts[2][name] for name in ("received", "received_bytes", "sent")] == [1, 1500, 2]
        assert ports.is_up(1)


def test_order_is_kept_when_a_ring_goes_round(cables: Cables) -> None:
    with InterfacePorts(PORTS[:1]) as ports, end_of("h1") as one:
        places = len(ports._places)
        kept = []
        for first in range(0, places + 2000, 1000):
            send_all(one, (HEADER + number.to_bytes(4, "big") for number in range(first, first + 1000)))
            kept += [int.from_bytes(frame[14:18], "big") for _, frame in frames_of(ports, 1000)]
        assert kept == list(range(len(kept)))
        assert len(kept) > places


def test_a_vlan_tag_is_where_it_was(cables: Cables) -> None:
    tagged = HEADER[:12] + bytes.fromhex("8100 6007 88b5") + b"tagged"
    provider = HEADER[:12] + bytes.fromhex("88a8 0009 8100 6007 88b5") + b"twice"
    with InterfacePorts(PORTS) as ports, end_of("h1") as one:
        one.send(tagged)
        one.send(provider)
        assert frames_of(ports, 2) == [(1, tagged), (1, provider)]


@pytest.fixture
def offloads(cables: Cables) -> Iterator[Offloads]:
    """Host 1 with an address and its offloads on; yields its socket and where it can send."""
    run("ethtool", "-K", "h1", "tx", "on", "gso", "on", "tx-udp-segmentation", "on")
    cables.ip("address", "add", "10.9.0.1/24", "dev", "h1")
    cables.ip("neighbour", "add", "10.9.0.2", "lladdr", "02:00:00:00:00:02", "dev", "h1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("10.9.0.1", 4000))
        yield opened, ("10.9.0.2", 4001)
    cables.ip("address", "flush", "dev", "h1")
    run("ethtool", "-K", "h1", "tx", "off", "gso", "off")


def test_a_checksum_left_to_the_hardware_is_completed(offloads: Offloads) -> None:
    host, there = offloads
    with InterfacePorts(PORTS[:1]) as ports:
        payloads = [b"even", b"uneven!", b"", bytes(1472), b"\xff" * 1001]
        for payload in payloads:
            host.sendto(payload, there)
        found = frames_of(ports, len(payloads))
    for (_, frame), payload in zip(found, payloads, strict=True):
        packet = Ether(frame)
        assert bytes(packet[UDP].payload) == payload
        given = packet[UDP].chksum
        del packet[UDP].chksum
        assert Ether(bytes(packet))[UDP].chksum == given != 0
        assert packet[IP].src == "10.9.0.1"


def test_what_an_offload_merged_is_no_packet(offloads: Offloads) -> None:
    host, there = offloads
    with InterfacePorts(PORTS[:1]) as ports:
        segments = [(socket.IPPROTO_UDP, 103, struct.pack("=H", 1000))]  # UDP_SEGMENT
        host.sendmsg([bytes(4000)], segments, 0, there)
        host.sendto(b"alone", there)
        ((_, frame),) = frames_of(ports, 1)
        assert frame.endswith(b"alone")
        assert ports.statistics()[1]["merged"] == 1


def test_jumbo_frames_pass_and_longer_ones_than_the_switch_was_opened_for_do_not(cables: Cables) -> None:
    with InterfacePorts(PORTS) as small:
        for name in ("h1", "s1"):
            cables.ip("link", "set", name, "mtu", "9000")
        try:
            jumbo = HEADER + bytes(range(250)) * 36
            with InterfacePorts(PORTS) as large, end_of("h1") as one:
                one.send(jumbo[:9014])
                one.send(HEADER + b"short")
                assert frames_of(large, 2) == [(1, jumbo[:9014]), (1, HEADER + b"short")]
                transmit(large, [(1, jumbo[:9014])])
                assert one.recv(10000) == jumbo[:9014]
                # Longer than its interface takes.
                transmit(large, [(2, jumbo[:9014])])
                assert large.statistics()[2]["refused"] == 1
            assert frames_of(small, 1) == [(1, HEADER + b"short")]
            assert small.statistics()[1]["oversized"] == 1
        finally:
            for name in ("h1", "s1"):
                cables.ip("link", "set", name, "mtu", "1500")


def test_frames_beyond_the_ring_are_counted(cables: Cables) -> None:
    with InterfacePorts(PORTS) as ports, end_of("h1") as one, end_of("h2") as two:
        places = len(ports._places)
        send_all(one, numbered(places + 500))
        two.send(HEADER + b"the other port is as it was")
        found = frames_of(ports, places + 1)
        assert len(found) == places + 1
        assert ports.receive(0) == 0
        # Read twice, as the kernel forgets reported counts.
        assert [ports.statistics()[1]["overrun"] for _ in range(2)] == [500, 500]


def test_a_full_queue_drops_at_its_tail_and_counts(cables: Cables) -> None:
    run(
        "tc", "qdisc", "add", "dev", "s1", "root", "tbf", "rate", "100kbit", "burst", "2000", "limit", "20000"
    )
    try:
        with InterfacePorts(PORTS) as ports, end_of("h1") as one, end_of("h2") as two:
            frames = [(1 + number % 2, frame) for number, frame in enumerate(numbered(200, 1000))]
            transmit(ports, frames)
            counts = ports.statistics()
            assert counts[1]["sent"] + counts[1]["queue_full"] == 100
            assert counts[1]["queue_full"] > 50
            assert one.recv(2000) == frames[0][1]
            # The other port is as fast as ever.
            assert (counts[2]["sent"], counts[2]["queue_full"]) == (100, 0)
            assert [two.recv(2000) for _ in range(100)] == [frame for port, frame in frames if port == 2]
    finally:
        run("tc", "qdisc", "delete", "dev", "s1", "root")


def test_a_port_survives_its_interface_going_down(cables: Cables) -> None:
    with InterfacePorts(PORTS) as ports, end_of("h1") as one, end_of("h2") as two:
        cables.ip("link", "set", "s1", "down")
        assert not ports.is_up(1)
        assert transmit(ports, [(1, HEADER + b"lost"), (2, HEADER + b"arrives"), (1, HEADER)]) == 0
        assert two.recv(2000) == HEADER + b"arrives"
        assert ports.statistics()[1]["port_down"] == 2
        two.send(HEADER + b"and back")
        assert frames_of(ports, 1) == [(2, HEADER + b"and back")]
        cables.up("s1")
        one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        one.send(HEADER + b"again")
        assert frames_of(ports, 1) == [(1, HEADER + b"again")]
        # While it is down, waiting is waiting: the error that the kernel reports is taken off the socket.
        cables.ip("link", "set", "s1", "down")
        ports.receive(0)
        begin = time.monotonic()
        assert ports.receive(50) == 0
        assert time.monotonic() - begin >= 0.04
        cables.up("s1")


def test_a_port_comes_back_with_a_new_interface_of_the_same_name(cables: Cables) -> None:
    with InterfacePorts(PORTS) as ports:
        cables.ip("link", "delete", "s1")
        ports.mend()
        assert not ports.is_up(1)
        transmit(ports, [(1, HEADER)])
        assert ports.statistics()[1]["port_down"] == 1
        cables.add(1)
        ports.mend()
        with end_of("h1") as one:
            one.send(HEADER + b"hello")
            assert frames_of(ports, 1) == [(1, HEADER + b"hello")]
            transmit(ports, [(1, HEADER + b"hello yourself")])
            assert one.recv(2000) == HEADER + b"hello yourself"
        assert ports.is_up(1)


def test_losses_are_as_asked_and_repeat_with_the_seed(cables: Cables) -> None:
    def run_once(seed: int) -> list[bytes]:
        with InterfacePorts(PORTS[:1], drop_ppm=100_000, seed=seed) as ports, end_of("h1") as one:
            send_all(one, numbered(1000))
            kept: list[bytes] = []
            deadline = time.monotonic() + DEADLINE_S
            while ports.statistics()[1]["received"] < 1000 and time.monotonic() < deadline:
                count = ports.receive(10)
                kept += [ports.record.frames[i, 14:16].tobytes() for i in range(count)]
            transmit(ports, [(1, frame) for frame in numbered(1000)])
            counts = ports.statistics()[1]
            assert counts["dropped_in"] == 1000 - len(kept)
            assert counts["dropped_out"] == 1000 - counts["sent"]
            assert 60 <= counts["dropped_in"] <= 140
            assert 60 <= counts["dropped_out"] <= 140
            return kept

    first = run_once(7)
    assert run_once(7) == first
    assert run_once(8) != first


def test_one_busy_port_does_not_starve_the_other(cables: Cables) -> None:
    with InterfacePorts(PORTS, batch=64) as ports, end_of("h1") as one, end_of("h2") as two:
        for frame in numbered(500):
            one.send(frame)
        two.send(HEADER + b"quiet")
        ports.receive(DEADLINE_S * 1000)
        assert set(ports.record.ports.tolist()) == {1, 2}


def test_foreseeable_faults_are_one_sentence(cables: Cables, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        PortUnavailableError, match=r"port 4 could not open interface nowhere: No such device"
    ):
        InterfacePorts([(4, "nowhere")])
    with pytest.raises(ValueError, match="a different interface for each port"):
        InterfacePorts([(1, "s1"), (2, "s1")])
    with pytest.raises(ValueError, match="different switch ports between 0 and 511"):
        InterfacePorts([(1, "s1"), (1, "s2")])

    def refuse(*arguments: object) -> None:
        raise PermissionError

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(PortUnavailableError, match="need root .*CAP_NET_RAW.*use UDP ports"):
        InterfacePorts(PORTS)
