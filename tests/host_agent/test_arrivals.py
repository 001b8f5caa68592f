"""Only the answer to a chunk in flight counts; everything else changes nothing and raises nothing."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_agent.codecs.block_float import FLOAT32
from host_agent.protocol.arrivals import OBJECTIONS
from host_agent.protocol.records import FAILURE_MISMATCH
from host_agent.wire import Header
from host_agent.wire.constants import (
    COMPLETER_UNKNOWN,
    EXPONENT_BIAS,
    EXPONENT_NON_FINITE,
    FLAG_CONGESTED,
    FLAG_MISMATCH,
    HEADER_BYTES,
    HEADER_FIELDS,
    KIND_CONTRIBUTE,
    KIND_PROBE,
    KIND_RESULT,
    KIND_STATUS,
)
from host_agent.wire.header import STATUS_DATAGRAM_BYTES
from tests.host_agent.bench_core import BenchCore, result, status

REFUSALS = ("duplicates", "stale", "foreign", "malformed")
MUTANTS = 120_000


def what_matters(bench: BenchCore) -> list[bytes]:
    """The core's state without its counters and its time of the last packet."""
    state, slots, passes = (records.copy() for records in bench.core.records)
    for name in (*REFUSALS, "packets_received", "bytes_received", "heard_ns", "unanswered"):
        state[name] = 0
    return [state.tobytes(), slots.tobytes(), passes.tobytes()]


def refusals(bench: BenchCore) -> dict[str, int]:
    counters = bench.core.counters()
    return {name: counters[name] for name in REFUSALS if counters[name]}


@pytest.fixture
def bench() -> BenchCore:
    """Chunks 0 and 1 are done, 2 to 5 in flight, 6 and 7 to come."""
    bench = BenchCore(workers=2, slots=4)
    bench.begin(64 * 8)
    sent = bench.send()
    bench.receive(*(result(datagram, workers=2) for datagram in sent[:2]))
    bench.sent = sent + bench.send()  # type: ignore[attr-defined]
    return bench


def sent_by(bench: BenchCore) -> list[bytes]:
    return bench.sent  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({"version": 1}, "malformed"),
        ({"kind": 0}, "malformed"),
        ({"kind": KIND_CONTRIBUTE}, "malformed"),
        ({"kind": KIND_PROBE}, "malformed"),
        ({"kind": KIND_STATUS}, "malformed"),  # too long for one
        ({"kind": 9}, "malformed"),
        ({"op": 0}, "malformed"),
        ({"op": 4}, "malformed"),
        ({"flags": 0}, "malformed"),
        ({"flags": 3}, "malformed"),
        ({"flags": 5}, "malformed"),
        ({"flags": 17}, "malformed"),
        ({"level": 1}, "malformed"),
        ({"quorum": 1}, "malformed"),
        ({"pool_index": 5}, "malformed"),
        ({"exponent": 1}, "malformed"),
        ({"op": 1}, "foreign"),
        ({"job_id": 2}, "foreign"),
        ({"token": 7}, "foreign"),
        ({"worker_id": 1}, "foreign"),
        ({"num_workers": 3}, "foreign"),
        ({"fingerprint": 1}, "foreign"),
        ({"chunk": 2 + 2**31}, "stale"),
        ({"chunk": 2 + 8}, "stale"),  # same slot and version, two uses later
    ],
)
def test_a_result_that_is_not_the_answer(bench: BenchCore, changes: dict[str, int], counted: str) -> None:
    before = what_matters(bench)
    bench.receive(result(sent_by(bench)[2], workers=2, **changes))
    assert refusals(bench) == {counted: 1}
    assert what_matters(bench) == before


@pytest.mark.parametrize("length", [0, 1, 23, 24, 25, 32, 279, 281, 284, 1048, 9000])
def test_a_result_of_another_length(bench: BenchCore, length: int) -> None:
    before = what_matters(bench)
    bench.receive((result(sent_by(bench)[2], workers=2) + bytes(9000))[:length])
    assert refusals(bench) == {"malformed": 1}
    assert what_matters(bench) == before


