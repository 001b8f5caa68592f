"""Masked lanes: the same results, packets that look random, and streams that are never used twice."""

import random
from typing import Any

import numpy as np
import pytest

from host_agent.collectives import (
    AllGatherRequest,
    AllReduceRequest,
    BarrierRequest,
    BroadcastRequest,
    ReduceScatterRequest,
)
from host_agent.collectives.exact import ExactRequest
from host_agent.collectives.quorum import Offer, RoundRequest
from host_agent.errors import MisuseError, SecretError, UnsupportedTypeError, VerificationError
from host_agent.verification.masking import lane_bits
from host_agent.verification.private import private_request
from host_agent.verification.secret import Session, read_secret
from host_agent.verification.trust import Trust
from host_agent.verification.verified import OnCorruption, VerifiedRequest
from host_agent.wire.constants import EXPONENT_BIAS
from tests.integration.simulated.star import star_switch
from tests.integration.simulated.tree import TreeNetwork, fabric
from tests.integration.test_terrible_network import terrible
from tests.verification.hostile import Datagrams, HostileStar, Tamper
from tests.verification.randomness import SECRET, WORST, chi_square, correlation, monobit

pytest.importorskip("cryptography")


def run(
    requests: list[Any],
    tamper: Tamper | None = None,
    *,
    private: bool = True,
    on_corruption: OnCorruption = "raise",
    lanes: int = 64,
    collectives: int = 1,
    scale: float = 0.0,
) -> list[list[Any]]:
    """Run a request of each worker, several times; returns the results by worker."""
    star = HostileStar(star_switch(lanes), len(requests), 8)
    plans = []
    for request in requests:
        session = Session(read_secret(SECRET))
        made = private_request(request, len(requests)) if private else request
        plans.append([VerifiedRequest(made, session, on_corruption, private, scale)] * collectives)
    outcomes = star.run(plans, tamper)
    for each in outcomes:
        for outcome in each:
            if outcome.error is not None:
                raise outcome.error
    return [[outcome.result for outcome in each] for each in outcomes]


def arrays(workers: int, size: int, dtype: str = "float32", seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    if dtype.startswith("int"):
        return [rng.integers(-(2**26), 2**26, size).astype(dtype) for _ in range(workers)]
    return [rng.normal(size=size).astype(dtype) for _ in range(workers)]


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 32])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_sums_of_floats_are_within_the_bound_of_the_bits_that_masks_leave(dtype: str, workers: int) -> None:
    parts = arrays(workers, 500, dtype)
    # The largest magnitudes of a type at all workers: their sum must not become a negative number.
    for part in parts:
        part[:64] = np.nextafter(np.asarray(2, part.dtype), np.asarray(0, part.dtype))
        part[64:128] = -part[:64]
    results = run([AllReduceRequest(part) for part in parts])
    exact = np.sum([part.astype(np.float64) for part in parts], axis=0)
    headroom = (workers - 1).bit_length()
    largest = max(np.abs(part.astype(np.float64)).max() for part in parts)
    unit = 2.0 ** (np.frexp(largest)[1] + 2 * headroom - 30)
    rounding = np.abs(exact) * np.finfo(dtype).eps
    for (result,) in results:
        assert (np.abs(result.astype(np.float64) - exact) <= workers * unit + rounding).all()
        assert result.tobytes() == results[0][0].tobytes()


