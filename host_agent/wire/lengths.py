"""Lengths of the packets of a job, in bytes."""

from typing import Final

from host_agent.wire.constants import HEADER_BYTES, LANE_BYTES

_ETHERNET_BYTES: Final = 14
FRAME_HEADERS_BYTES: Final = _ETHERNET_BYTES + 20 + 8
"""Bytes of the Ethernet, IPv4 and UDP headers in front of a datagram."""


def frame_bytes(lanes: int) -> int:
    """Return the bytes of a frame with so many lanes, without its check sequence."""
    return FRAME_HEADERS_BYTES + HEADER_BYTES + LANE_BYTES * lanes


def packet_bytes(lanes: int) -> int:
    """Return the bytes of an IP packet with so many lanes."""
    return frame_bytes(lanes) - _ETHERNET_BYTES
