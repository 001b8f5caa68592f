"""RFC 6298 on what PROBEs measure, with the numbers worked out by hand, and the intervals that follow from it."""

from itertools import pairwise

import pytest

from host_agent.protocol.recovery import MAX_PTO_PROBES, PTO_PROBES
from host_agent.protocol.timeout import (
    INITIAL_RTO_NS,
    MIN_PTO_NS,
    REPEATS_AT_ONCE,
    WINDOW_PTO_NS,
    loss_delay_ns,
    probe_again_after_ns,
    pto_after_ns,
    take_probe_time,
    take_sample,
)
from tests.host_agent.bench_core import MS, BenchCore, repeated, result, status

SECOND = 1_000 * MS


def test_the_first_sample_and_those_that_follow() -> None:
    core = BenchCore().state
    assert core["rto_ns"] == INITIAL_RTO_NS  # (2.1)
    take_sample(core, 100 * MS)  # (2.2): SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR
    assert (core["srtt_ns"], core["rttvar_ns"], core["rto_ns"]) == (100 * MS, 50 * MS, 300 * MS)
    take_sample(core, 180 * MS)  # (2.3): RTTVAR = 3/4 * 50 + 1/4 * 80, then SRTT = 7/8 * 100 + 1/8 * 180
    assert (core["srtt_ns"], core["rttvar_ns"], core["rto_ns"]) == (110 * MS, 57_500_000, 340 * MS)
    take_sample(core, 110 * MS)
    assert (core["srtt_ns"], core["rttvar_ns"], core["rto_ns"]) == (110 * MS, 43_125_000, 282_500_000)


def test_the_variation_counts_as_at_least_the_granularity_of_the_clock() -> None:
    core = BenchCore().state
    for _ in range(200):
        take_sample(core, 50 * MS)
    assert core["rto_ns"] == 51 * MS


def test_silence_is_borne_for_what_an_operating_system_takes_to_wake_a_worker() -> None:
    core = BenchCore().state
    for _ in range(200):
        take_sample(core, 50_000)
    assert pto_after_ns(core, 0) == MIN_PTO_NS > probe_again_after_ns(core, 0)
    take_probe_time(core, 50_000)
    assert pto_after_ns(core, 0) == core["rto_ns"] < MIN_PTO_NS, "what a PROBE takes includes that"


def test_with_a_congestion_window_the_first_silence_after_results_is_short() -> None:
    """All others of a first window that was too large may be lost."""
    core = BenchCore().state
    core["congestion"] = 1
    assert pto_after_ns(core, 0) >= MIN_PTO_NS, "nothing is known of the path"
    take_sample(core, 50_000)
    for _ in range(200):
        take_sample(core, 50_000)
    assert pto_after_ns(core, 0) == WINDOW_PTO_NS < MIN_PTO_NS
    take_probe_time(core, 50_000)
    assert pto_after_ns(core, 0) == core["rto_ns"] < WINDOW_PTO_NS


def test_the_ceiling() -> None:
    core = BenchCore().state
    take_sample(core, 3 * SECOND)
    assert core["rto_ns"] == SECOND
    assert pto_after_ns(core, 20 * SECOND) == probe_again_after_ns(core, 20 * SECOND) == SECOND


def test_a_short_deadline_lowers_the_ceiling_so_that_there_is_time_to_ask() -> None:
    core = BenchCore(timeout_ns=160 * MS).state
    assert core["rto_ns"] == pto_after_ns(core, 0) == probe_again_after_ns(core, SECOND) == 10 * MS


def test_losses_are_believed_after_nine_eighths_of_a_round_trip() -> None:
    core = BenchCore().state
    take_sample(core, 80 * MS)
    assert loss_delay_ns(core) == 90 * MS


def test_a_result_only_bounds_the_round_trip_from_above() -> None:
    bench = BenchCore(slots=1)
    bench.begin(64 * 3)
    (first,) = bench.send()
    bench.wait(40 * MS)
    bench.receive(result(first))
    assert bench.state["srtt_ns"] == 40 * MS, "all that is known"
    (second,) = bench.send()
    bench.wait(500 * MS)  # another worker was late
    bench.receive(result(second))
    assert bench.state["srtt_ns"] == 40 * MS
    (third,) = bench.send()
    bench.wait(8 * MS)
    bench.receive(result(third))
    assert bench.state["srtt_ns"] == 36 * MS
    assert bench.state["min_result_ns"] == 8 * MS
    assert bench.state["max_result_ns"] == 500 * MS
    assert bench.state["result_ns"] == (40 + 460 / 8) * MS * 7 / 8 + MS


