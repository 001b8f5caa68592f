"""Captures of switch ports, kept from start to start and merged."""

import struct
from pathlib import Path

import numpy as np
import pytest

from sim.switch.ports.pcap import Capture
from topologies.captures import captured_ports, keep_earlier, merge
from topologies.children import TestbedError

PORT = "s1-eth1"
SECOND_NS = 1_000_000_000


def write(folder: Path, name: str, packets: list[tuple[int, bytes]], *, nanoseconds: bool = True) -> None:
    """A pcap file as the embedded switch writes it, or in microseconds as BMv2 does."""
    magic, unit = (0xA1B23C4D, 1) if nanoseconds else (0xA1B2C3D4, 1000)
    content = struct.pack("=IHHiIII", magic, 2, 4, 0, 0, 1 << 18, 1)
    for time_ns, frame in packets:
        seconds, rest = divmod(time_ns, SECOND_NS)
        content += struct.pack("=IIII", seconds, rest // unit, len(frame), len(frame)) + frame
    (folder / name).write_bytes(content)


def packets_of(path: Path) -> list[tuple[int, int, bytes]]:
    """(ns, direction code, frame) of a pcapng file, read block by block."""
    content, at, found = path.read_bytes(), 0, []
    while at < len(content):
        kind, length = struct.unpack_from("=II", content, at)
        assert struct.unpack_from("=I", content, at + length - 4) == (length,)
        if kind == 6:
            _, high, low, held, _ = struct.unpack_from("=IIIII", content, at + 8)
            options = at + 28 + held + -held % 4
            code, size, flags = struct.unpack_from("=HHI", content, options)
            assert (code, size) == (2, 4)
            found.append((high << 32 | low, flags, content[at + 28 : at + 28 + held]))
        at += length
    return found


def test_a_port_merges_into_one_capture_in_the_order_of_time(tmp_path: Path) -> None:
    at = 1_700_000_000 * SECOND_NS
    write(tmp_path, f"{PORT}_in.1.pcap", [(at, b"first"), (at + 5000, b"third")])
    write(tmp_path, f"{PORT}_out.1.pcap", [(at + 1000, b"second-longer")], nanoseconds=False)
    write(tmp_path, f"{PORT}_in.pcap", [(at + SECOND_NS, b"fourth")])
    write(tmp_path, f"{PORT}_out.pcap", [])
    write(tmp_path, "s1-eth2_in.pcap", [(at, b"of another port")])
    merged = tmp_path / "merged.pcapng"
    assert merge(tmp_path, PORT, merged) == 4
    assert packets_of(merged) == [
        (at, 1, b"first"),
        (at + 1000, 2, b"second-longer"),
        (at + 5000, 1, b"third"),
        (at + SECOND_NS, 1, b"fourth"),
    ]


def test_a_new_start_keeps_the_captures_of_earlier_ones(tmp_path: Path) -> None:
    frames = np.zeros((1, 64), np.uint8)
    ports, lengths, times = (
        np.array([1], np.uint16),
        np.array([60], np.int32),
        np.array([SECOND_NS], np.int64),
    )
    for start in range(3):
        keep_earlier(tmp_path, {PORT})
        capture = Capture(tmp_path, {1: PORT})
        for _ in range(start + 1):
            capture.came_in(ports, lengths, frames, times)
        capture.close()
    write(tmp_path, "s2-eth1_in.pcap", [(0, b"of another switch")])
    keep_earlier(tmp_path, {PORT})
    sizes = [len((tmp_path / f"{PORT}_in.{number}.pcap").read_bytes()) for number in (1, 2, 3)]
    assert sizes == [24 + 76 * packets for packets in (1, 2, 3)]
    assert (tmp_path / "s2-eth1_in.pcap").exists()
    assert captured_ports(tmp_path) == [PORT, "s2-eth1"]
    assert merge(tmp_path, PORT, tmp_path / "merged.pcapng") == 6


def test_a_record_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, f"{PORT}_in.pcap", [(0, b"whole"), (1, b"cut off")])
    path = tmp_path / f"{PORT}_in.pcap"
    path.write_bytes(path.read_bytes()[:-3])
    (tmp_path / f"{PORT}_out.pcap").touch()  # BMv2 before its first packet.
    assert merge(tmp_path, PORT, tmp_path / "merged.pcapng") == 1


def test_a_port_without_captures_is_named(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="no capture of port s1-eth9 .*bring the testbed up with --pcap"):
        merge(tmp_path, "s1-eth9", tmp_path / "merged.pcapng")
    write(tmp_path, f"{PORT}_in.pcap", [])
    with pytest.raises(TestbedError, match=f"captured ports: {PORT}"):
        merge(tmp_path, "s1-eth9", tmp_path / "merged.pcapng")
    (tmp_path / f"{PORT}_in.pcap").write_bytes(b"no capture at all, but long enough for a header")
    with pytest.raises(TestbedError, match="is not a capture"):
        merge(tmp_path, PORT, tmp_path / "merged.pcapng")
