"""ARP for the switch's own addresses."""

import struct

import pytest

from tests.dataplane.dataplane.frames import ARP, ethernet
from tests.dataplane.dataplane.jobs import SWITCH_IP, SWITCH_MAC, worker_at
from tests.dataplane.dataplane.target import Entry, Packet, Target

REQUEST, REPLY = 1, 2
BROADCAST = 0xFFFFFFFFFFFF


def arp(
    operation: int,
    sender: tuple[int, int],
    target: tuple[int, int],
    kind: tuple[int, int, int, int] = (1, 0x0800, 6, 4),
) -> bytes:
    """Write an ARP packet; sender and target are (MAC, IP)."""
    return (
        struct.pack("!HHBBH", *kind, operation)
        + sender[0].to_bytes(6, "big")
        + struct.pack("!I", sender[1])
        + target[0].to_bytes(6, "big")
        + struct.pack("!I", target[1])
    )


def request(port: int, target_ip: int = SWITCH_IP, dst: int = BROADCAST, padding: bytes = b"") -> Packet:
    asker = worker_at(port)
    return port, ethernet(dst, asker.mac, ARP, arp(REQUEST, (asker.mac, asker.ip), (0, target_ip)) + padding)


def own_address(ip: int, mac: int) -> Entry:
    return Entry("switch_address", {"address": ip}, "own_address", {"mac": mac})


@pytest.mark.parametrize("padding", [b"", bytes(18)], ids=["bare", "padded"])
@pytest.mark.parametrize("dst", [BROADCAST, SWITCH_MAC], ids=["broadcast", "unicast"])
def test_request_is_answered_to_the_asker_alone(target: Target, dst: int, padding: bytes) -> None:
    for port in (0, 3, 7):
        asker = worker_at(port)
        reply = arp(REPLY, (SWITCH_MAC, SWITCH_IP), (asker.mac, asker.ip))
        expected = port, ethernet(asker.mac, SWITCH_MAC, ARP, reply + padding)
        assert target.send([request(port, dst=dst, padding=padding)]) == [expected]


def test_request_for_another_address_is_not(target: Target) -> None:
    assert target.send([request(0, SWITCH_IP - 1), request(0, 0), request(0, 0xFFFFFFFF)]) == []


def test_addresses_come_and_go(target: Target) -> None:
    """One address, two, the other one, then the first with another MAC address: each is answered while it is there."""
    entries = {
        (ip, mac): own_address(ip, mac) for ip in (SWITCH_IP, SWITCH_IP + 1) for mac in (SWITCH_MAC, 5)
    }
    first, second, changed = entries[SWITCH_IP, SWITCH_MAC], entries[SWITCH_IP + 1, 5], entries[SWITCH_IP, 5]
    held = [first]
    for entry in (second, first, changed, second, changed, first):
        if entry in held:
            held.remove(entry)
            target.delete([entry])
        else:
            held.append(entry)
            target.insert([entry])
        answers = target.send([request(0), request(0, SWITCH_IP + 1)])
        macs = {e.key["address"]: e.params["mac"] for e in held}
        assert [int.from_bytes(frame[6:12]) for _, frame in answers] == [m for _, m in sorted(macs.items())]


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(arp(REPLY, (0x020000000001, 5), (0, SWITCH_IP)), id="reply"),
        pytest.param(arp(0, (0x020000000001, 5), (0, SWITCH_IP)), id="operation 0"),
        pytest.param(arp(REQUEST, (0x020000000001, 5), (0, SWITCH_IP), (6, 0x0800, 6, 4)), id="not Ethernet"),
        pytest.param(arp(REQUEST, (0x020000000001, 5), (0, SWITCH_IP), (1, 0x86DD, 6, 4)), id="not IPv4"),
        pytest.param(arp(REQUEST, (0x020000000001, 5), (0, SWITCH_IP), (1, 0x0800, 8, 4)), id="long MAC"),
        pytest.param(arp(REQUEST, (0x020000000001, 5), (0, SWITCH_IP), (1, 0x0800, 6, 16)), id="long IP"),
        pytest.param(arp(REQUEST, (0x020000000001, 5), (0, SWITCH_IP))[:27], id="cut off"),
    ],
)
def test_what_is_no_request_is_not_answered(target: Target, packet: bytes) -> None:
    assert target.send([(0, ethernet(BROADCAST, 0x020000000001, ARP, packet))]) == []


def test_sender_that_is_a_group_is_not_answered(target: Target) -> None:
    packet = arp(REQUEST, (BROADCAST, 5), (0, SWITCH_IP))
    assert target.send([(0, ethernet(BROADCAST, BROADCAST, ARP, packet))]) == []
