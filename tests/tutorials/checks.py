"""Checks of each exercise's solution: one function for each, which fails if the packets differ."""

import struct
import time
from collections.abc import Callable, Mapping

from scapy.layers.inet import IP, TCP, UDP, IPOption
from scapy.layers.l2 import Ether

from tests.tutorials.bed import Bed

BROADCAST = "ff:ff:ff:ff:ff:ff"
TUNNEL, PROBE, CALCULATOR, SOURCE_ROUTE, EXPERIMENTAL = 0x1212, 0x0812, 0x1234, 0x1234, 0x88B5
SPORT, DPORT = 1234, 4321
TEXT = b"netsum's own message"
MRI_OPTION = 31
FLOWS_S = 3.0
"""How long to listen for the packets of all flows."""


def is_ours(frame: bytes) -> bool:
    return TEXT in frame


def basic(bed: Bed) -> None:
    """All hosts reach each other, over loops too, and after a restart of a switch again."""
    assert bed.ping_all() == []
    bed.restart("s1")
    assert bed.ping_all() == []


def basic_tunnel(bed: Bed) -> None:
    """A packet in a tunnel goes where the tunnel leads, whatever its IP address."""
    assert bed.ping_all() == []
    for number, host, other in ((2, "h2", "h3"), (3, "h3", "h2")):
        inner = bytes(IP(dst=bed.ip(other)) / UDP(sport=SPORT, dport=DPORT) / TEXT)
        header = struct.pack("!HH", 0x0800, number)
        bed.ports["h1"].send(bytes(Ether(src=bed.mac("h1"), dst=BROADCAST, type=TUNNEL)) + header + inner)
        frame = bed.ports[host].await_frame(is_ours)
        assert frame[12:18] == struct.pack("!H", TUNNEL) + header
        bed.ports[other].none_of(is_ours)


def ecn(bed: Bed) -> None:
    """A packet that is ECN-capable arrives; BMv2, whose queue fills before the slow link, marks some of a burst."""
    assert bed.ping([("h1", "h2"), ("h2", "h1")]) == []
    packet = Ether(src=bed.mac("h1"), dst=BROADCAST) / IP(dst=bed.ip("h2"), tos=1)
    burst = packet / UDP(sport=SPORT, dport=DPORT) / (TEXT + bytes(1000))
    for _ in range(400):
        bed.ports["h1"].send(burst)
    marks: set[int] = set()
    arrived = 0
    # The first ones, about 90, wait behind the switch in its socket's buffer.
    while arrived < 200 and len(marks) < 2:
        marks.add(IP(bed.ports["h2"].await_frame(is_ours)[14:]).tos & 3)
        arrived += 1
    assert marks == ({1, 3} if bed.state["switch_kind"] == "bmv2" else {1})


def mri(bed: Bed) -> None:
    """Every switch on the way adds its number and the length of its queue to an IP option."""
    option = IPOption(struct.pack("!BBH", MRI_OPTION, 4, 0))
    packet = Ether(src=bed.mac("h1"), dst=BROADCAST) / IP(dst=bed.ip("h2"), options=option)
    bed.ports["h1"].send(packet / UDP(sport=SPORT, dport=DPORT) / TEXT)
    header = bed.ports["h2"].await_frame(is_ours)[14:]
    assert struct.unpack("!BBH", header[20:24]) == (MRI_OPTION, 4 + 2 * 8, 2)
    assert struct.unpack("!I4xI", header[24:36]) == (2, 1)


def source_routing(bed: Bed) -> None:
    """A packet takes the way that its header says, and loses one hop of its TTL at each switch."""
    ways = (("2 3 2 2 1", "h2"), ("3 1", "h3"), ("1", "h1"))
    for way, host in ways:
        ports = [int(port) for port in way.split()]
        route = b"".join(
            struct.pack("!H", (at == len(ports)) << 15 | port) for at, port in enumerate(ports, start=1)
        )
        inner = bytes(IP(dst=bed.ip("h2"), ttl=64) / UDP(sport=SPORT, dport=DPORT) / TEXT)
        bed.ports["h1"].send(
            bytes(Ether(src=bed.mac("h1"), dst=BROADCAST, type=SOURCE_ROUTE)) + route + inner
        )
        frame = bed.ports[host].await_frame(is_ours)
        assert frame[12:14] == b"\x08\x00"
        assert IP(frame[14:]).ttl == 64 - len(ports)


def calc(bed: Bed) -> None:
    """The switch answers with the result of each operation."""
    one, other = 0xF0F01234, 0x0FF04321
    results = {
        "+": (one + other) % (1 << 32),
        "-": one - other,
        "&": one & other,
        "|": one | other,
        "^": one ^ other,
    }
    ethernet = bytes(Ether(src=bed.mac("h1"), dst="00:04:00:00:00:00", type=CALCULATOR))
    for sign, result in results.items():
        asked = b"P4\x01" + sign.encode() + struct.pack("!II", one, other)
        bed.ports["h1"].send(ethernet + asked + struct.pack("!I", 0xDEADBABE) + bytes(32))
        frame = bed.ports["h1"].await_frame(lambda frame, asked=asked: frame[14:26] == asked)  # type: ignore[misc]  # the default
        assert frame[26:30] == struct.pack("!I", result)
        assert frame[:6] == ethernet[6:12]


