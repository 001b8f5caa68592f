"""Jobs with a quorum: real worker cores and the real P4 program, in virtual time.

S1 for quorums: a round is the operation over exactly one array of each worker of its quorum, which is the same at every
worker and for every chunk; and a worker that computes for long does not delay the others.
"""

import os
import random
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from host_agent.collectives import Op
from tests.dataplane.tna_logic import translate
from tests.integration.simulated.rounds import RoundWorkers
from tests.integration.simulated.star import Cables, Star, star_switch

Array = npt.NDArray[Any]

ROUND_TRIP_NS = 40_000
STEP = 1 if "NETSUM_LONG_TESTS" in os.environ else 5
COMPUTE_NS = 2_000_000
TOFINO = translate.LANES
"""With this number of lanes the switch decides as Tofino's program does (tests/dataplane/tna_logic)."""


def integers(elements: int, dtype: str) -> Any:
    def part(worker: int, number: int) -> Array:
        chance = np.random.default_rng([worker, number, elements])
        limit = 1 << (26 if dtype == "int32" else 58)  # The sum of 32 fits.
        return chance.integers(-limit, limit, elements, dtype=dtype)

    return part


def total(parts: list[Array]) -> Array:
    return np.sum(parts, axis=0, dtype=parts[0].dtype)


def step_ns(workers: RoundWorkers) -> float:
    """Return how long a round takes at the first worker, without the first round."""
    ended = workers.workers[0].ended_ns
    return float(ended[-1] - ended[0]) / (len(ended) - 1)


def training(slower: float, quorum: int, rounds: int = 30, workers: int = 8, lanes: int = 64) -> RoundWorkers:
    """Train with a last worker that computes this many times as long."""
    star = Star(star_switch(lanes), Cables(delay_ns=5_000), seed=1)
    job = RoundWorkers(
        star,
        star_switch(lanes).admit(workers, 16, quorum=quorum),
        rounds,
        integers(5_000, "int32"),
        lambda worker, number: int(COMPUTE_NS * (slower if worker == workers - 1 else 1)),
    )
    star.run()
    return job


@pytest.mark.parametrize("lanes", [64, TOFINO])
def test_a_worker_ten_times_slower_does_not_make_a_step_longer(lanes: int) -> None:
    even = training(slower=1, quorum=7, lanes=lanes)
    straggling = training(slower=10, quorum=7, lanes=lanes)
    for job in (even, straggling):
        job.check(7, total)
    assert step_ns(straggling) == pytest.approx(step_ns(even), rel=0.1)
    assert all(7 not in result.ranks for result in straggling.results[0])
    assert straggling.late[7] >= 2


def test_without_backup_workers_it_makes_each_step_ten_times_longer() -> None:
    assert step_ns(training(slower=10, quorum=8, rounds=5)) > 9 * step_ns(
        training(slower=1, quorum=8, rounds=5)
    )