@pytest.mark.parametrize("workers", [1, 3, 5])
def test_exact_sums_and_whole_results_have_the_same_bits_with_and_without(workers: int) -> None:
    floats, ints = arrays(workers, 700), arrays(workers, 300, "int32")
    floats[0][5], floats[-1][300] = np.inf, np.nan
    rows = arrays(workers, workers * 40)
    makes: list[Any] = [
        lambda rank: ExactRequest(floats[rank]),
        lambda rank: ExactRequest([floats[rank]] * (1 + 3 * rank), "mean"),
        lambda rank: AllReduceRequest(ints[rank]),
        lambda rank: AllReduceRequest(ints[rank] * np.int32(32), on_overflow="saturate"),
        lambda rank: AllGatherRequest(floats[rank]),
        lambda rank: BroadcastRequest(floats[rank], workers - 1),
        lambda rank: BarrierRequest(),
    ]
    for make in makes:
        plain = run([make(rank) for rank in range(workers)], private=False)
        private = run([make(rank) for rank in range(workers)])
        for (left,), (right,) in zip(plain, private, strict=True):
            assert left is right is None or left.tobytes() == right.tobytes(), make(0)
    scattered = run([ReduceScatterRequest(each) for each in rows])
    for rank, (part,) in enumerate(scattered):
        total = sum(each.astype(np.float64) for each in rows)[rank * 40 : (rank + 1) * 40]
        np.testing.assert_allclose(part, total, atol=1e-5)


@pytest.mark.parametrize("seed", [0, 4])
def test_masks_cancel_in_lossy_trees_of_switches(seed: int) -> None:
    parts, ints = arrays(4, 64 * 9, seed=seed), arrays(4, 100, "int32", seed)
    network = TreeNetwork(fabric((2, 2), 64), terrible(random.Random(seed), 8), seed)
    sessions = [Session(read_secret(SECRET)) for _ in range(4)]

    def plans(rank: int) -> list[Any]:
        requests = (AllReduceRequest(parts[rank]), ExactRequest(parts[rank]), AllReduceRequest(ints[rank]))
        return [
            VerifiedRequest(private_request(each, 4), sessions[rank], "raise", True).plan for each in requests
        ]

    workers = network.add_workers(network.start_job(4).admissions, plans)
    network.run()
    for worker in workers:
        assert [outcome.error for outcome in worker.outcomes] == [None] * 3
        rounded, exact, whole = (np.asarray(outcome.result) for outcome in worker.outcomes)
        np.testing.assert_allclose(rounded, np.sum(parts, axis=0), atol=1e-5)
        assert (exact == np.sum(np.array(parts, np.float64), axis=0).astype(np.float32)).all()
        assert (whole == np.sum(ints, axis=0)).all()
    assert any(worker.core.counters()["retransmissions"] for worker in workers)


def test_masks_of_a_long_array_are_generated_in_parts() -> None:
    parts = arrays(3, 64 * 2000)
    results = run([AllReduceRequest(each) for each in parts])
    for (result,) in results:
        np.testing.assert_allclose(result, np.sum(parts, axis=0), atol=1e-5)


class Capture:
    """The lanes of packets with data, as the switch sees them, by worker and chunk; some packets are lost."""

    def __init__(self, loss: float = 0.0) -> None:
        self._rng = np.random.default_rng(1)
        self._loss = loss
        self.up: dict[tuple[int, int], list[bytes]] = {}
        self.down: dict[int, bytes] = {}
        self.header_only = 0

    def __call__(self, datagrams: Datagrams, way: str) -> None:
        chunks = datagrams.field("chunk")
        for row in datagrams.with_lanes:
            chunk = int(chunks[row])
            if way == "up":
                key = int(datagrams.workers[row]), chunk
                self.up.setdefault(key, []).append(datagrams.lanes[row].tobytes())
            else:
                self.down[chunk] = datagrams.lanes[row].tobytes()
        lost = self._rng.random(datagrams.lengths.size) < self._loss
        datagrams.lengths[lost] = 0

    def of(self, worker: int, chunks: slice) -> Any:
        """Return the lanes of a worker's first transmissions, as int32."""
        sent = [each[0] for (by, _), each in sorted(self.up.items()) if by == worker][chunks]
        return np.frombuffer(b"".join(sent), ">i4").astype(np.int64)


DATA = slice(1, 1001)
"""Without the exchange of keys and the check, whose digits have 16 bits."""


