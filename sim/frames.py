"""The headers of a worker's datagrams: Ethernet, IPv4 and UDP, as a host's system writes them."""

import struct
from typing import Final

import numpy as np

from host_agent.wire.constants import UDP_PORT
from host_agent.wire.lengths import FRAME_HEADERS_BYTES
from topologies.addresses import ipv4_int, mac_int

FIRST_UDP_PORT: Final = 40000  # The workers of a host receive on this UDP port and those that follow.
HEADERS_BYTES: Final = FRAME_HEADERS_BYTES
IPV4_DESTINATION: Final = 30  # Offset in a frame.


def headers(
    source: tuple[str, str],
    target: tuple[str, str],
    source_port: int,
    target_port: int = UDP_PORT,
    length: int = 0,
    udp_length: int = 0,
    service: int = 0,
) -> bytes:
    """Return 42 bytes of headers for a datagram.

    `source`, `target`: (MAC address, IPv4 address). `length`, `udp_length`: bytes of the IPv4 packet and of the datagram; 0:
    they are filled in later. `service`: IPv4's type of service, such as `ECT`.
    """
    ethernet = mac_int(target[0]).to_bytes(6, "big") + mac_int(source[0]).to_bytes(6, "big") + b"\x08\x00"
    addresses = ipv4_int(source[1]), ipv4_int(target[1])
    fields = (0x45, service, length, 0, 0x4000, 64, 17)
    ipv4 = struct.pack("!BBHHHBBHII", *fields, 0, *addresses)
    total = int(np.frombuffer(ipv4, ">u2").sum(dtype=np.int64))
    checksum = ~(total % 0xFFFF) & 0xFFFF
    ipv4 = struct.pack("!BBHHHBBHII", *fields, checksum, *addresses)
    return ethernet + ipv4 + struct.pack("!HHHH", source_port, target_port, udp_length, 0)
