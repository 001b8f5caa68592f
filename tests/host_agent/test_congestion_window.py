"""The congestion window of a core: what makes it larger and smaller, and what does not."""

from collections import deque
from collections.abc import Iterator
from itertools import pairwise

import pytest

from host_agent.protocol.congestion import FIRST_BYTES, LEAST_LOST, QUEUE_PACKETS, count_loss
from host_agent.wire import Header
from host_agent.wire.constants import FLAG_CONGESTED, FLAG_LANES, HEADER_BYTES
from host_agent.wire.lengths import frame_bytes
from tests.host_agent.bench_core import MS, BenchCore, result, status

PACKET = frame_bytes(64)
SEGMENT_BYTES = 1514
BASE_NS = MS
PACKET_NS = MS // 20


class Bottleneck:
    """A queue between a core and its switch, which the core has alone, or in which others keep `foreign_ns` of packets."""

    def __init__(
        self, slots: int = 1024, completer: int | None = None, marks: int = 0, workers: int = 2
    ) -> None:
        self.workers = workers
        self.bench = BenchCore(workers=workers, slots=slots)
        self.bench.state["congestion"] = 1
        self.completer = self.bench.core.admission.rank if completer is None else completer
        self.foreign_ns = 0
        self.flags = FLAG_LANES | (FLAG_CONGESTED if marks else 0)
        self._free_ns = 0
        self._under_way: deque[tuple[int, bytes]] = deque()
        self.bench.begin(64 * 100_000)

    @property
    def window(self) -> int:
        return int(self.bench.state["window_bytes"])

    def run(self, results: int) -> Iterator[int]:
        """Let RESULTs arrive one after the other; yields the number of packets in the core's own part of the queue."""
        for _ in range(results):
            for sent in self.bench.send():
                now_ns = self.bench.now_ns
                if self.foreign_ns:
                    self._free_ns = now_ns + self.foreign_ns
                else:
                    self._free_ns = max(self._free_ns, now_ns) + PACKET_NS
                self._under_way.append((self._free_ns + BASE_NS, sent))
            self.bench.now_ns, sent = self._under_way.popleft()
            self.bench.receive(result(sent, workers=self.workers, completer=self.completer, flags=self.flags))
            yield max(self._free_ns - self.bench.now_ns, 0) // PACKET_NS


