"""Order and times of datagrams: window, dependencies, the deadline."""

import numpy as np
import pytest

from host_agent.codecs.block_float import FLOAT32
from host_agent.errors import MisuseError
from host_agent.protocol.records import NEVER, PASS_RING
from host_agent.wire import Header
from host_agent.wire.constants import EXPONENT_BIAS, KIND_CONTRIBUTE, OP_MAX, VERSION
from tests.host_agent.bench_core import MARK, MS, TOKEN, BenchCore, has_lanes, lanes, result


def test_a_contribution_is_what_the_protocol_says() -> None:
    bench = BenchCore(workers=3, first_chunk=6)
    bench.begin(100)
    first, second = bench.send()
    expected = Header(VERSION, KIND_CONTRIBUTE, 1, 1, 0, OP_MAX, MARK, TOKEN, 0, 0, 2 * 2 + 1, 6, 0, 0, 0)
    assert Header.from_bytes(first) == expected
    np.testing.assert_array_equal(lanes(first), np.arange(64))
    assert Header.from_bytes(second) == expected._replace(chunk=7, pool_index=3 * 2 + 1)
    np.testing.assert_array_equal(lanes(second)[:36], np.arange(64, 100))
    assert not lanes(second)[36:].any()


def test_chunk_numbers_wrap_where_slots_and_versions_do() -> None:
    bench = BenchCore(slots=4, first_chunk=2**32 - 2)
    bench.begin(64 * 4)
    headers = [Header.from_bytes(datagram) for datagram in bench.send()]
    assert [(header.chunk, header.pool_index) for header in headers] == [
        (2**32 - 2, 5),
        (2**32 - 1, 7),
        (0, 0),
        (1, 2),
    ]


def test_a_core_with_nothing_under_way_has_no_timer() -> None:
    bench = BenchCore()
    bench.begin(64)
    (sent,) = bench.send()
    assert bench.core.next_timer_ns() < NEVER
    bench.receive(result(sent))
    assert bench.core.next_timer_ns() == NEVER
    bench.begin(64)
    bench.send()
    bench.wait(10**15)
    bench.send()  # the deadline has passed
    assert bench.core.next_timer_ns() == NEVER


def test_the_oldest_chunk_in_flight_is_behind_those_that_have_results() -> None:
    bench = BenchCore(slots=4)
    bench.begin(64 * 8)
    sent = bench.send()
    bench.receive(result(sent[1]))
    assert bench.state["oldest_chunk"] == 0
    bench.receive(result(sent[0]))
    assert bench.state["oldest_chunk"] == 2
    bench.receive(*(result(each) for each in sent[2:]))
    assert bench.state["oldest_chunk"] == bench.state["next_chunk"] == 4
    bench.send()
    bench.wait(10**15)
    bench.send()
    assert bench.state["failure_chunk"] == 4, "the deadline's error names the chunk that is missing"


def test_what_was_asked_about_a_chunk_does_not_delay_the_next_one_in_its_slot() -> None:
    bench = BenchCore(slots=1)
    bench.begin(64 * 2)
    (sent,) = bench.send()
    for _ in range(20):
        bench.now_ns = bench.core.next_timer_ns()
        bench.send()
    assert bench.core.records[1][0]["unanswered"] > 8
    bench.receive(result(sent))
    bench.send()
    assert bench.core.records[1][0]["unanswered"] == 0


def test_the_result_of_a_chunk_releases_the_one_that_takes_its_slot() -> None:
    bench = BenchCore(slots=4)
    work = bench.begin(64 * 8)
    sent = bench.send()
    assert [Header.from_bytes(datagram).chunk for datagram in sent] == [0, 1, 2, 3]
    bench.receive(result(sent[2]))
    assert bench.chunks() == [], "chunks go out in order, and 4 waits for 0"
    bench.receive(result(sent[0]))
    assert bench.chunks() == [4]
    bench.receive(result(sent[1]))
    assert bench.chunks() == [5, 6]
    assert (work.target[:192] == np.arange(192)).all()
    assert (work.target[192:] == -7).all()


