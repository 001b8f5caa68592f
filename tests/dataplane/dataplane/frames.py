"""Frames made and read with struct alone, independent of the code under test."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

CONTRIBUTE, RESULT, PROBE, STATUS = 1, 2, 3, 4
SUM, MAX, BOR = 1, 2, 3
LANES, MISMATCH, HEADER_ONLY, CONGESTED = 1, 2, 4, 8
UNKNOWN = 0xFFF
"""In place of the rank of a completer."""
HEADER = struct.Struct("!BBHIIBBHIHH")
HEADERS_BYTES = 42 + HEADER.size
"""Length of a frame without lanes."""
ECT, CE = 2, 3
"""In the IPv4 type of service."""
NETSUM_PORT = 28275

IPV4, ARP = 0x0800, 0x0806
ICMP, TCP, UDP = 1, 6, 17


def internet_checksum(data: bytes) -> int:
    """Sum 16-bit words in ones' complement (RFC 1071)."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet(dst: int, src: int, ether_type: int, payload: bytes) -> bytes:
    return dst.to_bytes(6, "big") + src.to_bytes(6, "big") + struct.pack("!H", ether_type) + payload


def ipv4(
    src: int,
    dst: int,
    protocol: int,
    payload: bytes,
    *,
    ttl: int = 64,
    tos: int = 0,
    identification: int = 0,
    flags_and_offset: int = 0x4000,
    options: bytes = b"",
    total_bytes: int | None = None,
    version: int = 4,
    ihl: int | None = None,
    checksum: int | None = None,
) -> bytes:
    """Make an IPv4 packet; fields that are not given are right."""
    words = 5 + len(options) // 4 if ihl is None else ihl
    length = 20 + len(options) + len(payload) if total_bytes is None else total_bytes

    def head(value: int) -> bytes:
        start = struct.pack(
            "!BBHHHBBH",
            version << 4 | words,
            tos,
            length,
            identification,
            flags_and_offset,
            ttl,
            protocol,
            value,
        )
        return start + struct.pack("!II", src, dst) + options

    return head(internet_checksum(head(0)) if checksum is None else checksum) + payload


def udp(
    src_port: int, dst_port: int, payload: bytes, *, length: int | None = None, checksum: int = 0
) -> bytes:
    return (
        struct.pack("!HHHH", src_port, dst_port, 8 + len(payload) if length is None else length, checksum)
        + payload
    )


@dataclass(frozen=True)
class Netsum:
    """The netsum header with its lanes or, in a STATUS, what follows there."""

    kind: int
    job_id: int
    token: int
    worker_id: int
    pool_index: int
    chunk: int
    op: int = SUM
    exponent: int = 0
    fingerprint: int = 0
    num_workers: int = 0
    lanes: Sequence[int] | None = None
    status: tuple[int, int] | None = None
    flags: int | None = None
    version: int = 2
    level: int = 0
    completer: int = UNKNOWN
    quorum: int = 0

    def with_(self, **changes: object) -> "Netsum":
        return replace(self, **changes)  # type: ignore[arg-type]

    def pack(self) -> bytes:
        flags = (LANES if self.lanes is not None else 0) if self.flags is None else self.flags
        head = HEADER.pack(
            self.version << 4 | self.kind,
            flags,
            self.job_id,
            self.quorum << 31 | self.op << 28 | self.fingerprint,
            self.token,
            self.worker_id,
            self.num_workers,
            self.pool_index,
            self.chunk,
            self.exponent,
            self.level << 12 | self.completer,
        )
        if self.status is not None:
            head += struct.pack("!II", *self.status)
        if self.lanes is not None:
            head += struct.pack(f"!{len(self.lanes)}i", *self.lanes)
        return head


def describe(frame: bytes) -> str:
    """Describe a frame, for a failing test's message."""
    text = f"{len(frame)} bytes, {frame[0:6].hex(':')} < {frame[6:12].hex(':')}, type {frame[12:14].hex()}"
    if len(frame) < HEADERS_BYTES or frame[12:14] != b"\x08\x00" or frame[23] != UDP:
        return f"{text}, {frame[14:].hex()}"
    src, dst, src_port, dst_port, length, checksum = struct.unpack("!IIHHHH", frame[26:42])
    head = HEADER.unpack_from(frame, 42)
    kind = {1: "CONTRIBUTE", 2: "RESULT", 3: "PROBE", 4: "STATUS"}.get(head[0] & 15, f"kind {head[0] & 15}")
    rest = frame[HEADERS_BYTES:]
    words = struct.unpack(f"!{len(rest) // 4}i", rest[: len(rest) // 4 * 4])
    return (
        f"{text}, IPv4 {frame[14:26].hex()} {src:#010x} > {dst:#010x}, "
        f"UDP {src_port} > {dst_port} {length} bytes {checksum:#06x}, "
        f"{kind} flags {head[1]} job {head[2]} token {head[4]:#x} "
        f"quorum {head[3] >> 31} op {head[3] >> 28 & 7} fingerprint {head[3] & 0xFFFFFFF:#x} "
        f"worker {head[5]} of {head[6]} index {head[7]} chunk {head[8]} exponent {head[9]} "
        f"level {head[10] >> 12} completer {head[10] & 0xFFF}, then {len(words)} words {words[:4]}…"
    )


def difference(got: Sequence[tuple[int, bytes]], expected: Sequence[tuple[int, bytes]]) -> str:
    """Say which frames are missing or too many, in whatever order; empty if none is."""
    missing, extra = list(expected), []
    for packet in got:
        if packet in missing:
            missing.remove(packet)
        else:
            extra.append(packet)
    lines = [f"missing on port {port}: {describe(frame)}" for port, frame in missing]
    lines += [f"unexpected on port {port}: {describe(frame)}" for port, frame in extra]
    return "\n".join(lines)


def without_unread_lanes(frame: bytes) -> bytes:
    """Cut the bytes of a STATUS behind its IPv4 packet: lanes that a program of several passes did not reach."""
    is_netsum = frame[12:14] == IPV4.to_bytes(2, "big") and frame[23:24] == bytes([UDP])
    is_status = is_netsum and frame[42:43] == bytes([0x20 | STATUS])
    return frame[: 14 + int.from_bytes(frame[16:18], "big")] if is_status else frame
