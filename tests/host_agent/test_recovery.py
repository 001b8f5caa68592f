"""Chunks whose RESULT does not come: when they are probed, and when they are sent again."""

import numpy as np
import pytest

from host_agent.codecs.raw import WORDS_MAX
from host_agent.protocol.passes import Pass
from host_agent.protocol.records import CONTRIBUTES_NOTHING, NEVER, PROBE_NUMBERS
from host_agent.protocol.recovery import (
    LEAST_WINDOW,
    PTO_PROBES,
    WINDOW_ROUNDS,
    WINDOW_SHARE,
    has_queue,
)
from host_agent.protocol.timeout import PACKET_THRESHOLD, REPEATS_AT_ONCE, take_probe_time
from host_agent.wire import Header
from host_agent.wire.constants import COMPLETER_UNKNOWN, HEADER_BYTES, KIND_CONTRIBUTE, KIND_PROBE, OP_MAX
from tests.host_agent.bench_core import MARK, MS, BenchCore, has_lanes, lanes, repeated, result, status


def is_probe(datagram: bytes) -> bool:
    return Header.from_bytes(datagram).kind == KIND_PROBE


def after_probe_timeout(bench: BenchCore) -> list[bytes]:
    """The PROBEs that are sent when nothing comes."""
    bench.now_ns = bench.core.next_timer_ns()
    sent = bench.send()
    assert all(map(is_probe, sent))
    return sent


def test_a_probe_is_a_header_with_a_number() -> None:
    bench = BenchCore(workers=2, slots=1)
    bench.begin(64)
    (datagram,) = bench.send()
    numbers = []
    for _ in range(3):
        (probe,) = after_probe_timeout(bench)
        header = Header.from_bytes(probe)
        numbers.append(header.exponent)
        assert header == Header.from_bytes(datagram)._replace(
            kind=KIND_PROBE, flags=0, exponent=numbers[-1], completer=COMPLETER_UNKNOWN
        )
        assert len(probe) == HEADER_BYTES
    assert numbers == [1, 2, 3]
    bench.state["probe"] = PROBE_NUMBERS
    (probe,) = after_probe_timeout(bench)
    assert Header.from_bytes(probe).exponent == 1, "0 is what other STATUSes carry there"


def test_a_chunk_past_the_packet_threshold_is_sent_again_at_once_and_probed() -> None:
    bench = BenchCore(slots=8)
    bench.begin(64 * 8)
    sent = bench.send()
    bench.wait(MS)
    bench.receive(*map(result, sent[1:PACKET_THRESHOLD]))
    assert bench.send() == []
    bench.receive(result(sent[PACKET_THRESHOLD]))
    again, probe = bench.send()
    assert again == repeated(sent[0])
    assert is_probe(probe)
    bench.receive(*map(result, sent[PACKET_THRESHOLD + 1 :]))
    assert bench.send() == [], "once"
    assert bench.core.counters()["fast_retransmissions"] == 1


def queued(workers: int = 1, slots: int = 8) -> BenchCore:
    """A worker whose PROBEs took 1 ms at first, and 20 ms since."""
    bench = BenchCore(workers=workers, slots=slots)
    for ns in (MS, *[20 * MS] * 20):
        take_probe_time(bench.state, ns)
    assert has_queue(bench.state)
    return bench


