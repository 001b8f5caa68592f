"""Packet captures of a switch's ports: kept when the switch restarts, and merged into one file per port.

A switch writes ``PORT_in.pcap`` and ``PORT_out.pcap``. When it restarts, the files of the earlier starts are kept as
``PORT_in.1.pcap``, ``PORT_in.2.pcap`` and so on, oldest first. A merged capture is a pcapng file; it gives each packet its
direction, as seen from the switch.
"""

import heapq
import re
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from topologies.children import TestbedError

WAYS: Final = {"in": 1, "out": 2}
"""Code of each direction in pcapng's epb_flags: inbound, outbound."""
_FILE: Final = re.compile(r"(?P<port>.+)_(?P<way>in|out)(?:\.(?P<start>\d+))?\.pcap")
_MAGICS: Final = {
    0xA1B23C4D: 1,
    0xA1B2C3D4: 1000,
}  # Nanoseconds in a unit of time, by the magic number of the pcap file.
_FILE_HEADER_BYTES: Final = 24
_RECORD: Final = struct.Struct("=IIII")
_ETHERNET: Final = 1


def keep_earlier(folder: Path, ports: Collection[str]) -> None:
    """Rename the captures of the last start, so that the next one does not truncate them.

    `folder`: the folder of the captures, of this and of other switches. `ports`: the interfaces of the switch that is about to
    start.
    """
    for path in list(folder.glob("*.pcap")):
        found = _FILE.fullmatch(path.name)
        if found is None or found["start"] is not None or found["port"] not in ports:
            continue
        stem = f"{found['port']}_{found['way']}"
        starts = [
            each["start"] for each in map(_FILE.fullmatch, _names(folder)) if each and _stem(each) == stem
        ]
        number = 1 + max((int(start) for start in starts if start is not None), default=0)
        path.rename(folder / f"{stem}.{number}.pcap")


def captured_ports(folder: Path) -> list[str]:
    """Return the names of the ports that a folder has captures of."""
    return sorted({found["port"] for found in map(_FILE.fullmatch, _names(folder)) if found})


def merge(folder: Path, port: str, merged: Path) -> int:
    """Write one capture of a port: packets in and out of all starts, in the order of their times.

    `port`: the port's interface, such as ``s1-eth1``. Raises TestbedError if the port has no capture, or a capture is not a
    pcap file.
    """
    ways = {
        folder / name: found["way"]
        for name in _names(folder)
        if (found := _FILE.fullmatch(name)) and found["port"] == port
    }
    if not ways:
        there = ", ".join(captured_ports(folder)) or "none: bring the testbed up with --pcap"
        raise TestbedError(f"there is no capture of port {port} in {folder}; captured ports: {there}")
    count = 0
    with merged.open("wb") as file:
        file.write(_block(0x0A0D0D0A, struct.pack("=IHHq", 0x1A2B3C4D, 1, 0, -1)))
        options = (
            _option(2, port.encode()) + _option(9, bytes([9])) + _option(0, b"")
        )  # if_name; if_tsresol: nanoseconds
        file.write(_block(1, struct.pack("=HHI", _ETHERNET, 0, 0) + options))
        for time_ns, way, frame in heapq.merge(
            *(_records(path, way) for path, way in ways.items()), key=lambda one: one[0]
        ):
            packet = struct.pack("=IIIII", 0, time_ns >> 32, time_ns & 0xFFFF_FFFF, len(frame), len(frame))
            flags = _option(2, struct.pack("=I", WAYS[way])) + _option(0, b"")
            file.write(_block(6, packet + _padded(frame) + flags))
            count += 1
    return count


def _records(path: Path, way: str) -> Iterator[tuple[int, str, bytes]]:
    """Iterate over (nanoseconds since 1970, direction, frame) of a pcap file; skip an incomplete last record."""
    with path.open("rb") as file:
        header = file.read(_FILE_HEADER_BYTES)
        if not header:  # BMv2 writes the header with its first packets.
            return
        unit_ns = _MAGICS.get(struct.unpack("=I", header[:4])[0])
        if unit_ns is None:
            raise TestbedError(f"{path} is not a capture: expected a pcap file in this machine's byte order")
        while (record := _read_record(file, unit_ns)) is not None:
            yield record[0], way, record[1]


def _read_record(file: BinaryIO, unit_ns: int) -> tuple[int, bytes] | None:
    header = file.read(_RECORD.size)
    if len(header) < _RECORD.size:
        return None
    seconds, fraction, held, _ = _RECORD.unpack(header)
    frame = file.read(held)
    return (seconds * 1_000_000_000 + fraction * unit_ns, frame) if len(frame) == held else None


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return struct.pack("=II", kind, length) + body + struct.pack("=I", length)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("=HH", code, len(value)) + _padded(value)


def _padded(value: bytes) -> bytes:
    return value + bytes(-len(value) % 4)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pcap"))


def _stem(found: re.Match[str]) -> str:
    return f"{found['port']}_{found['way']}"