def test_results_that_come_again_or_too_late(bench: BenchCore) -> None:
    before = what_matters(bench)
    bench.receive(*(result(datagram, workers=2) for datagram in sent_by(bench)[:2]))
    assert refusals(bench) == {"stale": 2}, "their slots have moved on"
    bench.receive(result(sent_by(bench)[2], workers=2))
    bench.receive(result(sent_by(bench)[2], workers=2))
    assert refusals(bench) == {"stale": 2, "duplicates": 1}
    assert what_matters(bench) != before


def test_exponents_that_cannot_be() -> None:
    bench = BenchCore(workers=2)
    bench.begin(100, FLOAT32)
    first, _ = bench.send()
    own = Header.from_bytes(first).exponent
    before = what_matters(bench)
    for exponent in (0, own - 1, 128 + 1 + EXPONENT_BIAS, EXPONENT_NON_FINITE - 1):
        bench.receive(result(first, workers=2, exponent=exponent))
    assert refusals(bench) == {"malformed": 4}
    assert what_matters(bench) == before
    bench.receive(result(first, workers=2, exponent=128 + EXPONENT_BIAS))
    assert bench.core.counters()["chunks"] == 1


def test_a_result_without_lanes_where_lanes_were_sent(bench: BenchCore) -> None:
    before = what_matters(bench)
    bench.receive(result(sent_by(bench)[2], workers=2, flags=0)[:HEADER_BYTES])
    assert refusals(bench) == {"malformed": 1}
    assert what_matters(bench) == before


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({"token": 7}, "foreign"),
        ({"fingerprint": 7}, "foreign"),
        ({"flags": 1}, "malformed"),
        ({"seen": 0b100}, "malformed"),
        ({"chunk": 1, "pool_index": 2}, "stale"),
        ({"chunk": 1, "pool_index": 2, "flags": FLAG_MISMATCH}, "stale"),
        ({"chunk": 2**31 + 6, "pool_index": 4 + 1, "flags": FLAG_MISMATCH}, "stale"),
    ],
)
def test_a_status_that_is_not_for_a_chunk_in_flight(
    bench: BenchCore, changes: dict[str, int], counted: str
) -> None:
    before = what_matters(bench)
    bench.receive(status(sent_by(bench)[2], **{"seen": 1, "workers": 2} | changes))
    assert refusals(bench) == {counted: 1}
    assert what_matters(bench) == before


@pytest.mark.parametrize("ahead", [0, 3, 7])
def test_a_mismatch_about_a_chunk_yet_to_come_counts(ahead: int) -> None:
    bench = BenchCore(workers=2, slots=4, first_chunk=2**32 - 2)
    chunk = (2**32 - 2 + ahead) % 2**32
    bench.begin(64 * 20)
    (datagram, *_) = bench.send()
    index = chunk % 4 * 2 + chunk // 4 % 2
    bench.receive(status(datagram, 2, 2, chunk=chunk, pool_index=index, fingerprint=1, flags=FLAG_MISMATCH))
    assert bench.state["failure"] == FAILURE_MISMATCH
    objections = [Header.from_bytes(sent) for sent in bench.send()]
    assert len(objections) == (OBJECTIONS if ahead < 4 else 0), (
        "to a chunk in flight, so that others receive it again"
    )
    assert {(sent.kind, sent.flags, sent.chunk) for sent in objections} <= {(KIND_CONTRIBUTE, 0, chunk)}


def test_after_a_failure_nothing_is_written_any_more() -> None:
    bench = BenchCore(workers=2, slots=4)
    work = bench.begin(64 * 4)
    sent = bench.send()
    bench.receive(status(sent[0], 2, 2, flags=FLAG_MISMATCH))
    bench.receive(*(result(datagram, workers=2) for datagram in sent))
    assert (work.target == -7).all()
    assert refusals(bench) == {"stale": 4}


def test_results_that_waited_for_nobody_and_those_of_marked_contributions_are_counted() -> None:
    bench = BenchCore(workers=2, slots=8)
    bench.begin(64 * 4)
    sent = bench.send()
    assert [Header.from_bytes(datagram).completer for datagram in sent] == [bench.core.admission.rank] * 4
    for datagram, completer, flags in zip(
        sent, (0, 1, COMPLETER_UNKNOWN, 0), (1, 1 | FLAG_CONGESTED, 1, 1 | FLAG_CONGESTED), strict=True
    ):
        bench.receive(result(datagram, workers=2, completer=completer, flags=flags))
    counters = bench.core.counters()
    assert (counters["chunks"], counters["completed"], counters["congested"]) == (4, 2, 2)