def test_the_window_counts_chunks_of_several_collectives() -> None:
    bench = BenchCore(slots=4)
    works = [bench.begin(64 * 3) for _ in range(3)]
    sent = bench.send()
    assert len(sent) == 4, "the second begins before the first is done"
    for _ in range(2):
        bench.receive(*map(result, sent))
        sent = bench.send()
    assert bench.core.take_done() == works[:2]
    bench.receive(*map(result, sent))
    assert bench.core.take_done() == works[2:]
    for work in works:
        np.testing.assert_array_equal(work.target, work.source)


def test_exponents_lead_and_lanes_follow_their_results() -> None:
    bench = BenchCore(slots=4)
    work = bench.begin(64 * 2, FLOAT32)
    first = bench.send()
    assert [has_lanes(datagram) for datagram in first] == [False, False]
    exponents = [Header.from_bytes(datagram).exponent - EXPONENT_BIAS for datagram in first]
    assert exponents == [6, 7]
    bench.receive(result(first[1]))
    assert bench.send() == [], "slots are free, but the exponent of the first block is not known"
    bench.receive(result(first[0], exponent=10 + EXPONENT_BIAS))
    second = bench.send()
    assert [has_lanes(datagram) for datagram in second] == [True, True]
    np.testing.assert_array_equal(lanes(second[0]), np.arange(64) << 20)
    np.testing.assert_array_equal(lanes(second[1]), np.arange(64, 128) << 23)
    bench.receive(*map(result, second))
    np.testing.assert_array_equal(work.target, work.source)


def test_passes_that_wait_know_their_first_chunk() -> None:
    """Verified collectives check a pass by its chunks."""
    bench = BenchCore(first_chunk=5)
    for blocks in (1, 2, 3, 4):
        bench.begin(64 * blocks)
    assert bench.core.records[2]["first_chunk"][:4].tolist() == [5, 6, 8, 11]


def test_at_most_a_ring_of_passes() -> None:
    bench = BenchCore()
    for _ in range(PASS_RING):
        bench.begin(1)
    with pytest.raises(MisuseError, match="passes"):
        bench.begin(1)


def test_few_rows_take_several_calls() -> None:
    bench = BenchCore(workers=2, slots=8)
    bench.rows = bench.rows[:3]
    bench.begin(64 * 8)
    sent = bench.send()
    assert [Header.from_bytes(datagram).chunk for datagram in sent] == list(range(8))
    bench.receive(*(result(datagram, workers=2) for datagram in sent[5:]))
    assert bench.chunks() == [chunk for chunk in range(5) for _ in "cp"]


def test_nothing_is_sent_without_work_or_after_the_deadline() -> None:
    bench = BenchCore(timeout_ns=100 * MS)
    assert bench.send() == []
    bench.begin(64)
    assert len(bench.send()) == 1
    bench.wait(100 * MS)
    assert bench.send() == []
    assert bench.core.failed
    with pytest.raises(MisuseError, match="failed"):
        bench.begin(64)


def test_the_deadline_runs_from_the_last_progress() -> None:
    bench = BenchCore(slots=1, timeout_ns=100 * MS)
    bench.begin(64 * 3)
    for _ in range(2):
        (datagram, *_) = bench.send()
        bench.wait(99 * MS)
        bench.receive(result(datagram))
    bench.send()
    assert not bench.core.failed, "each RESULT renews the deadline"
    bench.wait(100 * MS)
    bench.send()
    assert bench.core.failed


def test_timers_are_announced_ahead_and_lead_to_questions() -> None:
    bench = BenchCore(slots=4)
    bench.begin(64 * 4)
    bench.send()
    questions = 0
    for _ in range(20):
        assert bench.core.next_timer_ns() > bench.now_ns
        bench.now_ns = bench.core.next_timer_ns()
        questions += len(bench.send())
    assert questions >= 20
