"""Datagrams of workers as Ethernet frames, and back."""

import struct

import numpy as np

from host_agent.wire.constants import UDP_PORT

SWITCH_IP = 0x0A0000FE
SWITCH_MAC = 0x0200_0A00_00FE
HEADERS_BYTES = 42
IPV4_AND_UDP_BYTES = 28
WORKER_UDP_PORT = 40000


def worker_ip(port: int) -> int:
    return 0x0A000001 + port


def worker_mac(port: int) -> int:
    return 0x0200_0000_0000 | worker_ip(port)


def headers(port: int, payload_bytes: int) -> bytes:
    """Ethernet, IPv4 and UDP from the worker at a switch port to the switch."""
    ethernet = SWITCH_MAC.to_bytes(6, "big") + worker_mac(port).to_bytes(6, "big") + b"\x08\x00"
    udp = struct.pack("!HHHH", WORKER_UDP_PORT, UDP_PORT, 8 + payload_bytes, 0)
    fields = (0x45, 0, 28 + payload_bytes, 0, 0x4000, 64, 17)
    addresses = (worker_ip(port), SWITCH_IP)
    words = np.frombuffer(struct.pack("!BBHHHBBHII", *fields, 0, *addresses), ">u2").sum(dtype=np.int64)
    checksum = ~(int(words) % 0xFFFF) & 0xFFFF
    return ethernet + struct.pack("!BBHHHBBHII", *fields, checksum, *addresses) + udp
