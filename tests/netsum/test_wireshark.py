"""The dissector for Wireshark, in real tshark, on datagrams that the worker library packs."""

import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from host_agent.wire import Header
from host_agent.wire.constants import (
    EXPONENT_ALL_ZERO,
    EXPONENT_BIAS,
    EXPONENT_NON_FINITE,
    FLAG_LANES,
    FLAG_MISMATCH,
    HEADER_FIELDS,
    KIND_CONTRIBUTE,
    KIND_PROBE,
    KIND_RESULT,
    KIND_STATUS,
    OP_BOR,
    OP_MAX,
    OP_SUM,
    STATUS_FIELDS,
    UDP_PORT,
    VERSION,
)
from host_agent.wire.parts import PART_BITMAP, PARTS, part_of
from netsum.packets.wireshark import PLUGIN, install, plugin_folder
from netsum_common.lane_counts import LANE_COUNTS

WORKER_PORT = 40_000
SEEN, SLOT_CHUNK = 0b0101, 0x8000_0001

Dissect = Callable[[Sequence[bytes], Sequence[str]], list[list[str]]]

tshark_only = pytest.mark.skipif(
    shutil.which("tshark") is None, reason="tshark is not on PATH: apt install tshark"
)


def frame(datagram: bytes, *, to_switch: bool = True, ports: tuple[int, int] | None = None) -> bytes:
    """Ethernet, IPv4 and UDP around a datagram."""
    worker, switch = (0x0A00_0001, WORKER_PORT), (0x0A00_00FE, UDP_PORT)
    (source, source_port), (target, target_port) = (worker, switch) if to_switch else (switch, worker)
    source_port, target_port = ports or (source_port, target_port)
    udp = struct.pack("!HHHH", source_port, target_port, 8 + len(datagram), 0) + datagram
    ipv4 = struct.pack("!BBHHHBBHII", 0x45, 0, 20 + len(udp), 0, 0x4000, 64, 17, 0, source, target)
    return struct.pack("!6s6sH", b"\2\0\0\0\0\1", b"\2\0\0\0\0\2", 0x0800) + ipv4 + udp


def pcap(frames: Sequence[bytes]) -> bytes:
    """A capture file, one millisecond between frames."""
    records = (
        struct.pack("<IIII", 1, 1000 * number, len(one), len(one)) + one for number, one in enumerate(frames)
    )
    return struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + b"".join(records)


@pytest.fixture
def dissect(tmp_path: Path) -> Dissect:
    """The values of some fields in each frame, in tshark's words."""

    def run(frames: Sequence[bytes], fields: Sequence[str]) -> list[list[str]]:
        capture = tmp_path / "capture.pcap"
        capture.write_bytes(pcap(frames))
        command = ["tshark", "-n", "-2", "-X", f"lua_script:{PLUGIN}", "-r", str(capture), "-T", "fields"]
        command += [word for field in fields for word in ("-e", field)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=400,
            check=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )
        assert "Lua" not in done.stderr, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    return run


def header(
    kind: int, *, op: int = OP_SUM, flags: int = 0, chunk: int = 0, worker_id: int = 1, **changes: int
) -> Header:
    return Header(VERSION, kind, flags, 3, 0, op, 0xABCD, 0xDEADBEEF, worker_id, 0, 35, chunk, 0)._replace(
        **changes
    )


def lanes(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**31), 2**31, count).astype(">i4")


def with_lanes(one: Header, count: int = 64) -> bytes:
    return one._replace(flags=one.flags | FLAG_LANES).to_bytes() + lanes(count).tobytes()


def status(one: Header, seen: int = SEEN, slot_chunk: int = SLOT_CHUNK) -> bytes:
    return one.to_bytes() + np.array([seen, slot_chunk], ">u4").tobytes()


@tshark_only
def test_every_field_of_random_headers(dissect: Dissect) -> None:
    random = np.random.default_rng(5)
    sent = [
        Header(*(int(random.integers(0, 2**bits)) for _, bits in HEADER_FIELDS))._replace(flags=0)
        for _ in range(300)
    ]
    found = dissect([frame(status(one)) for one in sent], [f"netsum.{name}" for name in Header._fields])
    assert [Header(*(int(value, 0) for value in row)) for row in found] == sent


