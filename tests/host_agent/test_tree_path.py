"""A worker in a tree of switches: its path in the admission, and its reactions to a STATUS from a higher level."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_agent.activity import STUCK_AFTER_NS, activity_of
from host_agent.codecs.raw import WORDS_MAX
from host_agent.errors import AdmissionError, MissingWorkersError, PeerError, SwitchSilentError
from host_agent.protocol.outcome import failure_of
from host_agent.protocol.passes import Pass
from host_agent.protocol.records import CONTRIBUTES_NOTHING
from host_agent.wire import Admission, Header
from host_agent.wire.constants import (
    FLAG_MISMATCH,
    KIND_PROBE,
    MAX_CHILDREN,
    MAX_WORLD_SIZE,
    OP_MAX,
    TREE_MAX_LEVELS,
)
from host_agent.wire.path import Level, Path, one_switch
from tests.host_agent.bench_core import MARK, MS, BenchCore, has_lanes, repeated, status

ABOVE = 1
RACKS = ((0, 1), (2, 3), (4, 5))
CHUNK_TIMEOUT_NS = 1_000 * MS


def place(rank: int) -> Path:
    """The path of a worker in three racks of two below one root."""
    rack = rank // 2
    return (Level(rank % 2, tuple((each,) for each in RACKS[rack])), Level(rack, RACKS))


def admission(path: Path) -> Admission:
    return Admission(1, 2, 3, path[0].worker_id, len(path[0].children), 4, 64, path=path)


def after_probe_timeout(bench: BenchCore) -> bytes:
    """Wait until the core asks; returns the PROBE."""
    bench.now_ns = bench.core.next_timer_ns()
    (probe,) = bench.send()
    assert Header.from_bytes(probe).kind == KIND_PROBE
    return probe


def asked(rank: int) -> tuple[BenchCore, bytes, bytes]:
    """A core with one chunk in flight: its datagrams and its PROBE."""
    bench = BenchCore(slots=1, path=place(rank), timeout_ns=CHUNK_TIMEOUT_NS)
    bench.begin(64)
    (datagram,) = bench.send()
    return bench, datagram, after_probe_timeout(bench)


@st.composite
def trees(draw: st.DrawFn) -> Path:
    """A path through a random tree, ranks in any order."""
    depth = draw(st.integers(1, TREE_MAX_LEVELS))
    counts = [draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)) for _ in range(depth)]
    counts[0] = [1] * len(counts[0])
    own = [draw(st.integers(0, len(count) - 1)) for count in counts]
    sizes: list[list[int]] = []
    for level, count in enumerate(counts):
        size = list(count)
        if level:
            size[own[level]] = sum(sizes[-1])
        sizes.append(size)
    ranks = draw(st.permutations(range(sum(sizes[-1]))))
    path: list[Level] = []
    held = list(ranks)
    for level in reversed(range(depth)):
        parts, start = [], 0
        for length in sizes[level]:
            parts.append(tuple(held[start : start + length]))
            start += length
        path.insert(0, Level(own[level], tuple(parts)))
        held = list(parts[own[level]])
    return tuple(path)


@given(trees())
def test_a_path_survives_json(path: Path) -> None:
    given_one = admission(path)
    read = Admission.from_json(given_one.to_json())
    assert read == given_one
    assert read.rank == path[0].children[path[0].worker_id][0]
    assert read.world_size == sum(len(child) for child in path[-1].children)


def test_without_a_path_ranks_are_worker_ids() -> None:
    one = Admission(1, 2, 3, 1, 4, 4, 64)
    assert (one.rank, one.world_size, one.path) == (1, 4, one_switch(1, 4))


WRONG: list[tuple[Any, str]] = [
    ((Level(0, ((0,), (2,))),), "ranks 0 to N"),
    ((Level(0, ((0,), (1,))), Level(0, ((0, 2), (1,)))), "must hold the ranks"),
    ((Level(0, ((0, 1), (2,))),), "one worker"),
    ((Level(0, ((0,), (1,))), Level(3, ((0, 1), (2,)))), r"path\[1\].worker_id"),
    (
        (Level(0, ((0,), (1,))), Level(0, ((0, 1), *((rank,) for rank in range(2, MAX_CHILDREN + 2))))),
        "1…32 children",
    ),
    ((Level(0, ((0,), (1,))), Level(0, ((0, 1), tuple(range(2, MAX_WORLD_SIZE + 1))))), "at most 4096"),
    (tuple(Level(0, ((0,), (1,))[: 2 - bool(level)]) for level in range(5)), "1…4 switches"),
    ((Level(0, ((0,), (1,), (2,))),), "worker_id is 0 of 2"),
]


@pytest.mark.parametrize(("path", "message"), WRONG)
def test_what_is_no_path_is_refused(path: Path, message: str) -> None:
    with pytest.raises(AdmissionError, match=message):
        Admission(1, 2, 3, 0, 2, 4, 64, path=path)


@pytest.mark.parametrize("written", [7, [7], [{"worker_id": 0}], [{"worker_id": 0, "children": [["a"]]}]])
def test_what_is_no_path_in_json_is_refused(written: Any) -> None:
    members = json.loads(Admission(1, 2, 3, 0, 2, 4, 64).to_json()) | {"path": written}
    with pytest.raises(AdmissionError, match="path must"):
        Admission.from_json(json.dumps(members))


def test_the_headroom_is_that_of_the_whole_job() -> None:
    racks = tuple(tuple(range(32 * rack, 32 * rack + 32)) for rack in range(32))
    path = (Level(0, tuple((rank,) for rank in racks[0])), Level(0, racks))
    bench = BenchCore(slots=1, path=path)
    assert bench.admission.world_size == 1024
    assert bench.state["headroom"] == 10


def test_who_waits_for_other_racks_sends_nothing_again() -> None:
    for rank in range(6):
        bench, _, probe = asked(rank)
        bench.receive(status(probe, 1 << rank // 2, 2, level=ABOVE))
        assert bench.send() == []
        assert bench.core.counters()["statuses"] == 1


@pytest.mark.parametrize("seen", [0b110, 0b111])
def test_worker_0_of_a_rack_sends_again_what_its_parent_lacks_or_has_the_result_of(seen: int) -> None:
    bench, datagram, probe = asked(0)
    bench.receive(status(probe, seen, 2, level=ABOVE))
    assert bench.send()[0] == repeated(datagram)
    bench, _, probe = asked(1)
    bench.receive(status(probe, seen, 2, level=ABOVE))
    assert bench.send() == []


def test_what_a_parent_lacks_is_sent_with_lanes() -> None:
    """The sum that goes up needs their room, even where this worker has nothing to add."""
    bench = BenchCore(slots=1, path=place(0), timeout_ns=CHUNK_TIMEOUT_NS)
    target = np.zeros(64, np.int32)
    bench.core.begin(
        Pass(WORDS_MAX, OP_MAX, MARK, target, target, contributes=CONTRIBUTES_NOTHING), bench.now_ns
    )
    (datagram,) = bench.send()
    bench.receive(status(after_probe_timeout(bench), 0b110, 2, level=ABOVE))
    assert (has_lanes(datagram), has_lanes(bench.send()[0])) == (False, True)


def test_worker_0_fetches_once_what_its_parent_offers() -> None:
    bench, datagram, _ = asked(2)
    for expected in ([repeated(datagram)], []):
        bench.receive(status(datagram, 0b111, 2, level=ABOVE))
        assert bench.send()[:1] == expected
    bench, datagram, _ = asked(3)
    bench.receive(status(datagram, 0b111, 2, level=ABOVE))
    assert bench.send() == []


@pytest.mark.parametrize(
    ("flags", "level"),
    [(1, ABOVE), (FLAG_MISMATCH | 1, 0), (16, 0), (0, 2), (0, 15)],
    ids=["lanes", "mismatch and lanes", "unknown", "level 2 of 1", "level 15 of 1"],
)
def test_flags_and_levels_that_no_switch_sends_are_malformed(flags: int, level: int) -> None:
    bench, _, probe = asked(0)
    bench.receive(status(probe, 0b1, 2, flags=flags, level=level))
    assert bench.core.counters()["malformed"] == 1


def failed(rank: int, seen: int, level: int = 1) -> PeerError:
    bench, _, probe = asked(rank)
    bench.receive(status(probe, seen, 2, level=level))
    assert bench.core.failed or bench.send() is not None
    while not bench.core.failed:
        bench.now_ns = max(bench.now_ns + MS, min(bench.core.next_timer_ns(), bench.now_ns + 10 * MS))
        for sent in bench.send():
            if Header.from_bytes(sent).kind == KIND_PROBE:
                bench.receive(status(sent, seen, 2, level=level))
    return failure_of(bench.core, "allreduce number 1")


def test_the_error_names_the_workers_of_other_racks() -> None:
    for rank in (0, 1):
        error = failed(rank, 0b011)
        assert isinstance(error, MissingWorkersError)
        assert error.missing == (4, 5)
        assert "at least one of workers 4, 5" in str(error)
    error = failed(2, 0b01, level=0)
    assert isinstance(error, MissingWorkersError)
    assert error.missing == (3,)


def test_a_sum_that_does_not_get_up_is_the_networks_fault() -> None:
    error = failed(1, 0b110)
    assert isinstance(error, SwitchSilentError)
    assert "level 1" in str(error)


def test_a_report_names_the_workers_of_other_racks() -> None:
    bench, _, probe = asked(0)
    bench.receive(status(probe, 0b101, 2, level=ABOVE))
    bench.state["progress_ns"] = -STUCK_AFTER_NS
    stuck = activity_of(bench.core).stuck
    assert stuck is not None
    assert stuck.missing == (2, 3)


def test_an_admission_cannot_be_changed_into_one_with_another_place() -> None:
    with pytest.raises(AdmissionError, match="path begins at worker 0"):
        replace(admission(place(0)), worker_id=1)
    assert np.array_equal(BenchCore(path=place(5)).state["path_worker"][:2], [1, 2])