def test_masked_packets_look_uniform_and_independent_and_plain_ones_do_not() -> None:
    workers, size = 3, 64 * 1000
    parts = arrays(workers, size)
    bits = lane_bits(workers)
    seen = {}
    for private in (False, True):
        capture = Capture()
        run([AllReduceRequest(each, sparse="never") for each in parts], capture, private=private)
        lanes = [capture.of(worker, DATA)[:size] for worker in range(workers)]
        results = [capture.down[chunk] for chunk in sorted(capture.down)][DATA]
        lanes.append(np.frombuffer(b"".join(results), ">i4").astype(np.int64)[:size] & (1 << bits) - 1)
        scores = [max(chi_square(each, bits), monobit(each, bits)) for each in lanes]
        plain = np.rint(np.ldexp(parts[0][: lanes[0].size], 20))
        scores.append(max(correlation(lanes[0], plain), correlation(lanes[0][:-1], lanes[0][1:])))
        scores.append(max(correlation(lanes[0], lanes[1]), correlation(lanes[0], lanes[3])))
        seen[private] = scores
        if private:
            assert min(each.min() for each in lanes) >= 0
            assert max(each.max() for each in lanes) < 1 << bits
    assert max(seen[True]) < WORST, seen[True]
    assert all(score > WORST for score in seen[False][:5]), seen[False]


def test_the_same_array_gives_other_packets_and_a_retransmission_the_same() -> None:
    parts = arrays(3, 64 * 30)
    capture = Capture(loss=0.05)
    run([AllReduceRequest(each) for each in parts], capture, collectives=3)
    repeated = [each for each in capture.up.values() if len(each) > 1]
    assert len(repeated) > 3
    assert all(len(set(each)) == 1 for each in repeated)
    distinct = [each[0] for each in capture.up.values()]
    assert len(set(distinct)) == len(distinct)
    other = Capture()
    run([AllReduceRequest(each) for each in parts], other)
    assert not set(distinct) & {each[0] for each in other.up.values()}


def test_every_private_contribution_of_a_block_carries_lanes() -> None:
    parts = [np.zeros(64 * 8, np.float32) for _ in range(3)]
    parts[1][:] = 1.0  # The others have nothing but zeros in the union's blocks.
    capture = Capture()
    results = run([AllReduceRequest(each) for each in parts], capture)
    assert all((result == 1.0).all() for (result,) in results)
    assert len({chunk for _, chunk in capture.up}) * 3 == len(capture.up)


def test_a_corrupted_private_result_is_refused_or_repeated_under_other_masks() -> None:
    parts = arrays(3, 300)

    class Flip(Capture):
        done = False

        def __call__(self, datagrams: Datagrams, way: str) -> None:
            super().__call__(datagrams, way)
            if way == "down" and not self.done and len(self.down) > 3:
                self.done = True
                for row in datagrams.with_lanes:
                    datagrams.lanes[row, 7] ^= 1 << 9

    with pytest.raises(VerificationError):
        run([AllReduceRequest(each) for each in parts], Flip())
    capture = Flip()
    results = run([AllReduceRequest(each) for each in parts], capture, on_corruption="retry")
    for (result,) in results:
        np.testing.assert_allclose(result, np.sum(parts, axis=0), atol=1e-5)
    sent = [each[0] for each in capture.up.values()]
    assert len(set(sent)) == len(sent)