@tshark_only
@pytest.mark.parametrize("count", LANE_COUNTS)
def test_lanes_are_shown_as_both_integers(dissect: Dissect, count: int) -> None:
    datagram = with_lanes(header(KIND_CONTRIBUTE), count)
    fields = [
        "netsum.lane",
        "netsum.lane.unsigned",
        "netsum.lanes.count",
        "netsum.flags.lanes",
        "_ws.expert.message",
    ]
    ((signed, unsigned, counted, flag, expert),) = dissect([frame(datagram)], fields)
    assert [int(value) for value in signed.split(",")] == lanes(count).tolist()
    assert [int(value) for value in unsigned.split(",")] == lanes(count).view(">u4").tolist()
    assert (int(counted), flag.lower() in ("1", "true"), expert) == (count, True, "")


@tshark_only
def test_every_kind_of_packet_in_the_info_column(dissect: Dissect) -> None:
    answer = {"num_workers": 4, "chunk": 17}
    frames = [
        frame(with_lanes(header(KIND_CONTRIBUTE, chunk=17))),
        frame(header(KIND_CONTRIBUTE, op=OP_MAX, chunk=18).to_bytes()),
        frame(header(KIND_PROBE, chunk=17).to_bytes()),
        frame(status(header(KIND_STATUS, **answer), slot_chunk=17), to_switch=False),
        frame(status(header(KIND_STATUS, **answer), seen=0b1111, slot_chunk=17), to_switch=False),
        frame(status(header(KIND_STATUS, flags=FLAG_MISMATCH, **answer)), to_switch=False),
        frame(with_lanes(header(KIND_RESULT, op=OP_BOR, **answer), 256), to_switch=False),
        frame(with_lanes(header(KIND_CONTRIBUTE, op=OP_BOR, chunk=17, exponent=PART_BITMAP))),
    ]
    found = dissect(frames, ["_ws.col.Protocol", "_ws.col.Info"])
    assert {row[0] for row in found} == {"netsum"}
    of_the_slot = "job 3 worker 1 chunk 17 slot 17.1"
    assert [row[1] for row in found] == [
        f"CONTRIBUTE SUM {of_the_slot} 64 lanes",
        "CONTRIBUTE MAX job 3 worker 1 chunk 18 slot 17.1",
        f"PROBE SUM {of_the_slot}",
        f"STATUS SUM {of_the_slot} holds chunk 17, misses worker 1, 3",
        f"STATUS SUM {of_the_slot} holds chunk 17",
        f"STATUS SUM {of_the_slot} holds chunk {SLOT_CHUNK}, misses worker 1, 3 MISMATCH",
        f"RESULT BOR {of_the_slot} 256 lanes",
        f"CONTRIBUTE BOR {of_the_slot} 64 lanes, bitmap of blocks [retransmission]",
    ]


@tshark_only
def test_what_a_status_says_can_be_filtered_by(dissect: Dissect) -> None:
    datagram = status(header(KIND_STATUS, num_workers=4, flags=FLAG_MISMATCH))
    names = [name for name, _ in STATUS_FIELDS] + ["seen.worker", "missing.worker", "slot", "pool_version"]
    ((*values, expert),) = dissect(
        [frame(datagram, to_switch=False)], [*(f"netsum.{name}" for name in names), "_ws.expert.message"]
    )
    seen, slot_chunk, *rest = values
    assert (int(seen, 0), int(slot_chunk)) == (SEEN, SLOT_CHUNK)
    assert rest == ["0,2", "1,3", "17", "1"]
    assert expert == "the workers disagree about the collective,missing: worker 1, 3"


@tshark_only
def test_a_status_from_a_switch_above_shows_its_level(dissect: Dissect) -> None:
    level = 2
    datagram = status(header(KIND_STATUS, num_workers=4, level=level))
    ((said, info, expert),) = dissect(
        [frame(datagram, to_switch=False)], ["netsum.level", "_ws.col.Info", "_ws.expert.message"]
    )
    assert said == str(level)
    assert f"at level {level}, misses worker 1, 3" in info
    assert expert == "missing: worker 1, 3"


