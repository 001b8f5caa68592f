"""Captures and traces of runs, read back by others' code."""

import json
import struct
from pathlib import Path

from host_agent.wire import Header
from host_agent.wire.constants import KIND_CONTRIBUTE, KIND_RESULT
from sim.experiments.experiment import parse_experiment
from sim.experiments.recording import record
from sim.experiments.running import Watch, run_point
from sim.network.engine.trace import LOST_ON_LINK

POINT = parse_experiment(
    """
[topology]
rate = "10gbit"
framing = 0
[[job]]
workers = 2
size = "16KiB"
lanes = 64
[[fault]]
links = "s1>h2"
loss = "5%"
""",
    "x",
).points[0]
PEER = parse_experiment('[[job]]\ncontender = "ring"\nworkers = 2\nsize = "16KiB"\n', "x").points[0]


def packets_of(path: Path) -> list[tuple[int, bytes]]:
    content = path.read_bytes()
    assert struct.unpack_from("<IHH", content) == (0xA1B23C4D, 2, 4)
    found, at = [], 24
    while at < len(content):
        seconds, ns, kept, length = struct.unpack_from("<IIII", content, at)
        assert kept <= length
        found.append((seconds * 10**9 + ns, content[at + 16 : at + 16 + kept]))
        at += 16 + kept
    return found


def test_a_capture_holds_the_frames_of_its_link_with_virtual_times(
    programs: dict[int, str], tmp_path: Path
) -> None:
    up, down = sorted(record(POINT, programs, tmp_path, ("h1>s1", "s1>h1"), False))
    sent, received = packets_of(up), packets_of(down)
    times = [time_ns for time_ns, _ in sent]
    assert times == sorted(times)
    # The first frame has no lanes: 66 bytes at 10 Gbit/s.
    assert times[0] == 66 * 8 // 10
    assert {Header.from_bytes(frame[42:]).kind for _, frame in sent} >= {KIND_CONTRIBUTE}
    assert {Header.from_bytes(frame[42:]).kind for _, frame in received} >= {KIND_RESULT}
    for _, frame in sent + received:
        total = sum(struct.unpack("!10H", frame[14:34]))
        assert (total & 0xFFFF) + (total >> 16) == 0xFFFF, "IPv4's checksum is right"
        assert struct.unpack_from("!H", frame, 16)[0] == len(frame) - 14


def test_packets_of_a_peer_are_captured_by_their_size(programs: dict[int, str], tmp_path: Path) -> None:
    (path,) = record(PEER, programs, tmp_path, ("h1>s1",), False)
    assert len(packets_of(path)) > 10


def test_a_trace_has_tracks_for_workers_links_queues_and_slots(
    programs: dict[int, str], tmp_path: Path
) -> None:
    path, page = record(POINT, programs, tmp_path, (), True)
    embedded = (
        page.read_text()
        .partition('<script type="application/json" id="recorded">')[2]
        .partition("</script>")[0]
    )
    recorded = json.loads(embedded)
    assert ["h1", "s1"] in recorded["links"]
    assert recorded["steps"][0]["text"].endswith(f"→ s1: {recorded['steps'][0]['short']}")
    events = json.loads(path.read_text())["traceEvents"]
    names = {each["args"]["name"] for each in events if each["ph"] == "M"}
    assert {"job job", "job worker 0", "job worker 1", "h1>s1", "s1>h2"} <= names
    counts = [each for each in events if each["ph"] == "C"]
    assert {"queue h1>s1", "slots 0 to 15"} <= {each["name"] for each in counts}
    slices = [each for each in events if each["ph"] == "X"]
    assert len(slices) > 100
    assert all(each["dur"] >= 0 for each in slices)
    titles = {each["name"] for each in slices}
    assert "all-reduce 0.0" in titles
    assert any(title.startswith("lost: RESULT chunk") for title in titles)
    assert max(each["args"]["value"] for each in counts) > 0


def test_a_packet_that_is_lost_and_duplicated_is_traced_as_lost(programs: dict[int, str]) -> None:
    lossy = parse_experiment(
        '[[job]]\nworkers = 2\nsize = "64KiB"\n[[fault]]\nloss = "20%"\nduplicate = "90%"\n', "x"
    ).points[0]
    watch = Watch(traced=True)
    run_point(lossy, programs, watch)
    assert watch.scenario is not None
    network = watch.scenario.network
    traced = sum(int((rows["what"] == LOST_ON_LINK).sum()) for rows, _ in network.trace.parts)
    assert traced == int(network.link_records["lost"].sum()) > 0


def test_recordings_repeat_byte_for_byte(programs: dict[int, str], tmp_path: Path) -> None:
    runs = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        runs.append([path.read_bytes() for path in record(POINT, programs, folder, ("*",), True)])
    assert runs[0] == runs[1]