@pytest.mark.parametrize(
    ("workers", "schedules", "lanes"),
    [(1, 20, 64), (2, 150, 64), (4, 250, 64), (32, 10, 64), (2, 50, TOFINO), (4, 50, TOFINO)],
)
def test_every_schedule_ends_with_the_right_quorum_and_bits_everywhere(
    workers: int, schedules: int, lanes: int
) -> None:
    faulty, late = 0, 0
    for seed in range(0, schedules, STEP):
        chance = random.Random(seed)
        quorum = chance.randint(1, workers)
        worst = 0.3 if workers <= 4 else 0.05
        cables = Cables(
            drop=chance.choice([0.0, 0.01, 0.1, worst]),
            duplicate=chance.choice([0.0, 0.05, 0.3]),
            delay_ns=ROUND_TRIP_NS // 4,
            jitter_ns=chance.choice([0, ROUND_TRIP_NS // 10, 2 * ROUND_TRIP_NS]),
            straggle=chance.choice([0.0, 0.02, 0.1]),
            straggle_ns=chance.choice([10, 300]) * ROUND_TRIP_NS,
        )
        star = Star(star_switch(lanes), cables, seed)
        job = RoundWorkers(
            star,
            star_switch(lanes).admit(workers, chance.choice([2, 4, 8]), quorum=quorum),
            rounds=8,
            part=integers(chance.choice([0, 1, lanes, 11 * lanes - 4]), chance.choice(["int32", "int64"])),
            compute_ns=lambda worker, number, chance=chance: chance.randrange(20 * ROUND_TRIP_NS),  # type: ignore[misc]
            first_chunk=chance.choice([0, 1, 2**32 - 5]),
        )
        try:
            star.run()
            star.drain()
            job.check(quorum, total)
        except AssertionError as error:
            raise AssertionError(f"workers={workers} seed={seed}: {error}") from error
        faulty += any(host.core.counters()["retransmissions"] for host in star.workers)
        late += sum(job.late)
    assert workers == 1 or faulty > schedules / STEP / 3, "the network was not terrible"
    assert workers not in (2, 4) or late, "no worker was late"


@pytest.mark.parametrize("op", ["sum", "mean", "min", "max"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_floats(op: Op, dtype: str) -> None:
    """Exponents are those of the quorum alone, although all workers send chunks."""

    def part(worker: int, number: int) -> Array:
        chance = np.random.default_rng([worker, number])
        scale = 2.0 ** chance.integers(-6, 6)
        return (chance.standard_normal(900) * scale).astype(dtype)

    star = Star(star_switch(256), Cables(drop=0.02, jitter_ns=ROUND_TRIP_NS), seed=3)
    chance = random.Random(5)
    job = RoundWorkers(
        star,
        star_switch(256).admit(5, 4, quorum=3),
        6,
        part,
        lambda worker, number: chance.randrange(10 * ROUND_TRIP_NS),
        op,
    )
    star.run()
    for number, results in enumerate(zip(*job.results, strict=True)):
        ranks = results[0].ranks
        parts = [part(rank, number).astype(np.float64) for rank in ranks]
        exact = {
            "sum": lambda parts=parts: np.sum(parts, axis=0),
            "mean": lambda parts=parts: np.mean(parts, axis=0),
            "min": lambda parts=parts: np.min(parts, axis=0),
            "max": lambda parts=parts: np.max(parts, axis=0),
        }[op]()
        for result in results:
            assert result.ranks == ranks
            assert len(ranks) == 3
            assert result.value.tobytes() == results[0].value.tobytes()
            bound = (
                0.0
                if op in ("min", "max")
                else float(np.abs(parts).max()) * (2**-9 if dtype == "float16" else 2**-20)
            )
            np.testing.assert_allclose(result.value.astype(np.float64), exact, atol=bound, rtol=0)


def test_bitwise_or() -> None:
    star = Star(star_switch(64), Cables(), seed=4)
    job = RoundWorkers(
        star,
        star_switch(64).admit(3, 4, quorum=2),
        4,
        integers(100, "int32"),
        lambda worker, number: ROUND_TRIP_NS * (1 + (worker + number) % 3),
        "bor",
    )
    star.run()
    job.check(2, lambda parts: reduce(np.bitwise_or, parts))
    assert {result.ranks for result in job.results[0]} == {(0, 1), (0, 2), (1, 2)}


def test_a_quorum_that_does_not_come_names_who_is_missing() -> None:
    star = Star(star_switch(64), Cables(), seed=5)
    job = RoundWorkers(
        star,
        star_switch(64).admit(4, 4, quorum=3),
        1,
        integers(100, "int32"),
        lambda worker, number: ROUND_TRIP_NS if worker < 2 else 10**10,
        timeout_ns=10**9,
    )
    star.run(until=lambda: star.workers[0].done)
    (outcome,) = job.workers[0].outcomes
    assert outcome.error is not None
    assert "2 of 3 arrays" in str(outcome.error)
    assert "workers 2, 3" in str(outcome.error)


def test_rounds_and_ordinary_collectives_take_turns() -> None:
    """A quorum chunk's slot is used again only when all workers have been there (docs/protocol.md)."""
    for slots in (2, 4):
        star = Star(star_switch(64), Cables(drop=0.2, jitter_ns=ROUND_TRIP_NS), seed=slots)
        chance = random.Random(slots)
        job = RoundWorkers(
            star,
            star_switch(64).admit(3, slots, quorum=1),
            40,
            integers(1, "int32"),
            lambda worker, number, chance=chance: chance.randrange(2 * ROUND_TRIP_NS),  # type: ignore[misc]
            at_once=8,
        )
        star.run()
        job.check(1, total)