@tshark_only
def test_packets_of_a_quorum_chunk(dissect: Dissect) -> None:
    """The RESULT says whose contributions it has, before its lanes."""
    call = {"quorum": 1, "chunk": 17}
    result = header(KIND_RESULT, flags=FLAG_LANES, quorum=1, chunk=17, num_workers=4)
    frames = [
        frame(header(KIND_CONTRIBUTE, **call).to_bytes()),
        frame(header(KIND_PROBE, **call).to_bytes()),
        frame(status(header(KIND_RESULT, num_workers=4, **call), slot_chunk=17), to_switch=False),
        frame(status(result, slot_chunk=17) + lanes(64).tobytes(), to_switch=False),
        frame(header(KIND_RESULT, **call).to_bytes(), to_switch=False),
    ]
    fields = [
        "_ws.col.Info",
        "netsum.quorum",
        "netsum.seen.worker",
        "netsum.lanes.count",
        "_ws.expert.message",
    ]
    found = dissect(frames, fields)
    of_the_slot = "SUM job 3 worker 1 chunk 17 slot 17.1"
    assert [row[0] for row in found] == [
        f"CONTRIBUTE {of_the_slot} quorum",
        f"PROBE {of_the_slot} quorum",
        f"RESULT {of_the_slot} quorum of worker 0, 2",
        f"RESULT {of_the_slot} quorum of worker 0, 2 64 lanes",
        f"RESULT {of_the_slot} malformed quorum",
    ]
    assert all(row[1].lower() in ("1", "true") for row in found)
    assert [row[2] for row in found] == ["", "", "0,2", "0,2", ""]
    assert [row[3] for row in found] == ["", "", "", "64", ""]
    assert [row[4][:12] for row in found] == ["", "", "", "", "wrong length"]


@tshark_only
def test_requests_of_two_switches_children_are_kept_apart(dissect: Dissect) -> None:
    """A switch's uplink and its ports carry the same chunk with the same worker id, from other addresses."""
    contribution = header(KIND_CONTRIBUTE).to_bytes()
    below, above = frame(contribution), bytearray(frame(contribution))
    above[26:30] = b"\x0a\x00\x01\xfe"
    assert dissect([below, bytes(above)], ["netsum.retransmission_of"]) == [[""], [""]]


@tshark_only
def test_exponents(dissect: Dissect) -> None:
    frames = [
        frame(header(KIND_CONTRIBUTE, exponent=value, chunk=number).to_bytes())
        for number, value in enumerate((EXPONENT_ALL_ZERO, EXPONENT_BIAS - 7, EXPONENT_NON_FINITE))
    ]
    assert dissect(frames, ["netsum.exponent", "netsum.exponent.value", "_ws.expert.message"]) == [
        [str(EXPONENT_ALL_ZERO), "", ""],
        [str(EXPONENT_BIAS - 7), "-7", ""],
        [str(EXPONENT_NON_FINITE), "", "NaN or Inf in an input"],
    ]


@tshark_only
def test_what_a_packet_is_part_of(dissect: Dissect) -> None:
    """The table in the dissector is the worker's."""
    edges = [value for least, most, _ in PARTS for value in (least - 1, least, most, most + 1)]
    frames = [
        frame(header(KIND_RESULT, exponent=value, chunk=number, num_workers=2).to_bytes(), to_switch=False)
        for number, value in enumerate(edges)
    ]
    found = dissect(frames, ["netsum.exponent", "netsum.part"])
    assert found == [[str(value), part_of(value) or ""] for value in edges]


@tshark_only
def test_answers_and_retransmissions_name_the_frame_they_belong_to(dissect: Dissect) -> None:
    contribution = with_lanes(header(KIND_CONTRIBUTE, chunk=9))
    probes = [header(KIND_PROBE, chunk=9, exponent=number) for number in (7, 8)]
    of_another = with_lanes(header(KIND_CONTRIBUTE, chunk=9, worker_id=2))
    answer = {"num_workers": 4, "chunk": 9}
    frames = [
        frame(contribution),
        frame(of_another),
        frame(contribution),
        *(frame(probe.to_bytes()) for probe in probes),
        frame(status(header(KIND_STATUS, exponent=8, **answer)), to_switch=False),
        frame(with_lanes(header(KIND_RESULT, **answer)), to_switch=False),
    ]
    fields = ["netsum.answer_in", "netsum.request_in", "netsum.retransmission_of", "netsum.answer_time"]
    assert dissect(frames, fields) == [
        ["7", "", "", ""],
        ["", "", "", ""],
        ["", "", "1", ""],
        ["", "", "", ""],
        ["6", "", "", ""],
        ["", "5", "", "0.001000000"],
        ["", "1", "", "0.006000000"],
    ]


