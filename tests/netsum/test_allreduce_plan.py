"""Arrays of `netsum allreduce`, and their expected results."""

from typing import Any

import numpy as np
import pytest

from netsum.allreduce.inputs import SHIFT, make_inputs, same_bits, tolerance
from netsum.allreduce.measurement import measure
from netsum.allreduce.plan import BLOCK, ITEM_BYTES, Plan, PlanError, PlannedExchange, parse_size, size_text

FIRST_OF_SEED_42 = [131749939, -252363665, 229417482]
SUMS_OF_SEED_42 = [-277630075, -151482364, 665631879]


class Exact:
    """An all-reduce over one rank and the known contributions of the others; counts barriers."""

    def __init__(self, plan: Plan, world_size: int) -> None:
        rounds = plan.repeats + plan.warmups
        self.results = iter(
            [
                make_inputs(exchange, 0, world_size, rounds, plan.seed + number).result(each).copy()
                for number, exchange in enumerate(plan.exchanges)
                for each in range(rounds)
            ]
        )
        self.barriers = 0

    def barrier(self) -> None:
        self.barriers += 1

    def allreduce(self, array: Any, exchange: PlannedExchange, out: Any) -> None:
        del array, exchange
        out[:] = next(self.results)

    def counts(self) -> dict[str, Any]:
        return {"retransmissions": 0}


@pytest.mark.parametrize("dtype", ITEM_BYTES)
@pytest.mark.parametrize("world_size", [1, 2, 3, 32])
@pytest.mark.parametrize("op", ["sum", "min", "max"])
def test_what_must_come_out_is_what_arithmetic_in_any_order_gives(
    dtype: str, world_size: int, op: str
) -> None:
    exchange = PlannedExchange(dtype, op, 1000)
    inputs = [make_inputs(exchange, rank, world_size, 3, 7) for rank in range(world_size)]
    reduce = {"sum": np.add, "min": np.minimum, "max": np.maximum}[op]
    for order in (inputs, inputs[::-1]):
        total = order[0].contributions.copy()
        for each in order[1:]:
            total = reduce(total, each.contributions)
        assert total.dtype == dtype
        assert all(same_bits(total, each.results) for each in inputs)


def test_every_round_has_other_numbers_of_the_same_stream() -> None:
    inputs = make_inputs(PlannedExchange("float32", "sum", 5), 1, 2, 3, 0)
    assert inputs.contributions.shape == (5 + 2 * SHIFT,)
    assert not same_bits(inputs.result(0), inputs.result(1))
    assert same_bits(inputs.contribution(1), inputs.contributions[SHIFT : SHIFT + 5])


def test_ranks_and_seeds_have_other_numbers() -> None:
    exchange = PlannedExchange("int32", "sum", 100)
    first, second = (make_inputs(exchange, rank, 2, 1, 0) for rank in range(2))
    other_seed = make_inputs(exchange, 0, 2, 1, 1)
    assert not same_bits(first.contributions, second.contributions)
    assert not same_bits(first.contributions, other_seed.contributions)
    assert same_bits(first.results, second.results)


def test_the_numbers_stay_the_same_from_version_to_version() -> None:
    inputs = make_inputs(PlannedExchange("int32", "sum", 3), 0, 4, 1, 42)
    assert (inputs.contributions.tolist(), inputs.results.tolist()) == (FIRST_OF_SEED_42, SUMS_OF_SEED_42)


def test_bits_are_compared_and_not_values() -> None:
    assert not same_bits(np.array([0.0]), np.array([-0.0]))
    assert same_bits(np.array([np.nan]), np.array([np.nan]))
    assert not same_bits(np.zeros(2, np.float32), np.zeros(2, np.int32))


def test_rounds_are_timed_checked_and_numbered() -> None:
    plan = Plan.of("40", "int32,float32", repeats=2, warmups=1)
    reducer = Exact(plan, 4)
    clock = iter(range(0, 10**9, 500))
    rounds = list(measure(reducer, plan, 0, 4, clock_ns=lambda: next(clock)))
    assert [(one.exchange.dtype, one.repeat) for one in rounds] == [
        (dtype, repeat) for dtype in ("int32", "float32") for repeat in (-1, 0, 1)
    ]
    assert all(one.correct and one.seconds == 500e-9 for one in rounds)
    assert reducer.barriers == 6
    assert rounds[1].to_message(3) == {
        "event": "round",
        "rank": 3,
        "dtype": "int32",
        "op": "sum",
        "elements": 10,
        "bytes": 40,
        "density": 1.0,
        "overlap": "random",
        "sparse": "auto",
        "bits": "full",
        "rounding": "nearest",
        "repeat": 0,
        "seconds": 5e-7,
        "processor_seconds": round(rounds[1].processor_seconds, 9),
        "elements_per_s": 2e7,
        "correct": True,
        "checksum": rounds[1].checksum,
        "retransmissions": 0,
    }