def test_the_window_keeps_chunks_back_that_slots_would_allow() -> None:
    bench = BenchCore(slots=1024)
    bench.begin(64 * 1024)
    assert len(bench.send()) == 1024, "without a window"
    bench = BenchCore(slots=1024)
    bench.state["congestion"] = 1
    bench.begin(64 * 1024)
    sent = bench.send()
    assert len(sent) == -(-FIRST_BYTES // PACKET)
    assert bench.state["flight_bytes"] == len(sent) * PACKET
    bench.receive(result(sent[0]), result(sent[1]))
    assert len(bench.send()) == 2


def test_a_window_that_keeps_nothing_back_does_not_grow() -> None:
    """It has not been tried whether the network has room for more (RFC 9002, 7.8)."""
    bench = BenchCore(workers=2, slots=1024)
    bench.state["congestion"] = 1
    windows = set()
    for _ in range(50):
        bench.begin(64 * 8)
        sent = bench.send()
        assert len(sent) == 8
        bench.wait(BASE_NS)
        bench.receive(*(result(each, workers=2, completer=bench.core.admission.rank) for each in sent))
        bench.core.take_done()
        windows.add(int(bench.state["window_bytes"]))
    assert len(windows) == 1


def test_alone_a_worker_fills_the_link_and_keeps_few_packets_in_the_queue() -> None:
    path = Bottleneck()
    queues = list(path.run(20_000))[10_000:]
    assert min(queues) > 0, "the link is never idle"
    assert max(queues) <= 2 * QUEUE_PACKETS
    assert not path.bench.state["competes"]


@pytest.mark.parametrize("competes", [0, 1])
def test_with_all_slots_in_the_window_there_are_trials_only_of_whether_others_are_gone(competes: int) -> None:
    path = Bottleneck(slots=32)
    path.bench.state["window_bytes"] = 32 * PACKET
    path.bench.state["competes"] = competes
    trials = sum(path.bench.state["trial_rounds"] > 0 for _ in path.run(1000))
    assert (trials > 0) == (competes == 1)


def test_a_window_of_all_slots_does_not_remember_when_the_last_congestion_was() -> None:
    path = Bottleneck(slots=16)
    list(path.run(1000))
    path.bench.state["competes"] = 1
    count_loss(path.bench.state, path.bench.state["next_chunk"], path.bench.now_ns)
    path.bench.state["competes"] = 0
    assert path.bench.state["largest_ns"] == path.bench.now_ns
    list(path.run(1000))
    assert path.window == 16 * PACKET
    assert path.bench.state["largest_ns"] < 0


def test_beside_others_that_fill_the_queue_a_worker_competes_until_packets_are_lost() -> None:
    path = Bottleneck()
    list(path.run(1000))
    path.foreign_ns = 20 * MS
    list(path.run(20_000))
    state = path.bench.state
    assert state["competes"]
    assert path.window == 1024 * PACKET, "nothing was lost"
    count_loss(state, state["next_chunk"], path.bench.now_ns)
    assert path.window == 1024 * PACKET * 7 // 10
    count_loss(state, state["next_chunk"] - 1, path.bench.now_ns)
    assert path.window == 1024 * PACKET * 7 // 10, "once for all losses of a round trip"
    path.foreign_ns = 0
    queues = list(path.run(30_000))[-1000:]
    assert not state["competes"], "the others are gone"
    assert max(queues) <= 2 * QUEUE_PACKETS


def test_a_worker_that_competes_again_has_no_second_slow_start() -> None:
    path = Bottleneck()
    list(path.run(1000))
    path.foreign_ns = 20 * MS
    for _ in path.run(20_000):
        if path.bench.state["competes"] and path.window > 100 * PACKET:
            break
    count_loss(path.bench.state, path.bench.state["next_chunk"], path.bench.now_ns)
    path.foreign_ns = 0
    list(path.run(30_000))
    assert not path.bench.state["competes"]
    path.foreign_ns = 20 * MS
    grown: list[int] = []
    for _ in path.run(20_000):
        if path.bench.state["competes"] and (not grown or grown[-1] != path.window):
            grown.append(path.window)
    known = path.bench.state["largest_bytes"]
    assert any(each >= known for each in grown)
    above = [(before, after) for before, after in pairwise(grown) if before >= known]
    assert above
    assert all(after < before * 9 // 8 for before, after in above[:5]), "it grows by little from there on"


def test_waiting_for_another_worker_is_no_congestion() -> None:
    path = Bottleneck(completer=1)
    path.foreign_ns = 200 * MS
    list(path.run(5000))
    assert path.window == FIRST_BYTES


@pytest.mark.parametrize(("every", "shrinks"), [(100, False), (5, True)], ids=["1 %", "20 %"])
def test_a_share_of_losses_that_a_bad_link_has_is_no_congestion(every: int, shrinks: bool) -> None:
    path = Bottleneck()
    list(path.run(10_000))
    before = path.window
    for number, _ in enumerate(path.run(5000)):
        if number % every == 0:
            count_loss(path.bench.state, path.bench.state["next_chunk"], path.bench.now_ns)
    assert (path.window < before // 2) == shrinks


def test_of_a_first_flight_that_was_too_large_the_window_keeps_what_has_arrived() -> None:
    bench = BenchCore(workers=2, slots=1024)
    bench.state["congestion"] = 1
    bench.begin(64 * 1024)
    sent = bench.send()
    arrived = len(sent) // 4
    bench.receive(*(result(each, workers=2, completer=1) for each in sent[-arrived:]))
    lost = {Header.from_bytes(each).chunk for each in sent[:-arrived]}
    while bench.state["statuses"] < len(lost):
        bench.wait(MS)
        probes = [each for each in bench.send() if len(each) == HEADER_BYTES]
        bench.receive(
            *(status(each, seen=0b10, workers=2) for each in probes if Header.from_bytes(each).chunk in lost)
        )
    assert bench.state["window_bytes"] // PACKET == pytest.approx(0.7 * arrived, abs=LEAST_LOST)


def test_a_packet_that_is_lost_is_not_under_way_and_waits_for_room_in_the_window() -> None:
    bench = BenchCore(workers=2, slots=1024)
    bench.state["congestion"] = 1
    bench.begin(64 * 1024)
    sent = bench.send()
    bench.now_ns = bench.core.next_timer_ns()
    bench.state["window_bytes"] = 2 * PACKET
    probes = bench.send()
    assert bench.state["flight_bytes"] == len(sent) * PACKET, "it may only be late"
    bench.receive(status(probes[0], seen=0b10, workers=2))
    assert bench.state["flight_bytes"] == (len(sent) - 1) * PACKET
    assert not any(len(each) > HEADER_BYTES for each in bench.send())
    bench.receive(*(result(each, workers=2, completer=1) for each in sent[2:]))
    again = next(each for each in bench.send() if len(each) > HEADER_BYTES)
    assert Header.from_bytes(again).chunk == Header.from_bytes(sent[0]).chunk


def test_when_nothing_arrives_a_lost_packet_is_sent_again_without_room() -> None:
    bench = BenchCore(workers=2, slots=1024)
    bench.state["congestion"] = 1
    bench.begin(64 * 1024)
    bench.send()
    bench.now_ns = bench.core.next_timer_ns()
    bench.state["window_bytes"] = 2 * PACKET
    probes = bench.send()
    bench.receive(status(probes[0], seen=0b10, workers=2))
    assert not any(len(each) > HEADER_BYTES for each in bench.send())
    bench.now_ns = int(bench.state["pto_ns"])
    assert len(bench.send()[0]) > HEADER_BYTES


def test_marks_make_the_window_smaller() -> None:
    path = Bottleneck(marks=1)
    list(path.run(5000))
    assert path.window < FIRST_BYTES // 4


def test_marked_or_not_a_window_that_is_full_grows_by_a_segment_in_a_round() -> None:
    """As the flows of DCTCP's model do, so that the shares of both are equal."""
    path = Bottleneck(marks=1)
    list(path.run(20_000))
    state = path.bench.state
    assert state["marked_share"] > 900, "all RESULTs have marks"
    # Where all are marked, half of the window goes in each round, and a segment comes.
    assert 2 * SEGMENT_BYTES - 2 * PACKET <= path.window <= 2 * SEGMENT_BYTES + PACKET
    path.flags = FLAG_LANES
    grown = [path.window]
    for _ in path.run(100):
        if path.window != grown[-1]:
            grown.append(path.window)
    steps = [after - before for before, after in pairwise(grown)]
    assert steps[1:4] == [SEGMENT_BYTES] * 3


@pytest.mark.parametrize(("levels", "step"), [(1, 1514 // 2), (2, 1514)])
def test_beside_others_a_small_window_grows_by_a_segment_in_a_tree_where_workers_do_not_meet(
    levels: int, step: int
) -> None:
    path = Bottleneck()
    list(path.run(1000))
    state = path.bench.state
    state["levels"], state["competes"] = levels, 1
    state["window_bytes"] = state["threshold_bytes"] = 10 * PACKET
    state["largest_bytes"], state["largest_ns"] = 10 * PACKET, path.bench.now_ns
    state["trial_rounds"], state["trial_wait"] = 0, 1000
    grown = [path.window]
    for _ in path.run(100):
        if path.window != grown[-1]:
            grown.append(path.window)
    assert [after - before for before, after in pairwise(grown[:4])] == [step] * 3


@pytest.mark.parametrize(("workers", "packets"), [(2, 16), (8, 16), (16, 8), (32, 4)])
def test_workers_of_a_large_job_keep_fewer_packets_each_in_a_queue(workers: int, packets: int) -> None:
    path = Bottleneck(workers=workers)
    path.bench.state["trial_wait"] = 1 << 30
    queues = list(path.run(20_000))[10_000:]
    assert packets - 2 <= sum(queues) / len(queues) <= packets + 3
