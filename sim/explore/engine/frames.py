"""Frames as workers send them, and the addresses of the explorer's hosts and switches."""

import struct

import numpy as np

from host_agent.wire.constants import UDP_PORT
from host_agent.wire.header import FRAME_HEADERS_BYTES

WORKER_UDP_PORT = 40000
HEADERS_BYTES = FRAME_HEADERS_BYTES  # Ethernet, IPv4 and UDP in front of a datagram.
IPV4_DESTINATION, UDP_DESTINATION = 30, 36  # Offsets in a frame.


def switch_ip(switch: int) -> str:
    """Return the IPv4 address of a switch."""
    return f"10.0.0.{254 - switch}"


def switch_mac(switch: int) -> str:
    """Return the MAC address of a switch."""
    return f"02:00:0a:00:00:{254 - switch:02x}"


def host_ip(host: int) -> str:
    """Return the IPv4 address of a host."""
    return f"10.0.0.{host + 1}"


def host_mac(host: int) -> str:
    """Return the MAC address of a host."""
    return f"02:00:0a:00:00:{host + 1:02x}"


def headers(host: int, datagram_bytes: int, switch: int = 0, source: str = "") -> bytes:
    """Return Ethernet, IPv4 and UDP headers of a datagram from a host, or from another IPv4 address, to a switch."""
    ethernet = _mac(switch_mac(switch)) + _mac(host_mac(host)) + b"\x08\x00"
    udp = struct.pack("!HHHH", WORKER_UDP_PORT, UDP_PORT, 8 + datagram_bytes, 0)
    front = struct.pack("!BBHHHBB", 0x45, 0, 28 + datagram_bytes, 0, 0x4000, 64, 17)
    back = _ip(source or host_ip(host)) + _ip(switch_ip(switch))
    words = np.frombuffer(front + b"\0\0" + back, ">u2").sum(dtype=np.int64)
    checksum = ~(int(words) % 0xFFFF) & 0xFFFF
    return ethernet + front + struct.pack("!H", checksum) + back + udp


def addressed_to_switch(switch: int) -> bytes:
    """Return headers whose destination is a switch, the rest zero."""
    frame = bytearray(HEADERS_BYTES)
    frame[0:6] = _mac(switch_mac(switch))
    frame[IPV4_DESTINATION : IPV4_DESTINATION + 4] = _ip(switch_ip(switch))
    frame[UDP_DESTINATION : UDP_DESTINATION + 2] = struct.pack("!H", UDP_PORT)
    return bytes(frame)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def _ip(text: str) -> bytes:
    return bytes(map(int, text.split(".")))
