"""Frames around datagrams, for compiled code: headers written and read, losses drawn."""

# The integers of compiled code are NumPy's.
# mypy: disable-error-code="no-any-return,return-value"

import numpy as np

from netsum_common.compiled import Array, Integer, compiled, compiled_inline

ETHERNET_BYTES = 14
IPV4_BYTES = 20
UDP_BYTES = 8
HEADER_BYTES = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES


@compiled
def lost(draws: Array, port: Integer, ppm: Integer) -> bool:
    """Whether the next packet in this direction of the port is to be lost (xorshift64*)."""
    if ppm == 0:
        return False
    x = draws[port]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    draws[port] = x
    top = (x * np.uint64(2685821657736338717)) >> np.uint64(32)
    return (top * np.uint64(1_000_000)) >> np.uint64(32) < np.uint64(ppm)


@compiled_inline
def put16(row: Array, at: Integer, value: Integer) -> None:
    """Write 16 bits in network byte order."""
    row[at] = (value >> 8) & 0xFF
    row[at + 1] = value & 0xFF


@compiled_inline
def put32(row: Array, at: Integer, value: Integer) -> None:
    """Write 32 bits in network byte order."""
    put16(row, at, value >> 16)
    put16(row, at + 2, value & 0xFFFF)


@compiled_inline
def get16(row: Array, at: Integer) -> Integer:
    """Read 16 bits in network byte order."""
    return (np.int64(row[at]) << 8) | np.int64(row[at + 1])


@compiled_inline
def get32(row: Array, at: Integer) -> Integer:
    """Read 32 bits in network byte order."""
    return (get16(row, at) << 16) | get16(row, at + 2)


@compiled_inline
def swap16(value: Integer) -> Integer:
    """Exchange network and host byte order of 16 bits."""
    return ((value & 0xFF) << 8) | (value >> 8)


@compiled_inline
def swap32(value: Integer) -> Integer:
    """Exchange network and host byte order of 32 bits."""
    return (swap16(value & 0xFFFF) << 16) | swap16(value >> 16)


@compiled
def write_headers(
    row: Array,
    payload_bytes: Integer,
    source_ip: Integer,
    source_port: Integer,
    own_ip: Integer,
    own_port: Integer,
) -> None:
    """Write the headers with which the datagram would have come over a network.

    The UDP checksum is 0, which IPv4 allows; the IPv4 header checksum is computed.
    """
    row[0] = 0x02
    row[1] = 0
    put32(row, 2, own_ip)
    row[6] = 0x02
    row[7] = 0
    put32(row, 8, source_ip)
    put16(row, 12, 0x0800)
    total = IPV4_BYTES + UDP_BYTES + payload_bytes
    put16(row, 14, 0x4500)
    put16(row, 16, total)
    put16(row, 18, 0)
    put16(row, 20, 0x4000)
    put16(row, 22, 0x4011)
    sums = 0x4500 + total + 0x4000 + 0x4011
    sums += (source_ip >> 16) + (source_ip & 0xFFFF) + (own_ip >> 16) + (own_ip & 0xFFFF)
    sums = (sums & 0xFFFF) + (sums >> 16)
    sums = (sums & 0xFFFF) + (sums >> 16)
    put16(row, 24, sums ^ 0xFFFF)
    put32(row, 26, source_ip)
    put32(row, 30, own_ip)
    put16(row, 34, source_port)
    put16(row, 36, own_port)
    put16(row, 38, UDP_BYTES + payload_bytes)
    put16(row, 40, 0)


@compiled
def find_datagram(frame: Array, length: Integer) -> tuple[int, int]:
    """Place of the datagram of an IPv4/UDP frame: (offset, bytes), or (0, -1) for any other frame."""
    if length < HEADER_BYTES or get16(frame, 12) != 0x0800 or frame[14] >> 4 != 4:
        return 0, -1
    offset = ETHERNET_BYTES + 4 * (np.int64(frame[14]) & 15)
    fragment = get16(frame, 20) & 0x3FFF
    if (
        offset < ETHERNET_BYTES + IPV4_BYTES
        or fragment != 0
        or frame[23] != 17
        or offset + UDP_BYTES > length
    ):
        return 0, -1
    size = get16(frame, offset + 4) - UDP_BYTES
    offset += UDP_BYTES
    if size < 0 or offset + size > length:
        return 0, -1
    return offset, size