@pytest.mark.parametrize(
    ("times", "queue"),
    [
        ([], False),
        ([20 * MS] * 20, False),
        ([MS // 10, *[4 * MS // 10] * 20], False),
        ([MS // 10, *[MS // 10, 9 * MS] * 20], False),
        ([MS // 10, *[MS] * 20], True),
    ],
    ids=[
        "no sample",
        "always as long",
        "less than a third of a millisecond",
        "they differ by more",
        "a queue",
    ],
)
def test_whether_packets_queue(times: list[int], queue: bool) -> None:
    bench = BenchCore()
    for ns in times:
        take_probe_time(bench.state, ns)
    assert has_queue(bench.state) == queue


def test_where_packets_queue_a_chunk_past_the_threshold_is_probed_and_sent_again_if_missing() -> None:
    """All workers miss the RESULT, and one contribution is lost: those of the others would be needless."""
    bench = queued()
    bench.begin(64 * 8)
    sent = bench.send()
    bench.receive(*map(result, sent[1 : PACKET_THRESHOLD + 1]))
    (probe,) = bench.send()
    assert is_probe(probe)
    assert Header.from_bytes(probe).chunk == 0
    bench.receive(*map(result, sent[PACKET_THRESHOLD + 1 :]))
    assert bench.send() == [], "once"
    bench.receive(status(probe, 0))
    again, probe = bench.send()
    assert again == repeated(sent[0])
    assert is_probe(probe)
    assert bench.core.counters()["fast_retransmissions"] == 0


def test_a_chunk_is_probed_again_when_one_that_was_probed_later_has_its_result() -> None:
    bench = queued(workers=2, slots=16)
    bench.begin(64 * 16)
    sent = bench.send()

    def acknowledge_after(first: int, count: int) -> list[int]:
        bench.receive(*(result(each, workers=2) for each in sent[first : first + count]))
        return bench.chunks()

    assert acknowledge_after(3, 3) == [0, 1, 2]
    bench.wait(15 * MS)
    assert acknowledge_after(8, 3) == [6, 7]
    assert acknowledge_after(7, 1) == [0, 1, 2]
    assert acknowledge_after(6, 1) == [], "once"


def test_where_packets_queue_a_share_of_the_slots_is_used_for_a_while_after_a_loss() -> None:
    bench = queued(slots=64)
    bench.begin(64 * 2000)
    held = bench.send()
    bench.wait(20 * MS)

    def proceed(results: int) -> int:
        """Let RESULTs arrive, and return how many chunks are in flight then."""
        for _ in range(results):
            bench.receive(result(held.pop(0)))
            held.extend(each for each in bench.send() if not is_probe(each))
        return len(held)

    lost = held.pop(0)
    assert proceed(8) == 63 - 8, (
        "the chunk that is lost is not counted, and one more than the window is in flight"
    )
    bench.receive(result(lost))
    share = max(64 // WINDOW_SHARE, LEAST_WINDOW)
    assert proceed(64) == share
    while Header.from_bytes(held[-1]).chunk < WINDOW_ROUNDS * 64:
        assert proceed(1) == share
    assert proceed(64) == 64


def test_a_chunk_that_few_have_passed_is_sent_again_after_nine_eighths_of_a_round_trip() -> None:
    bench = BenchCore(slots=2)
    bench.begin(64 * 2)
    sent = bench.send()
    bench.wait(80 * MS)
    bench.receive(result(sent[1]))
    assert bench.send() == []
    assert bench.core.next_timer_ns() == bench.now_ns + 10 * MS
    bench.wait(10 * MS)
    assert bench.send()[0] == repeated(sent[0])


def test_a_probe_does_not_put_other_chunks_past_the_threshold() -> None:
    bench = BenchCore(slots=8)
    bench.begin(64 * 8)
    sent = bench.send()
    after_probe_timeout(bench)
    bench.receive(result(sent[0]))
    assert bench.send() == []


@pytest.mark.parametrize("slot_chunk", [None, 2**32 - 4])
def test_a_contribution_that_the_switch_does_not_have_is_sent_again(slot_chunk: int | None) -> None:
    bench = BenchCore(workers=2, slots=2)
    bench.begin(64)
    (datagram,) = bench.send()
    (probe,) = after_probe_timeout(bench)
    seen = 0b10 if slot_chunk is None else 0b11
    bench.receive(status(probe, seen, 2, slot_chunk))
    assert bench.send()[0] == repeated(datagram)
    bench.receive(status(probe, seen, 2, slot_chunk))
    assert bench.send() == [], "the answer is used up"


def test_a_result_that_was_lost_is_fetched() -> None:
    bench = BenchCore(workers=2, slots=2)
    bench.begin(64)
    (datagram,) = bench.send()
    (probe,) = after_probe_timeout(bench)
    for _ in range(3):
        bench.receive(status(probe, 0b11, 2))
        again, probe = bench.send()
        assert again == repeated(datagram)


def test_who_waits_for_others_sends_nothing_again() -> None:
    bench = BenchCore(workers=2, slots=4)
    bench.begin(64 * 4)
    bench.send()
    probes = 0
    for _ in range(20):
        for probe in after_probe_timeout(bench):
            probes += 1
            bench.wait(MS // 10)
            bench.receive(status(probe, 0b01, 2))
    assert bench.core.counters()["retransmissions"] == 0
    assert probes == bench.core.counters()["statuses"] <= 20 * PTO_PROBES


@pytest.mark.parametrize("looks", [False, True], ids=["its timer is set", "all chunks are checked"])
def test_a_later_timer_of_one_chunk_does_not_put_off_that_of_another(looks: bool) -> None:
    bench = BenchCore(workers=2, slots=4)
    bench.begin(64 * 3)
    sent = bench.send()
    _, second = after_probe_timeout(bench)
    first_ns = int(bench.core.records[1][0]["loss_time_ns"])
    bench.now_ns = first_ns - 1
    bench.receive(status(second, 0b01, 2))
    assert int(bench.core.records[1][1]["loss_time_ns"]) > first_ns, "a long round trip makes the RTO longer"
    if looks:
        bench.receive(result(sent[2], workers=2))
        assert bench.send() == []
    bench.state["pto_ns"] = NEVER
    bench.now_ns = bench.core.next_timer_ns()
    assert (bench.now_ns, bench.chunks()) == (first_ns, [0])


def test_an_answer_from_before_the_last_transmission_says_nothing_about_it() -> None:
    bench = BenchCore(workers=2, slots=1)
    bench.begin(64)
    (datagram,) = bench.send()
    (first,) = after_probe_timeout(bench)
    (second,) = after_probe_timeout(bench)
    bench.receive(status(first, 0b10, 2))
    assert bench.send()[0] == repeated(datagram)
    bench.receive(status(second, 0b10, 2))
    assert bench.send() == []


def test_a_status_unasked_fetches_once() -> None:
    bench = BenchCore(workers=2, slots=2)
    bench.begin(64)
    (datagram,) = bench.send()
    bench.receive(status(datagram, seen=0b01, workers=2))
    assert bench.send() == []
    bench.receive(status(datagram, seen=0b11, workers=2, slot_chunk=5))
    assert bench.send() == []
    (asked,) = after_probe_timeout(bench)
    bench.receive(status(asked, seen=0b01, workers=2))
    bench.receive(status(asked, seen=0b01, workers=2))
    assert bench.send() == []
    assert bench.state["padding"] == 0, "nothing says that the switch could not grow a packet"
    bench.receive(status(datagram, seen=0b11, workers=2))
    assert bench.send()[0] == repeated(datagram)
    bench.receive(status(datagram, seen=0b11, workers=2))
    assert bench.send() == [], "else a switch whose RESULTs are lost would be asked without end"
    assert bench.state["padding"] == 1


def test_a_chunk_that_waits_is_probed_also_behind_chunks_that_do_not() -> None:
    bench = BenchCore(workers=2, slots=8)
    bench.begin(64 * 8)
    sent = bench.send()
    bench.receive(status(sent[5], seen=0b11, workers=2))
    assert bench.send()[0] == repeated(sent[5])
    asked_ns = int(bench.core.records[1][5]["loss_time_ns"])
    bench.state["pto_ns"] = 2 * asked_ns
    bench.now_ns = asked_ns
    assert bench.chunks() == [5]


def test_who_contributed_without_lanes_leaves_room_for_those_of_the_result() -> None:
    bench = BenchCore(workers=2, slots=2)
    target = np.full(64, -7, np.int32)
    work = Pass(WORDS_MAX, OP_MAX, MARK, target, target, contributes=CONTRIBUTES_NOTHING)
    bench.core.begin(work, bench.now_ns)
    (datagram,) = bench.send()
    assert not has_lanes(datagram)
    bench.receive(status(datagram, seen=0b11, workers=2))
    again, _ = bench.send()
    assert has_lanes(again)
    assert not lanes(again).any()
    bench.receive(result(again, workers=2))
    assert not target.any()
    assert bench.core.take_done() == [work]


def test_where_long_packets_do_not_get_through_they_are_sent_less_and_less_often() -> None:
    bench = BenchCore(workers=2, slots=1)
    bench.begin(64)
    bench.send()
    started, times = bench.now_ns, []
    while bench.now_ns - started < 10_000 * MS:
        bench.now_ns = bench.core.next_timer_ns()
        for _ in range(2 * REPEATS_AT_ONCE):
            sent = bench.send()
            times += [bench.now_ns for each in sent if Header.from_bytes(each).kind == KIND_CONTRIBUTE]
            bench.wait(MS // 100)
            bench.receive(*(status(each, 0b10, 2) for each in sent if is_probe(each)))
    assert REPEATS_AT_ONCE < len(times) < 100
    assert times[REPEATS_AT_ONCE - 1] - times[0] < MS, "at first at once: losses are mostly by chance"
    assert times[-1] - times[-2] == pytest.approx(1_000 * MS, rel=0.1)


def test_a_loss_that_is_found_makes_others_suspect() -> None:
    bench = BenchCore(workers=2, slots=64)
    bench.begin(64 * 64)
    bench.send()
    asked = set()
    probes = after_probe_timeout(bench)
    counts = [len(probes)]
    for _ in range(8):
        bench.wait(MS // 10)
        bench.receive(*(status(each, 0b10, 2) for each in probes))
        probes = [each for each in bench.send() if is_probe(each)]
        asked |= {Header.from_bytes(each).chunk for each in probes}
        counts.append(len(probes))
    assert asked == set(range(64)), "a burst of losses is found in a few round trips"
    assert counts[:4] == [2, 6, 18, 54], "a PROBE for the chunk, and two more"