def mutant(chance: random.Random, originals: list[bytes]) -> bytes:
    """Random bytes, or a real answer with something wrong."""
    choice = chance.random()
    if choice < 0.2:
        return chance.randbytes(chance.choice([0, 3, 23, 24, 32, 280, 283, 284, chance.randrange(400)]))
    datagram = bytearray(chance.choice(originals))
    if choice < 0.3:
        return bytes(datagram[: chance.randrange(len(datagram))])
    if choice < 0.4:
        return bytes(datagram) + chance.randbytes(chance.randrange(1, 20))
    if choice < 0.7:
        for _ in range(chance.choice([1, 1, 2, 8])):
            datagram[chance.randrange(HEADER_BYTES)] ^= 1 << chance.randrange(8)
    else:
        fields: dict[str, Any] = {}
        for name, bits in chance.sample(HEADER_FIELDS, chance.choice([1, 1, 2])):
            fields[name] = chance.choice([0, 1, 2, 4, 2**bits - 1, chance.getrandbits(bits)])
        datagram[:HEADER_BYTES] = Header.from_bytes(bytes(datagram))._replace(**fields).to_bytes()
    return bytes(datagram)


def marks(datagram: bytes) -> tuple[int, bytes]:
    """Marks of an answer: its length and its header without the exponent, who completed the slot, and congestion.

    The exponent is not one of the marks: it is the sum, as lanes are. Those that cannot be have a test of their own.
    """
    if len(datagram) < HEADER_BYTES:
        return len(datagram), b""
    header = Header.from_bytes(datagram)
    flags = header.flags & ~FLAG_CONGESTED if header.kind == KIND_RESULT else header.flags
    return len(datagram), header._replace(exponent=0, completer=0, flags=flags).to_bytes()


def is_a_mismatch(datagram: bytes) -> bool:
    if len(datagram) != STATUS_DATAGRAM_BYTES:
        return False
    header = Header.from_bytes(datagram)
    return header.kind == KIND_STATUS and header.flags == FLAG_MISMATCH


def test_random_and_mutated_datagrams_change_nothing() -> None:
    chance = random.Random(1)
    bench = BenchCore(workers=2, slots=8)
    works = [bench.begin(64 * 3 + 5), bench.begin(300, FLOAT32)]
    sent = bench.send()
    bench.receive(*(result(datagram, workers=2) for datagram in sent[:2]))
    sent = sent[2:] + bench.send()
    originals = [result(datagram, workers=2) for datagram in sent]
    originals += [status(datagram, 1, 2) for datagram in sent]
    answers = set(map(marks, originals))
    mutants: list[bytes] = []
    while len(mutants) < MUTANTS:
        datagram = mutant(chance, originals)
        if marks(datagram) not in answers and not is_a_mismatch(datagram):
            mutants.append(datagram)
    targets = [work.target.tobytes() for work in works]
    before, counted = what_matters(bench), sum(refusals(bench).values())
    for first in range(0, MUTANTS, 8_000):
        bench.receive(*mutants[first : first + 8_000])
        assert what_matters(bench) == before
    assert sum(refusals(bench).values()) - counted == MUTANTS
    assert set(refusals(bench)) == set(REFUSALS)
    assert [work.target.tobytes() for work in works] == targets
    # And the collectives go on as if nothing had been.
    while bench.core.passes_under_way:
        bench.receive(*(result(datagram, workers=2) for datagram in sent))
        sent = bench.send()
    for work in works:
        np.testing.assert_array_equal(work.target, work.source)


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_random_bytes_change_nothing(datagrams: list[bytes]) -> None:
    bench = BenchCore(workers=2)
    bench.begin(64 * 8)
    bench.send()
    before = what_matters(bench)
    bench.receive(*datagrams)
    assert sum(refusals(bench).values()) == len(datagrams)
    assert what_matters(bench) == before


def test_a_kind_that_switches_send_is_the_only_one_that_counts(bench: BenchCore) -> None:
    (good,) = [datagram for datagram in sent_by(bench) if Header.from_bytes(datagram).chunk == 2]
    before = what_matters(bench)
    bench.receive(good)
    assert what_matters(bench) == before
    bench.receive(result(good, workers=2, kind=KIND_RESULT))
    assert what_matters(bench) != before
