"""ICMP echo to the switch's own addresses."""

import struct
from typing import Any

import pytest

from tests.dataplane.dataplane.frames import ICMP, IPV4, ethernet, internet_checksum, ipv4
from tests.dataplane.dataplane.jobs import SWITCH_IP, SWITCH_MAC, worker_at
from tests.dataplane.dataplane.target import Packet, Target

REPLY, REQUEST = 0, 8


def echo(kind: int, payload: bytes, code: int = 0) -> bytes:
    """Write an ICMP echo packet."""
    rest = struct.pack("!HH", 0x1234, 7) + payload
    checksum = internet_checksum(struct.pack("!BBH", kind, code, 0) + rest)
    return struct.pack("!BBH", kind, code, checksum) + rest


def ping(port: int, icmp: bytes, dst: int = SWITCH_IP, **ip: Any) -> Packet:
    asker = worker_at(port)
    return port, ethernet(SWITCH_MAC, asker.mac, IPV4, ipv4(asker.ip, dst, ICMP, icmp, **ip))


def pong(port: int, icmp: bytes, **ip: Any) -> Packet:
    asker = worker_at(port)
    return port, ethernet(asker.mac, SWITCH_MAC, IPV4, ipv4(SWITCH_IP, asker.ip, ICMP, icmp, **ip))


@pytest.mark.parametrize("size", [0, 1, 56, 57, 1472])
def test_echo_comes_back(target: Target, size: int) -> None:
    payload = bytes(i % 251 for i in range(size))
    for port in (0, 5):
        sent = ping(port, echo(REQUEST, payload), identification=0x4321, ttl=3)
        assert target.send([sent]) == [pong(port, echo(REPLY, payload), identification=0x4321)]


@pytest.mark.parametrize("checksum", [0x0000, 0x0001, 0xF7FE, 0xF7FF, 0xF800, 0xFFFE])
def test_checksum_at_its_corners(target: Target, checksum: int) -> None:
    """The answer's is larger by 0x0800, with a carry from 0xF7FF on."""
    rest = internet_checksum(echo(REQUEST, b"")[:2] + struct.pack("!HHH", 0, 0x1234, 7))
    word = (rest - checksum) % 0xFFFF  # Sums of words are modulo 0xFFFF.
    request = echo(REQUEST, struct.pack("!H", word))
    assert request[2:4] == struct.pack("!H", checksum)
    assert target.send([ping(0, request)]) == [pong(0, echo(REPLY, struct.pack("!H", word)))]


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(ping(0, echo(REPLY, b"x")), id="reply"),
        pytest.param(ping(0, echo(13, b"x" * 12)), id="timestamp"),
        pytest.param(ping(0, echo(REQUEST, b"x", code=1)), id="code 1"),
        pytest.param(ping(0, echo(REQUEST, b"x"), checksum=1), id="wrong header checksum"),
        pytest.param(ping(0, echo(REQUEST, b"x"), flags_and_offset=0x2000), id="first fragment"),
        pytest.param(ping(0, echo(REQUEST, b"x"), options=b"\1\1\1\1"), id="options"),
        pytest.param(ping(0, b"\x08\x00"), id="cut off"),
        pytest.param(ping(0, echo(REQUEST, b"x"), dst=SWITCH_IP - 1), id="another address"),
    ],
)
def test_what_is_no_plain_request_is_not_answered(target: Target, packet: Packet) -> None:
    if len(packet[1]) < 42 and not target.kind.sees_where_frames_end:
        pytest.skip("the rest of the request is taken from what follows it")
    assert target.send([packet]) == []


def test_switch_does_not_ping_itself(target: Target) -> None:
    frame = ethernet(
        SWITCH_MAC, worker_at(0).mac, IPV4, ipv4(SWITCH_IP, SWITCH_IP, ICMP, echo(REQUEST, b"x"))
    )
    assert target.send([(0, frame)]) == []


def test_sender_that_is_a_group_is_not_answered(target: Target) -> None:
    packet = ipv4(worker_at(0).ip, SWITCH_IP, ICMP, echo(REQUEST, b"x"))
    assert target.send([(0, ethernet(SWITCH_MAC, 0xFFFFFFFFFFFF, IPV4, packet))]) == []