@tshark_only
def test_what_is_malformed_is_marked(dissect: Dissect) -> None:
    plain = header(KIND_CONTRIBUTE)
    wrong = {
        "unknown version: the protocol's is 2": frame(plain._replace(version=1).to_bytes()),
        "unknown kind": frame(plain._replace(kind=9).to_bytes()),
        "unknown operation": frame(plain._replace(op=0).to_bytes()),
        "wrong flags: flags that the protocol does not know": frame(plain._replace(flags=16).to_bytes()),
        "wrong flags: HEADER_ONLY outside a CONTRIBUTE": frame(header(KIND_PROBE, flags=4).to_bytes()),
        "wrong flags: MISMATCH outside a STATUS": frame(plain._replace(flags=FLAG_MISMATCH).to_bytes()),
        "wrong flags: LANES in a PROBE": frame(with_lanes(header(KIND_PROBE))),
        "wrong length: a header has 24 bytes": frame(plain.to_bytes()[:23]),
        "wrong length: expected a header, got 25 bytes": frame(plain.to_bytes() + b"x"),
        f"wrong length: expected a header and {', '.join(map(str, LANE_COUNTS))} lanes, got 276 bytes": frame(
            with_lanes(header(KIND_CONTRIBUTE), 63)
        ),
        "wrong length: expected a header and what follows it in a STATUS, got 24 bytes": frame(
            header(KIND_STATUS).to_bytes(), to_switch=False
        ),
        "a RESULT or STATUS that does not come from the switch": frame(with_lanes(header(KIND_RESULT))),
        "a job is 1 to 255": frame(plain._replace(job_id=256).to_bytes()),
        "a worker is 0 to 31": frame(plain._replace(worker_id=32).to_bytes()),
    }
    found = dissect(list(wrong.values()), ["_ws.expert.message"])
    assert [row[0] for row in found] == list(wrong)


@tshark_only
def test_on_other_ports_what_looks_exactly_like_the_protocol_is_taken_for_it(dissect: Dissect) -> None:
    ports = (50_001, 50_002)
    frames = [
        frame(with_lanes(header(KIND_CONTRIBUTE), 256), ports=ports),
        frame(with_lanes(header(KIND_CONTRIBUTE), 63), ports=ports),
        frame(b"what is this? " * 5, ports=ports),
        frame(b"", ports=ports),
    ]
    assert [row[0] for row in dissect(frames, ["_ws.col.Protocol"])] == ["netsum", "UDP", "UDP", "UDP"]


def test_installing_puts_one_file_there(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "plugins"
    assert install(folder) == install(folder) == folder / "netsum.lua"
    assert [path.name for path in folder.iterdir()] == ["netsum.lua"]
    assert (folder / "netsum.lua").read_bytes() == PLUGIN.read_bytes()


def test_the_command_prints_the_path_alone_and_installs(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from netsum.cli.app import app

    runner = CliRunner()
    assert runner.invoke(app, ["wireshark"]).stdout == f"{PLUGIN}\n"
    done = runner.invoke(app, ["wireshark", "--install", "--folder", str(tmp_path / "there")])
    assert (done.exit_code, done.stdout) == (0, f"installed {tmp_path}/there/netsum.lua\n")
    refused = runner.invoke(app, ["wireshark", "--install", "--folder", f"{sys.executable}/below"])
    assert refused.exit_code == 1
    assert "cannot write to" in refused.stderr


def test_the_own_folder_of_plugins_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert plugin_folder() == tmp_path / ".local/lib/wireshark/plugins"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert plugin_folder() == tmp_path / ".local/lib/wireshark/plugins"
