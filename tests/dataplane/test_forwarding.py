"""Other traffic is switched and routed, byte for byte the same except for the fields that a router changes."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dataplane.dataplane.frames import (
    ARP,
    CONTRIBUTE,
    HEADER,
    IPV4,
    NETSUM_PORT,
    RESULT,
    TCP,
    UDP,
    ethernet,
    internet_checksum,
    ipv4,
    udp,
)
from tests.dataplane.dataplane.jobs import SWITCH_MAC, MakeJob, lanes_of, worker_at
from tests.dataplane.dataplane.target import PORTS, Entry, Packet, Target

FLOOD_GROUP = 256
BROADCAST = 0xFFFFFFFFFFFF
ROUTER_MAC, NEXT_MAC = 0x020000000A01, 0x020000000A02
A, B = worker_at(0), worker_at(1)


@pytest.fixture
def stations(target: Target) -> Iterator[None]:
    """Every host is where it is; the rest is flooded."""
    entries = [
        Entry("l2_forward", {"dst": worker_at(port).mac}, "forward", {"port": port}) for port in range(PORTS)
    ]
    target.insert(entries)
    target.set_group(FLOOD_GROUP, [(port, 0) for port in range(PORTS)])
    target.set_default("l2_forward", "flood", {"mcast_group": FLOOD_GROUP})
    yield
    target.set_default("l2_forward", "drop", {})
    target.delete_group(FLOOD_GROUP)
    target.delete(entries)


@pytest.fixture
def routes(target: Target) -> Iterator[None]:
    """Two networks behind ports 2 and 3, one inside the other."""
    entries = [
        Entry(
            "l3_route",
            {"dst": (0x0A630000, 16)},
            "route",
            {"port": 2, "src_mac": ROUTER_MAC, "dst_mac": NEXT_MAC},
        ),
        Entry(
            "l3_route",
            {"dst": (0x0A630500, 24)},
            "route",
            {"port": 3, "src_mac": ROUTER_MAC, "dst_mac": NEXT_MAC + 1},
        ),
    ]
    target.insert(entries)
    yield
    target.delete(entries)


def to_all_but(port: int, frame: bytes) -> list[Packet]:
    return [(other, frame) for other in range(PORTS) if other != port]


def frames_of_all_kinds() -> list[tuple[str, bytes]]:
    """Make frames from A to B."""
    source = random.Random(5)
    netsum = HEADER.pack(0x20 | CONTRIBUTE, 1, 1, 1 << 28, 7, 0, 0, 0, 0, 0, 0)
    forged = HEADER.pack(0x20 | RESULT, 0, 1, 1 << 28, 7, 0, 0, 0, 0, 0, 0)

    def ip(protocol: int, payload: bytes, **fields: Any) -> bytes:
        return ethernet(B.mac, A.mac, IPV4, ipv4(A.ip, B.ip, protocol, payload, **fields))

    return [
        ("TCP", ip(TCP, source.randbytes(200))),
        ("UDP", ip(UDP, udp(1, 2, source.randbytes(100)))),
        ("UDP, netsum port, noise", ip(UDP, udp(1, NETSUM_PORT, source.randbytes(100)))),
        ("UDP, netsum port, short", ip(UDP, udp(1, NETSUM_PORT, b"\x11"))),
        ("UDP, netsum port, contribution", ip(UDP, udp(1, NETSUM_PORT, netsum))),
        ("UDP, netsum port, 64 lanes", ip(UDP, udp(1, NETSUM_PORT, netsum + source.randbytes(256)))),
        ("UDP, netsum port, 256 lanes", ip(UDP, udp(1, NETSUM_PORT, netsum + source.randbytes(1024)))),
        ("UDP, netsum port, 64 lanes cut off", ip(UDP, udp(1, NETSUM_PORT, netsum + bytes(200), length=284))),
        (
            "UDP, netsum port, 256 lanes cut off",
            ip(UDP, udp(1, NETSUM_PORT, netsum + bytes(200), length=1052)),
        ),
        ("UDP, netsum port, result", ip(UDP, udp(1, NETSUM_PORT, forged))),
        ("IPv4, wrong checksum", ip(TCP, source.randbytes(50), checksum=1)),
        ("IPv4, options", ip(UDP, udp(1, NETSUM_PORT, netsum), options=b"\1\1\1\1")),
        ("IPv4, fragment", ip(UDP, source.randbytes(64), flags_and_offset=0x2005)),
        ("IPv4, ttl 0", ip(TCP, source.randbytes(64), ttl=0)),
        ("IPv4, cut off", ethernet(B.mac, A.mac, IPV4, b"\x45\0\0")),
        ("ARP reply", ethernet(B.mac, A.mac, ARP, source.randbytes(28))),
        ("ARP, cut off", ethernet(B.mac, A.mac, ARP, bytes(5))),
        ("IPv6", ethernet(B.mac, A.mac, 0x86DD, source.randbytes(300))),
        ("VLAN", ethernet(B.mac, A.mac, 0x8100, source.randbytes(300))),
        ("LLDP", ethernet(B.mac, A.mac, 0x88CC, source.randbytes(64))),
        ("length field", ethernet(B.mac, A.mac, 46, source.randbytes(46))),
        ("header alone", ethernet(B.mac, A.mac, 0x88B6, b"")),
        ("largest", ethernet(B.mac, A.mac, 0x88B6, source.randbytes(1500))),
    ]


@pytest.mark.parametrize(
    ("kind", "frame"), frames_of_all_kinds(), ids=[kind for kind, _ in frames_of_all_kinds()]
)
@pytest.mark.usefixtures("stations")
def test_known_station_gets_it_as_it_is(target: Target, kind: str, frame: bytes) -> None:
    frame = frame.ljust(target.kind.shortest_frame, b"\0")
    assert target.send([(0, frame)]) == [(1, frame)], kind


@pytest.mark.usefixtures("stations")
@pytest.mark.parametrize(
    "dst", [BROADCAST, 0x01005E000001, 0x020000009999], ids=["broadcast", "group", "unknown"]
)
def test_flood_reaches_every_port_but_the_one_it_came_from(target: Target, dst: int) -> None:
    frame = ethernet(dst, A.mac, 0x88B6, bytes(50))
    for port in (0, 4):
        assert sorted(target.send([(port, frame)])) == to_all_but(port, frame)


@pytest.mark.usefixtures("stations")
def test_frame_for_a_station_where_it_came_from_is_dropped(target: Target) -> None:
    assert target.send([(1, ethernet(B.mac, 0x020000009999, 0x88B6, bytes(50)))]) == []


def test_unknown_station_without_flooding_is_dropped(target: Target) -> None:
    assert target.send([(0, ethernet(0x020000009999, A.mac, 0x88B6, bytes(50)))]) == []


@pytest.mark.usefixtures("routes")
@pytest.mark.parametrize("ttl", [2, 3, 64, 255])
@pytest.mark.parametrize("options", [b"", b"\1\1\1\1"], ids=["plain", "options"])
def test_route(target: Target, ttl: int, options: bytes) -> None:
    for dst, port, mac in (
        (0x0A630101, 2, NEXT_MAC),
        (0x0A630501, 3, NEXT_MAC + 1),
        (0x0A6305FF, 3, NEXT_MAC + 1),
    ):
        for identification in (0, 1, 0x8000, 0xFFFF):
            fields: dict[str, Any] = {"options": options, "identification": identification}
            sent = ipv4(A.ip, dst, TCP, bytes(range(40)), ttl=ttl, **fields)
            routed = ipv4(A.ip, dst, TCP, bytes(range(40)), ttl=ttl - 1, **fields)
            expected = [(port, ethernet(mac, ROUTER_MAC, IPV4, routed))]
            assert target.send([(0, ethernet(SWITCH_MAC, A.mac, IPV4, sent))]) == expected


@pytest.mark.usefixtures("routes")
def test_routed_checksum_is_right_for_every_sum(target: Target) -> None:
    """Identifications take the checksum through its whole range."""
    plain = internet_checksum(ipv4(A.ip, 0x0A630101, UDP, udp(1, 2, b"x"), checksum=0)[:20])
    # The routed packet's is larger by 0x0100, with a carry from 0xFEFF on.
    checksums = (*range(0, 0xFFFF, 0x10000 // 60), 0xFEFE, 0xFEFF, 0xFF00, 0xFFFE)
    packets = [
        ipv4(A.ip, 0x0A630101, UDP, udp(1, 2, b"x"), identification=(plain - checksum) % 0xFFFF)
        for checksum in checksums
    ]
    assert [int.from_bytes(packet[10:12], "big") for packet in packets] == list(checksums)
    frames = [(0, ethernet(SWITCH_MAC, A.mac, IPV4, packet)) for packet in packets]
    routed = target.send(frames)
    assert len(routed) == len(packets)
    assert all(internet_checksum(frame[14:34]) == 0 for _, frame in routed)


@pytest.mark.usefixtures("routes")
@pytest.mark.parametrize(
    "fields",
    [{"ttl": 1}, {"ttl": 0}, {"checksum": 1}],
    ids=["ttl 1", "ttl 0", "wrong checksum"],
)
def test_what_a_router_does_not_forward(target: Target, fields: dict[str, Any]) -> None:
    packet = ipv4(A.ip, 0x0A630101, TCP, bytes(40), **fields)
    assert target.send([(0, ethernet(SWITCH_MAC, A.mac, IPV4, packet))]) == []


@pytest.mark.usefixtures("routes")
def test_what_has_no_route_or_is_for_a_group_is_not_routed(target: Target) -> None:
    unknown = ethernet(SWITCH_MAC, A.mac, IPV4, ipv4(A.ip, 0x0A640101, TCP, bytes(40)))
    group = ethernet(BROADCAST, A.mac, IPV4, ipv4(A.ip, 0x0A630101, TCP, bytes(40)))
    assert target.send([(0, unknown), (0, group)]) == []


@pytest.mark.usefixtures("stations", "routes")
def test_neighbour_is_switched_not_routed(target: Target) -> None:
    frame = ethernet(B.mac, A.mac, IPV4, ipv4(A.ip, 0x0A630101, TCP, bytes(40)))
    assert target.send([(0, frame)]) == [(1, frame)]


@pytest.mark.usefixtures("stations")
def test_traffic_beside_a_reduction(target: Target, make_job: MakeJob) -> None:
    job = make_job(workers=2)
    lanes = lanes_of(target, 1)
    frames = [frame.ljust(target.kind.shortest_frame, b"\0") for _, frame in frames_of_all_kinds()]
    for chunk, frame in enumerate(frames):
        total = [2 * value for value in lanes]
        packets = [job.contribution(0, chunk, lanes), (0, frame), job.contribution(1, chunk, lanes)]
        job.expect(packets, [(1, frame), *job.results(chunk, total)])