def load_balance(bed: Bed) -> None:
    """Flows to one address are spread over two hosts, and each flow stays at one."""
    found: dict[str, set[int]] = {"h2": set(), "h3": set()}
    for _ in range(2):
        for port in range(50_000, 50_030):
            packet = Ether(src=bed.mac("h1"), dst=BROADCAST) / IP(dst="10.0.0.1")
            bed.ports["h1"].send(packet / TCP(sport=port, dport=80) / TEXT)
    for host, flows in found.items():
        arrived = []
        for frame in bed.ports[host].frames(time.monotonic() + FLOWS_S):
            if is_ours(frame):
                packet = IP(frame[14:])
                assert packet.dst == bed.ip(host)
                arrived.append(packet[TCP].sport)
        flows.update(arrived)
        assert len(arrived) == 2 * len(flows)
    assert found["h2"] | found["h3"] == set(range(50_000, 50_030))
    assert all(found.values())
    assert not found["h2"] & found["h3"]


def qos(bed: Bed) -> None:
    """UDP and TCP packets leave with different classes of service, and keep their ECN bits."""
    for transport, service in ((UDP(sport=SPORT, dport=DPORT), 46), (TCP(sport=SPORT, dport=DPORT), 44)):
        packet = Ether(src=bed.mac("h1"), dst=BROADCAST) / IP(dst=bed.ip("h2"), tos=1)
        bed.ports["h1"].send(packet / transport / TEXT)
        assert IP(bed.ports["h2"].await_frame(is_ours)[14:]).tos == service << 2 | 1


def multicast(bed: Bed) -> None:
    """A broadcast reaches all but its sender; a packet to one host reaches that alone."""
    assert bed.ping_all() == []
    broadcast = Ether(src=bed.mac("h1"), dst=BROADCAST, type=EXPERIMENTAL) / (TEXT + b" to all")
    bed.ports["h1"].send(broadcast)
    for host in ("h2", "h3", "h4"):
        bed.ports[host].await_frame(is_ours)
    bed.ports["h1"].send(Ether(src=bed.mac("h1"), dst=bed.mac("h3"), type=EXPERIMENTAL) / (TEXT + b" to one"))
    assert bed.ports["h3"].await_frame(is_ours).endswith(b"to one")
    for host in ("h1", "h2", "h4"):
        bed.ports[host].none_of(is_ours)


def firewall(bed: Bed) -> None:
    """From outside only answers to connections from inside come through."""
    outside, inside = bed.ports["h3"], bed.ports["h1"]

    def packet(source: str, target: str, sport: int, dport: int, flags: str) -> object:
        header = Ether(src=bed.mac(source), dst=BROADCAST) / IP(src=bed.ip(source), dst=bed.ip(target))
        return header / TCP(sport=sport, dport=dport, flags=flags) / TEXT

    outside.send(packet("h3", "h1", 999, 80, "S"))
    inside.send(packet("h1", "h3", 1000, 80, "S"))
    outside.await_frame(is_ours)
    outside.send(packet("h3", "h1", 80, 1000, "SA"))
    assert IP(inside.await_frame(is_ours)[14:])[TCP].sport == 80
    inside.none_of(is_ours)
    assert bed.ping([("h1", "h2"), ("h2", "h1")]) == []


def link_monitor(bed: Bed) -> None:
    """A probe goes all the way round the pod and brings back each switch's number, port and bytes."""
    assert bed.ping_all() == []
    way = (4, 1, 4, 1, 3, 2, 3, 2, 1)
    probe = Ether(src=bed.mac("h1"), dst=BROADCAST, type=PROBE)
    for _ in range(2):
        bed.ports["h1"].send(bytes(probe) + bytes([0, *way]))
        frame = bed.ports["h1"].await_frame(lambda frame: frame[12:14] == struct.pack("!H", PROBE))
        assert frame[14] == len(way)
        hops = [struct.unpack_from("!BBI6s6s", frame, 15 + 18 * at) for at in range(len(way))]
        assert [hop[0] & 0x7F for hop in reversed(hops)] == [1, 4, 2, 3, 1, 3, 2, 4, 1]
        assert [hop[1] for hop in reversed(hops)] == list(way)
        assert all(hop[2] for hop in hops)
        assert all(hop[4] >= hop[3] for hop in hops)


CHECKS: Mapping[str, Callable[[Bed], None]] = {
    "basic": basic,
    "basic, triangle": basic,
    "basic_tunnel": basic_tunnel,
    "ecn": ecn,
    "mri": mri,
    "source_routing": source_routing,
    "calc": calc,
    "load_balance": load_balance,
    "qos": qos,
    "multicast": multicast,
    "firewall": firewall,
    "link_monitor": link_monitor,
}
"""By the exercise's name; those with a controller of their own: `tests.tutorials.controllers`."""
