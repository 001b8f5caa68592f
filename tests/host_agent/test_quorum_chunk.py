"""Quorum chunks at a worker: when it contributes, which RESULTs it takes, and when the slot is used again."""

import pytest

from host_agent.codecs.codec import NOTHING
from host_agent.protocol.passes import Pass
from host_agent.wire import Header
from host_agent.wire.constants import KIND_CONTRIBUTE, KIND_PROBE, KIND_RESULT, OP_SUM, VERSION
from tests.host_agent.bench_core import MARK, BenchCore, repeated, result, status

WORKERS, QUORUM = 4, 2


def call(bench: BenchCore, *, offered: bool = False) -> Pass:
    """Begin a quorum chunk."""
    work = Pass(NOTHING, OP_SUM, MARK, offered=offered)
    bench.core.begin(work, bench.now_ns)
    return work


def ordinary(bench: BenchCore) -> Pass:
    """Begin a chunk of all workers."""
    work = Pass(NOTHING, OP_SUM, MARK)
    bench.core.begin(work, bench.now_ns)
    return work


def sent_next(bench: BenchCore) -> list[bytes]:
    """Return the next datagrams if nothing arrives."""
    sent: list[bytes] = []
    while not sent and not bench.core.failed:
        bench.now_ns = bench.core.next_timer_ns()
        sent = bench.send()
    return sent


def named(chunk: int, added: int, quorum: int = 1, slots: int = 2) -> bytes:
    """Make the RESULT of a quorum chunk for worker 0 that names those whose contributions it has."""
    example = BenchCore(WORKERS, slots)
    header = Header(
        *(VERSION, KIND_RESULT, 0, example.admission.job_id, quorum, OP_SUM, MARK),
        *(example.admission.token, 0, WORKERS, chunk % slots * 2 + chunk // slots % 2, chunk, 0),
    )
    return header.to_bytes() + added.to_bytes(4, "big") + chunk.to_bytes(4, "big")


def test_it_contributes_when_its_array_is_there_and_once() -> None:
    bench = BenchCore(WORKERS, 2, quorum=QUORUM)
    work = call(bench)
    assert bench.send() == []
    bench.core.offer(work)
    (sent,) = bench.send()
    header = Header.from_bytes(sent)
    assert (header.kind, header.flags, header.quorum, header.chunk) == (KIND_CONTRIBUTE, 0, 1, 0)
    bench.core.offer(work)
    bench.receive(named(0, 0b0011))
    assert bench.core.take_done() == [work]
    assert work.added == 0b0011


def test_it_learns_the_members_without_contributing() -> None:
    bench = BenchCore(WORKERS, 2, quorum=QUORUM)
    work = call(bench)
    assert bench.send() == []
    bench.receive(named(0, 0b1010))
    assert bench.core.take_done() == [work]
    bench.core.offer(work)
    assert bench.send() == []
    assert work.added == 0b1010


@pytest.mark.parametrize("early_ns", [1, 0, -1], ids=["before", "at", "after"])
def test_an_array_offered_around_the_end_of_its_timer_leaves_the_timer_armed(early_ns: int) -> None:
    """Whichever of the two comes first, a contribution that is lost is probed, and sent again."""
    bench = BenchCore(WORKERS, 2, quorum=QUORUM)
    work = call(bench)
    assert bench.send() == []
    assert [Header.from_bytes(each).kind for each in sent_next(bench)] == [KIND_PROBE]
    bench.now_ns = int(bench.state["loss_time_ns"]) - early_ns
    bench.core.offer(work)
    contribution = bench.send()[0]
    assert Header.from_bytes(contribution).kind == KIND_CONTRIBUTE
    (probe,) = sent_next(bench)
    bench.receive(status(probe, 0b1100, WORKERS))
    assert bench.send()[0] == repeated(contribution)


@pytest.mark.parametrize(
    ("added", "quorum"),
    [(0b0001, 1), (0b0111, 1), (1 << WORKERS | 1, 1), (0b0011, 0)],
    ids=["too few", "too many", "no worker of the job", "without the flag"],
)
def test_a_result_that_names_no_quorum_is_malformed(added: int, quorum: int) -> None:
    bench = BenchCore(WORKERS, 2, quorum=QUORUM)
    call(bench, offered=True)
    bench.send()
    bench.receive(named(0, added, quorum))
    assert bench.core.take_done() == []
    assert bench.core.counters()["malformed"] == 1


def test_the_slot_of_a_quorum_chunk_waits_for_the_result_behind_it() -> None:
    """Only a quorum contributed to the quorum chunk; all were at the chunk behind it (docs/protocol.md)."""
    bench = BenchCore(WORKERS, 2, quorum=QUORUM)
    ordinary(bench), ordinary(bench)
    bench.receive(*(result(sent, workers=WORKERS) for sent in bench.send()))
    call(bench, offered=True)
    assert bench.chunks() == [2]
    bench.receive(named(2, 0b0011))
    ordinary(bench), ordinary(bench)
    (behind,) = bench.send()
    assert Header.from_bytes(behind).chunk == 3, "chunk 4 takes the slot of the quorum chunk"
    bench.receive(result(behind, workers=WORKERS))
    assert bench.chunks() == [4]


def test_an_array_offered_for_one_chunk_contributes_to_no_other() -> None:
    bench = BenchCore(WORKERS, 2, quorum=QUORUM)
    first, second = call(bench), call(bench)
    assert bench.send() == []
    bench.core.offer(first)
    assert bench.send() == []
    bench.core.offer(second)
    assert bench.chunks() == [1]
