"""What is sent when: order, window, dependencies, retransmissions, PROBEs, the deadline."""

import numpy as np
import pytest
from bench_core import MARK, MS, TOKEN, BenchCore, has_lanes, lanes, result, status

from host_agent import MisuseError
from host_agent.packetize.blocks import CODING_FLOAT32, CODING_WORDS
from host_agent.protocol.passes import Pass
from host_agent.protocol.records import CONTRIBUTES_NOTHING, PASS_RING
from host_agent.protocol.timeout import PACKET_THRESHOLD
from host_agent.wire import Header
from host_agent.wire.constants import EXPONENT_BIAS, KIND_CONTRIBUTE, KIND_PROBE, OP_MAX, VERSION


def test_a_contribution_is_what_the_protocol_says() -> None:
    bench = BenchCore(workers=3, first_chunk=6)
    bench.begin(100)
    first, second = bench.send()
    expected = Header(VERSION, KIND_CONTRIBUTE, OP_MAX, 1, 1, TOKEN, 0, 0, 2 * 2 + 1, 6, 0, MARK)
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
    work = bench.begin(64 * 2, CODING_FLOAT32)
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


def test_at_most_a_ring_of_passes() -> None:
    bench = BenchCore()
    for _ in range(PASS_RING):
        bench.begin(1)
    with pytest.raises(MisuseError, match="passes"):
        bench.begin(1)


def test_what_was_overtaken_is_sent_again_at_once() -> None:
    bench = BenchCore(slots=8)
    bench.begin(64 * 8)
    sent = bench.send()
    bench.wait(MS)
    bench.receive(*map(result, sent[1:PACKET_THRESHOLD]))
    assert bench.send() == []
    bench.receive(result(sent[PACKET_THRESHOLD]))
    assert bench.send() == [sent[0]]
    assert bench.send() == [], "once"
    bench.receive(*map(result, sent[PACKET_THRESHOLD + 1 :]))
    assert bench.send() == [], "until one that was sent after it overtakes it again"
    assert bench.core.counters()["overtaken"] == 1


def test_what_was_overtaken_by_few_is_sent_again_after_nine_eighths_of_a_round_trip() -> None:
    bench = BenchCore(slots=2)
    bench.begin(64 * 2)
    sent = bench.send()
    bench.wait(80 * MS)
    bench.receive(result(sent[1]))
    assert bench.send() == []
    assert bench.core.next_timer_ns() == bench.now_ns + 10 * MS
    bench.wait(10 * MS)
    assert bench.send() == [sent[0]]


def test_a_needless_retransmission_does_not_make_others_look_overtaken() -> None:
    bench = BenchCore(slots=8)
    bench.begin(64 * 8)
    sent = bench.send()
    bench.now_ns = bench.core.next_timer_ns()
    bench.send()
    bench.receive(result(sent[0]))
    assert bench.send() == []


def test_probes_go_with_the_third_and_further_retransmissions() -> None:
    bench = BenchCore(workers=2, slots=1)
    bench.begin(64)
    (datagram,) = bench.send()
    kinds = []
    for _ in range(4):
        bench.now_ns = bench.core.next_timer_ns()
        kinds.append([Header.from_bytes(sent).kind for sent in bench.send()])
    assert kinds == [[KIND_CONTRIBUTE]] * 2 + [[KIND_CONTRIBUTE, KIND_PROBE]] * 2
    probe = Header.from_bytes(bench.rows[1].tobytes())
    assert probe == Header.from_bytes(datagram)._replace(kind=KIND_PROBE, flags=0)
    assert bench.lengths[1] == 20


def test_a_status_that_says_full_fetches_the_result_once() -> None:
    bench = BenchCore(workers=2, slots=2)
    bench.begin(64)
    (datagram,) = bench.send()
    bench.receive(status(datagram, seen=0b01, workers=2))
    assert bench.send() == []
    bench.receive(status(datagram, seen=0b11, workers=2, slot_chunk=5))
    assert bench.send() == []
    bench.receive(status(datagram, seen=0b11, workers=2))
    assert bench.send() == [datagram]
    bench.receive(status(datagram, seen=0b11, workers=2))
    assert bench.send() == [], "else a switch whose RESULTs are lost would be asked without end"
    bench.now_ns = bench.core.next_timer_ns()
    bench.send()
    bench.receive(status(datagram, seen=0b11, workers=2))
    assert bench.send() == [datagram]


def test_who_contributed_without_lanes_leaves_room_for_those_of_the_result() -> None:
    bench = BenchCore(workers=2, slots=2)
    target = np.full(64, -7, np.int32)
    work = Pass(CODING_WORDS, OP_MAX, MARK, target, target, contributes=CONTRIBUTES_NOTHING)
    bench.core.begin(work, bench.now_ns)
    (datagram,) = bench.send()
    assert not has_lanes(datagram)
    bench.receive(status(datagram, seen=0b11, workers=2))
    (again,) = bench.send()
    assert has_lanes(again)
    assert not lanes(again).any()
    bench.receive(result(again, workers=2))
    assert not target.any()
    assert bench.core.take_done() == [work]


def test_few_rows_take_several_calls() -> None:
    bench = BenchCore(workers=2, slots=8)
    bench.rows = bench.rows[:3]
    bench.begin(64 * 8)
    assert bench.chunks() == list(range(8))
    for _ in range(2):
        bench.now_ns = bench.core.next_timer_ns()
        assert bench.chunks() == list(range(8))
    bench.now_ns = bench.core.next_timer_ns()
    assert bench.chunks() == [chunk for chunk in range(8) for _ in "cp"]


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
    bench.wait(100 * MS)
    bench.send()
    assert bench.core.failed


def test_the_timer_that_is_announced_is_the_one_that_works() -> None:
    bench = BenchCore(slots=4)
    bench.begin(64 * 4)
    for _ in range(20):
        bench.send()
        bench.now_ns = bench.core.next_timer_ns()
        assert bench.send(), "nothing to do at the announced time"