@pytest.mark.parametrize("workers", [1, 3])
def test_with_a_scale_no_exponent_shows(workers: int) -> None:
    scale, size = 6.0, 64 * 12
    exponents: set[int] = set()

    def note(datagrams: Datagrams, way: str) -> None:
        exponents.update(datagrams.field("exponent").tolist())

    magnitudes = np.ldexp(1.0, np.arange(12) - 9).repeat(64)
    parts = [magnitudes * each for each in arrays(workers, size)]
    for part in parts:
        part[:128] = 0.0
        np.clip(part, -scale, scale, out=part)
    run([AllReduceRequest(part.astype(np.float32)) for part in parts], note)
    assert len(exponents) > 5, "the exponents of blocks show where there is no scale"
    exponents.clear()
    for dtype in ("float32", "float64"):
        results = run([AllReduceRequest(part.astype(dtype)) for part in parts], note, scale=scale)
        headroom = (workers - 1).bit_length()
        unit = 2.0 ** (np.frexp(scale)[1] + 2 * headroom - 30)
        for (result,) in results:
            assert np.abs(result - np.sum(parts, axis=0)).max() <= workers * unit + 1e-6
    shared = exponents - {0}  # Packets of the check and of keys have none.
    assert len(shared) == 1
    assert EXPONENT_BIAS + np.frexp(scale)[1] in shared
    exponents.clear()
    integers = [np.arange(size, dtype=np.int32) * (each + 1) for each in range(workers)]
    for (result,) in run([AllReduceRequest(each) for each in integers], note, scale=scale):
        assert np.array_equal(result, np.sum(integers, axis=0))
    assert len(exponents - {0}) == 1


@pytest.mark.parametrize("beyond", [9.0, np.inf, np.nan])
def test_an_element_beyond_the_scale_is_refused_by_all(beyond: float) -> None:
    parts = arrays(3, 300)
    parts[1][200] = beyond
    star = HostileStar(star_switch(64), 3, 8)
    session = [Session(read_secret(SECRET)) for _ in parts]
    plans = [
        [VerifiedRequest(private_request(AllReduceRequest(part), 3), each, "raise", True, 4.0)]
        for part, each in zip(parts, session, strict=True)
    ]
    errors = [outcomes[0].error for outcomes in star.run(plans)]
    assert all(isinstance(error, VerificationError) for error in errors), errors
    assert "; 1 blocks of this worker have elements that are larger than the scale" in str(errors[1])


@pytest.mark.parametrize("scale", [-1.0, np.nan, np.inf, "large"])
def test_a_scale_that_is_none_is_refused(scale: Any) -> None:
    with pytest.raises(MisuseError, match="^scale: expected a positive number, with private=True, got "):
        Trust(secret=SECRET, private=True, scale=scale)
    with pytest.raises(MisuseError, match="^scale: expected a positive number, with private=True, got 1.0"):
        Trust(secret=SECRET, scale=1.0)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (
            AllReduceRequest(np.ones(3, np.float32), "max"),
            "cannot mask op 'max': masks cancel in sums and means alone",
        ),
        (AllReduceRequest(np.ones(3, np.int32), "bor"), "cannot mask op 'bor'"),
        (
            AllReduceRequest(np.ones(3, np.float32), bits=8),
            "dense arrays of whole lanes: leave out bits and sparse",
        ),
        (AllReduceRequest(np.ones(3, np.float32), sparse="always"), "leave out bits and sparse"),
        (RoundRequest(Offer((3,), np.float32), "sum"), "cannot mask a Round: it takes reductions"),
    ],
)
def test_what_cannot_be_masked_is_refused_in_one_sentence(request_: Any, sentence: str) -> None:
    with pytest.raises(MisuseError, match=sentence):
        private_request(request_, 3)


def test_types_that_cannot_be_masked_are_refused() -> None:
    with pytest.raises(
        UnsupportedTypeError,
        match="takes sums of float16, float32, float64, and all-reduces of int32, not of int64",
    ):
        private_request(AllReduceRequest(np.ones(3, np.int64)), 3)
    with pytest.raises(MisuseError, match="sums of int32 over at most 128 workers"):
        private_request(AllReduceRequest(np.ones(3, np.int32)), 129)
    with pytest.raises(SecretError, match="private=True needs a secret that all workers share"):
        Trust(private=True).verifier()


def test_lanes_keep_their_width() -> None:
    assert [lane_bits(workers) for workers in (1, 2, 3, 32, 4096)] == [31, 30, 29, 26, 19]
