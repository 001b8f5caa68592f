"""The order of collectives on one core, without a network."""

import numpy as np

from host_agent.collectives import AllReduceRequest, BarrierRequest, Collective
from host_agent.collectives.collective import BUSY
from host_agent.errors import MismatchError, SumOverflowError
from host_agent.schedule import Outcome, Schedule
from host_agent.wire import Header
from host_agent.wire.constants import FLAG_MISMATCH, HEADER_BYTES
from tests.host_agent.bench_core import BenchCore, result, status

LARGE = np.full(64, 2**30, np.int32)


def finish(bench: BenchCore) -> None:
    while sent := bench.send():
        bench.receive(*map(result, sent))


def test_collectives_follow_without_a_gap() -> None:
    bench = BenchCore(slots=8)
    schedule = Schedule(bench.core)
    for sequence in range(3):
        schedule.add(AllReduceRequest(np.ones(128, np.float32), "max").plan(bench.admission, sequence))
    schedule.begin(bench.now_ns)
    assert len(bench.send()) == 6
    assert len(schedule) == 3


def test_what_follows_an_int32_sum_waits_until_it_is_known_whether_there_is_a_second_pass() -> None:
    bench = BenchCore(workers=1, slots=8)
    schedule = Schedule(bench.core)
    minimum = np.full(64, -(2**31), np.int32)
    schedule.add(AllReduceRequest(minimum).plan(bench.admission, 0))
    schedule.add(BarrierRequest().plan(bench.admission, 1))
    schedule.begin(bench.now_ns)
    marks = []
    while len(schedule):
        sent = bench.send()
        marks += [Header.from_bytes(datagram).fingerprint for datagram in sent]
        bench.receive(*map(result, sent))
        for outcome in schedule.take_ended(bench.now_ns):
            assert outcome.error is None
        schedule.begin(bench.now_ns)
    # Exponent, low halves, high halves, barrier: the two passes differ.
    assert len(marks) == 4
    assert marks[0] == marks[1]
    assert len(set(marks)) == 3


def test_a_failure_between_the_two_passes_is_no_result() -> None:
    bench = BenchCore(slots=8)
    schedule = Schedule(bench.core)
    schedule.add(AllReduceRequest(np.full(64, -(2**31), np.int32)).plan(bench.admission, 0))
    schedule.begin(bench.now_ns)
    bench.receive(*map(result, bench.send()))
    (datagram,) = bench.send()
    following = Header.from_bytes(datagram).chunk + 1
    bench.receive(
        result(datagram),
        status(datagram, 1, chunk=following, pool_index=following * 2, flags=FLAG_MISMATCH),
    )
    (outcome,) = schedule.take_ended(bench.now_ns)
    assert isinstance(outcome.error, MismatchError)
    assert len(schedule) == 0


def test_an_overflow_is_the_error_of_one_collective_only() -> None:
    bench = BenchCore(workers=2, slots=8)
    schedule = Schedule(bench.core)
    for sequence, choice in enumerate(("raise", "saturate")):
        schedule.add(AllReduceRequest(LARGE, "sum", None, choice).plan(bench.admission, sequence))  # type: ignore[arg-type]
    ended = []
    for _ in range(10):
        schedule.begin(bench.now_ns)
        # The other worker has the same values: integers double, exponents stay.
        for datagram in bench.send():
            header, lanes = datagram[:HEADER_BYTES], np.frombuffer(datagram[HEADER_BYTES:], ">i4")
            bench.receive(result(header + (2 * lanes).astype(">i4").tobytes(), workers=2))
        ended += schedule.take_ended(bench.now_ns)
    raised, saturated = ended
    assert isinstance(raised.error, SumOverflowError)
    assert raised.error.elements == 64
    assert np.all(saturated.result == 2**31 - 1)
    assert not bench.core.failed


def busy_after_its_pass(bench: BenchCore, sequence: int) -> Collective[None]:
    """A barrier that computes something before and after its only pass."""
    barrier = BarrierRequest().plan(bench.admission, sequence)
    (work,) = barrier.passes
    barrier.passes = iter((BUSY, work, BUSY, BUSY))
    return barrier


def test_a_driver_looks_at_the_network_between_parts_of_a_computation() -> None:
    bench = BenchCore(workers=1, slots=8)
    schedule = Schedule(bench.core, in_slices=True)
    for sequence in range(2):
        schedule.add(busy_after_its_pass(bench, sequence))
    ended: list[Outcome] = []
    sent_at, ended_at = [], []
    for turn in range(10):
        schedule.begin(bench.now_ns)
        sent = bench.send()
        sent_at += [turn] * len(sent)
        bench.receive(*map(result, sent))
        assert schedule.busy or not len(schedule), "it would wait for nothing"
        new = schedule.take_ended(bench.now_ns)
        ended_at += [turn] * len(new)
        ended += new
    # Each pass is done in the turn in which it is sent, its collective a turn later, when it has computed the rest.
    assert (sent_at, ended_at) == ([1, 3], [2, 4])
    assert all(outcome.error is None for outcome in ended)


def test_a_driver_without_a_network_has_everything_computed_at_once() -> None:
    bench = BenchCore(workers=1, slots=8)
    schedule = Schedule(bench.core)
    schedule.add(busy_after_its_pass(bench, 0))
    schedule.begin(bench.now_ns)
    bench.receive(*map(result, bench.send()))
    (outcome,) = schedule.take_ended(bench.now_ns)
    assert outcome.error is None


def test_the_packets_of_collectives_that_overlap_are_counted_once() -> None:
    bench = BenchCore(workers=1, slots=8)
    schedule = Schedule(bench.core)
    ended: list[Outcome] = []
    for sequence in range(6):
        schedule.add(AllReduceRequest(np.ones(128, np.float32), "max").plan(bench.admission, sequence))
        if sequence % 3 == 2:
            schedule.begin(bench.now_ns)
            finish(bench)
            ended += schedule.take_ended(bench.now_ns)
    assert len(ended) == 6
    counted = bench.core.counters()
    for name in ("packets_sent", "bytes_sent", "packets_received", "bytes_received"):
        assert sum(getattr(outcome.statistics, name) for outcome in ended) == counted[name], name