def test_the_answer_to_a_probe_is_a_sample_whichever_it_answers() -> None:
    bench = BenchCore(workers=2, slots=1)
    bench.begin(64)
    bench.send()
    bench.wait(INITIAL_RTO_NS)
    (first,) = bench.send()
    bench.now_ns = bench.core.next_timer_ns()
    (second,) = bench.send()
    assert first != second
    bench.wait(MS)
    bench.receive(status(first, 1, 2))
    assert bench.state["srtt_ns"] == INITIAL_RTO_NS + MS
    bench.receive(status(first, 1, 2), status(second, 1, 2, exponent=0), status(second, 1, 2, exponent=9))
    assert bench.state["srtt_ns"] == INITIAL_RTO_NS + MS, "each once, by its number"
    bench.receive(status(second, 1, 2))
    assert bench.state["srtt_ns"] == (INITIAL_RTO_NS + MS) - INITIAL_RTO_NS // 8


def test_no_sample_from_what_was_sent_twice() -> None:
    bench = BenchCore(slots=8)
    bench.begin(64 * 8)
    sent = bench.send()
    bench.wait(2 * MS)
    bench.receive(*map(result, sent[1:5]))
    assert repeated(sent[0]) in bench.send()
    bench.wait(MS // 1000)
    bench.receive(result(sent[0]))
    assert bench.state["srtt_ns"] == 2 * MS


def measured_bench() -> BenchCore:
    """A core of two workers whose RTO is 30 ms, with one chunk in flight."""
    bench = BenchCore(workers=2, slots=1)
    bench.begin(64 * 2)
    (first,) = bench.send()
    bench.wait(10 * MS)
    bench.receive(result(first, workers=2))
    assert bench.state["rto_ns"] == 30 * MS
    bench.send()
    return bench


def times_of_questions(bench: BenchCore, answer: bool) -> list[int]:
    """Times of PROBEs in 30 s, answered (the other worker is late) or not."""
    started, times = bench.now_ns, []
    while bench.now_ns - started < 30 * SECOND:
        bench.now_ns = bench.core.next_timer_ns()
        for probe in bench.send():
            times.append(bench.now_ns - started)
            if answer:
                bench.receive(status(probe, 0b01, 2))
    return times


def test_unanswered_questions_are_repeated_at_once_for_a_while() -> None:
    times = times_of_questions(measured_bench(), answer=False)
    waits = [after - before for before, after in pairwise(times)]
    assert waits[:REPEATS_AT_ONCE] == [30 * MS] * REPEATS_AT_ONCE
    assert waits[REPEATS_AT_ONCE + 1] == pytest.approx(1.25 * waits[REPEATS_AT_ONCE], rel=0.01)
    assert max(waits) == SECOND
    assert len(times) < 60


def test_workers_that_are_late_are_asked_for_by_a_share_of_the_wait() -> None:
    times = times_of_questions(measured_bench(), answer=True)
    waits = [after - before for before, after in pairwise(times)]
    assert max(waits) == pytest.approx(SECOND)
    for waited, wait in zip(times, waits, strict=False):
        assert wait <= max(waited / 8, 30 * MS) * 1.1
    assert len(times) < 90


def test_more_of_the_oldest_are_probed_each_time_that_nothing_comes_back() -> None:
    bench = BenchCore(slots=64)
    bench.begin(64 * 100)
    assert len(bench.send()) == 64
    probed: list[set[int]] = [set()]
    while len(probed[-1]) < MAX_PTO_PROBES:
        bench.now_ns = bench.core.next_timer_ns()
        probed.append(probed[-1] | set(bench.chunks()))
        assert probed[-1] == set(range(len(probed[-1])))
    assert len(probed[1]) == PTO_PROBES
    assert len(probed) < 8, "they double: a burst of losses ends after a number of packets"
    for _ in range(8):
        bench.now_ns = bench.core.next_timer_ns()
        assert set(bench.chunks()) <= probed[-1], "MAX_PTO_PROBES are the most"
    assert bench.core.counters()["retransmissions"] == 0
