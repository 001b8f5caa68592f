"""The headers of a worker's datagrams: Ethernet, IPv4 and UDP, as a host's system writes them."""

import struct

import numpy as np

from controller.addresses import ipv4_int, mac_int
from host_agent.wire.constants import UDP_PORT

FIRST_UDP_PORT = 40000  # The workers of a host receive on this UDP port and those that follow.


def headers(
    source: tuple[str, str], target: tuple[str, str], source_port: int, target_port: int = UDP_PORT
) -> bytes:
    """Return 42 bytes of headers for a datagram whose lengths are not filled in yet.

    `source`, `target`: (MAC address, IPv4 address).
    """
    ethernet = mac_int(target[0]).to_bytes(6, "big") + mac_int(source[0]).to_bytes(6, "big") + b"\x08\x00"
    addresses = ipv4_int(source[1]), ipv4_int(target[1])
    ipv4 = struct.pack("!BBHHHBBHII", 0x45, 0, 0, 0, 0x4000, 64, 17, 0, *addresses)
    total = int(np.frombuffer(ipv4, ">u2").sum(dtype=np.int64))
    checksum = ~(total % 0xFFFF) & 0xFFFF
    ipv4 = struct.pack("!BBHHHBBHII", 0x45, 0, 0, 0, 0x4000, 64, 17, checksum, *addresses)
    return ethernet + ipv4 + struct.pack("!HHHH", source_port, target_port, 0, 0)