def test_a_wrong_bit_is_found() -> None:
    plan = Plan.of("4KiB", repeats=2, warmups=0)
    reducer = Exact(plan, 2)

    def spoil(array: Any, exchange: PlannedExchange, out: Any) -> None:
        Exact.allreduce(reducer, array, exchange, out)
        out.view(np.uint32)[-1] ^= 1

    reducer.allreduce = spoil  # type: ignore[method-assign]
    assert [one.correct for one in measure(reducer, plan, 0, 2)] == [False, False]


def test_a_result_that_is_not_written_is_not_right() -> None:
    plan = Plan.of("64", repeats=2, warmups=0)
    reducer = Exact(plan, 2)
    reducer.allreduce = lambda array, exchange, out: None  # type: ignore[method-assign]
    assert not any(one.correct for one in measure(reducer, plan, 0, 2))


def test_a_plan_goes_through_json() -> None:
    plan = Plan.of("4KiB, 1MiB", "float16,int64", "max", repeats=5, seed=3)
    assert Plan.from_json(plan.to_json()) == plan
    assert [each.elements for each in plan.exchanges] == [2048, 1 << 19, 512, 1 << 17]


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("4KiB", 4096), ("64 MiB", 64 << 20), ("2GiB", 2 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert parse_size(size_text(size)) == size


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("4kb",), "such as 64KiB, not '4kb'"),
        (("0",), "such as 64KiB, not '0'"),
        (("-4",), "such as 64KiB, not '-4'"),
        (("",), "at least one size"),
        (("5GiB",), "1 element to 4 GiB"),
        (
            ("4", "bfloat16"),
            "expected a data type of float32, float64, float16, int32, int64, not 'bfloat16'",
        ),
        (("4", "float32", "xor"), "expected an operation of sum, min, max, bor, not 'xor'"),
        (("4", "float32", "bor"), "bor takes int32 and int64, not float32"),
    ],
)
def test_a_wrong_plan_is_named(arguments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence):
        Plan.of(*arguments)


@pytest.mark.parametrize("overlap", ["full", "random", "none"])
def test_zeros_are_whole_blocks_at_the_share_and_with_the_overlap_that_was_asked_for(overlap: str) -> None:
    exchange = PlannedExchange("float32", "sum", 1000 * BLOCK, 0.1, overlap)
    inputs = [make_inputs(exchange, rank, 4, 1, 3) for rank in range(4)]
    present = np.array([each.contributions.reshape(-1, BLOCK).any(axis=1) for each in inputs])
    assert (present.sum(axis=1) == 100).all()
    union = int(present.any(axis=0).sum())
    assert union == {"full": 100, "random": union, "none": 400}[overlap]
    assert overlap != "random" or 300 < union < 400
    total = np.sum([each.contributions for each in inputs], axis=0)
    assert all(same_bits(total, each.results) for each in inputs)


def test_blocks_that_cannot_be_apart_are_refused() -> None:
    with pytest.raises(PlanError, match=r"4 ranks cannot have 30.0% of the blocks each without overlap"):
        make_inputs(PlannedExchange("float32", "sum", 1000 * BLOCK, 0.3, "none"), 0, 4, 1, 3)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"density": 1.5}, "expected a density from 0 to 1, not 1.5"),
        ({"overlap": "half"}, "overlap: expected one of full, random, none, not half"),
        ({"sparse": "yes"}, "sparse: expected one of auto, always, never, not yes"),
        ({"bits": 3}, "bits: expected one of full, 16, 8, 4, 2, not 3"),
        ({"dtype": "int32", "bits": 8}, "8 bits: expected a sum of float32 or float16, not sum of int32"),
    ],
)
def test_what_an_exchange_is_not(how: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        PlannedExchange(**{"dtype": "float32", "op": "sum", "elements": 10, **how})


def test_sums_of_few_bits_are_right_within_their_bound_only() -> None:
    plan = Plan.of("4KiB", bits=8, repeats=1, warmups=0)
    (exchange,) = plan.exchanges
    off = tolerance(exchange, 4)

    class Off(Exact):
        share = 0.0

        def allreduce(self, array: Any, exchange: PlannedExchange, out: Any) -> None:
            super().allreduce(array, exchange, out)
            out += np.float32(off * self.share)

    for share, right in ((0.9, True), (1.1, False)):
        reducer = Off(plan, 4)
        reducer.share = share
        assert [each.correct for each in measure(reducer, plan, 0, 4)] == [right]
