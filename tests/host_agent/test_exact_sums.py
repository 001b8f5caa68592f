"""Exact sums in process: against fractions, over all passes, for any number of workers and summands."""

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_agent.codecs.accumulator import MOST_SUMMANDS, Accumulator
from host_agent.codecs.exact import BLOCK, PRECISIONS
from host_agent.collectives.exact import (
    ExactRequest,
    ExactSum,
    Marks,
    headroom,
    most_passes,
)
from host_agent.errors import ArrayError, MisuseError, UnsupportedTypeError, VerificationError
from host_agent.protocol.passes import Pass
from host_agent.wire import Admission
from host_agent.wire.constants import OP_BOR, OP_MAX, OP_SUM

Array = npt.NDArray[Any]
INFINITE_FROM = {
    "float16": 65520,
    "bfloat16": 2**128 - 2**119,
    "float32": 2**128 - 2**103,
    "float64": 2**1024 - 2**970,
}
TYPES = ("float16", "float32", "float64")


def rounded(value: Fraction, name: str) -> float:
    """Round to nearest, ties to even, in integers alone."""
    precision, least = PRECISIONS[name]
    size = abs(value)
    if size >= INFINITE_FROM[name]:
        return math.inf if value > 0 else -math.inf
    if not size:
        return 0.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    unit = Fraction(2) ** max(exponent - precision + 1, least)
    # Python rounds fractions half to even.
    near = float(round(size / unit) * unit)
    return near if value > 0 else -near


def reduce(passes: list[Pass]) -> None:
    """Apply the switch's operation to all packets at once."""
    given_ = np.stack([each.source for each in passes]).astype(np.int64)
    assert len({(each.op, each.fingerprint) for each in passes}) == 1
    match passes[0].op:
        case op if op == OP_SUM:
            for part in itertools.accumulate(given_):
                assert np.abs(part).max() < 2**31, "a partial sum leaves int32"
            result = given_.sum(0)
        case op if op == OP_MAX:
            result = given_.max(0)
        case op:
            assert op == OP_BOR
            result = np.bitwise_or.reduce(given_)
    for each in passes:
        each.target[:] = result.astype(np.int32)
        each.done = True


def exactly(
    workers: Sequence[Sequence[Array]],
    op: str = "sum",
    rounds_to: str = "",
    reduced: Callable[[list[Pass]], None] = reduce,
) -> tuple[Array, int]:
    """Return the result at all workers, and over how many passes of digits it took."""
    first = next(each for worker in workers for each in worker)
    size, name = first.size, rounds_to or first.dtype.name
    sums = []
    for summands in workers:
        total = Accumulator(first.shape, first.dtype)
        for each in summands:
            total.add(each)
        sums.append(ExactSum(*total.drain()))
    running = [each.passes(Marks(kind="test")) for each in sums]
    digits = 0
    while True:
        begun = [next(each, None) for each in running]
        if begun[0] is None:
            assert not any(begun)
            break
        reduced([each for each in begun if isinstance(each, Pass)])
        digits += begun[0].op == OP_SUM and begun[0].source.size > 2  # type: ignore[union-attr]
    with np.errstate(over="ignore"):
        results = [each.result(name, op == "mean")[:size].astype(first.dtype) for each in sums]
    assert len({each.tobytes() for each in results}) == 1
    return results[0], digits


def wanted(workers: Sequence[Sequence[Array]], op: str = "sum", rounds_to: str = "") -> Array:
    summands = [each for worker in workers for each in worker]
    name = rounds_to or summands[0].dtype.name
    divisor = len(summands) if op == "mean" else 1
    columns = zip(*(each.tolist() for each in summands), strict=True)
    values = [rounded(sum(map(Fraction, column), Fraction()) / divisor, name) for column in columns]
    return np.array(values).astype(summands[0].dtype)


def same(one: Array, other: Array) -> None:
    assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 33])
@pytest.mark.parametrize("kind", ["normal", "wide", "cancelling", "subnormal"])
def test_sums_and_means_are_correctly_rounded(name: str, op: str, workers: int, kind: str) -> None:
    rng = np.random.default_rng([workers, len(kind), TYPES.index(name)])
    low, high = {"float16": (-24, 13), "float32": (-149, 120), "float64": (-1074, 1015)}[name]
    size = 300

    def summand() -> Array:
        values: Array
        match kind:
            case "normal":
                values = rng.standard_normal(size)
            case "wide":
                values = np.ldexp(rng.standard_normal(size), rng.integers(low, high, size))
            case "cancelling":
                big = 2.0 ** (high - 3)
                values = rng.choice([big, -big, 1.0, 2.0 ** (low + 2), -(2.0**low)], size)
            case _:
                values = rng.integers(-5, 6, size) * 2.0**low
        return values.astype(name) + 0

    given_ = [[summand() for _ in range(rng.integers(1, 4))] for _ in range(workers)]
    result, passes = exactly(given_, op)
    same(result, wanted(given_, op))
    lengths = list(map(len, given_))
    assert passes <= most_passes(name, sum(lengths), max(lengths))


@settings(max_examples=50, deadline=None)
@given(st.data(), st.sampled_from(["float32", "float64"]), st.sampled_from(["sum", "mean"]))
def test_any_finite_floats(data: st.DataObject, name: str, op: str) -> None:
    floats = st.floats(width=32 if name == "float32" else 64, allow_nan=False, allow_infinity=False)
    rows = data.draw(st.lists(st.lists(floats, min_size=5, max_size=5), min_size=1, max_size=9))
    given_ = [[np.array(row, name) + 0] for row in rows]
    same(exactly(given_, op)[0], wanted(given_, op))


def test_all_pairs_of_an_eight_bit_type() -> None:
    """float8 (e5m2) is the upper half of float16."""
    everything = (np.arange(256, dtype=np.uint16) << 8).view(np.float16)
    finite = everything[np.isfinite(everything)] + np.float16(0)
    one, other = (each.reshape(-1) for each in np.meshgrid(finite, finite))
    with np.errstate(over="ignore"):
        # Any sum of two float16 is a float64; NumPy rounds it once.
        expected = (one.astype(np.float64) + other.astype(np.float64)).astype(np.float16)
    same(exactly([[one], [other]])[0], expected)


def test_all_float16_in_groups() -> None:
    everything = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = everything[np.isfinite(everything)] + np.float16(0)
    rng = np.random.default_rng(1)
    parts = [rng.permutation(finite) for _ in range(5)]
    with np.errstate(over="ignore"):
        expected = np.sum([part.astype(np.float64) for part in parts], axis=0).astype(np.float16)
    same(exactly([[part] for part in parts])[0], expected)


def test_random_results_against_integers_and_fsum() -> None:
    from tests.host_agent.exact_sums_at_length import SIZE, check  # The imported module imports this one.

    assert check(18 * SIZE, seed=2) == 0  # Each pair of type and distribution once.


@pytest.mark.parametrize("workers", [100, 1000, 4096])
def test_thousands_of_workers(workers: int) -> None:
    rng = np.random.default_rng(workers)
    table = (rng.standard_normal((workers, 64)) * 2.0 ** rng.integers(-30, 30, (workers, 64))).astype(
        np.float32
    )
    result, _ = exactly([[row] for row in table])
    expected = np.array([math.fsum(column) for column in table.astype(np.float64).T])
    # fsum rounds to float64; where that is no tie of float32, rounding again changes nothing.
    same(result, expected.astype(np.float32))


def test_who_adds_what_and_in_which_order_changes_no_bit() -> None:
    rng = np.random.default_rng(3)
    summands = [
        np.ldexp(rng.standard_normal(700), rng.integers(-60, 60, 700)).astype(np.float32) for _ in range(12)
    ]
    results = set()
    for groups in ([12], [1] * 12, [5, 7], [2, 9, 1], [4, 4, 4]):
        rng.shuffle(summands)
        iterator = iter(summands)
        result, _ = exactly([list(itertools.islice(iterator, count)) for count in groups])
        split = [exactly([[part[at : at + 100]] for part in summands])[0] for at in range(0, 700, 100)]
        results |= {result.tobytes(), np.concatenate(split).tobytes()}
    assert len(results) == 1


@pytest.mark.parametrize("name", TYPES)
def test_an_accumulator_keeps_what_float64_would_lose_and_stays_small(name: str) -> None:
    rng = np.random.default_rng(9)
    table = rng.standard_normal((300, 512)).astype(name)
    total = Accumulator((512,), name)
    for row in table:
        total.add(row)
    assert total.count == 300
    parts, count = total.drain()
    assert len(parts) <= {"float16": 1, "float32": 2, "float64": 2}[name]
    assert (count, total.count) == (300, 0)
    for at in range(512):
        assert sum((Fraction(part[at]) for part in parts), Fraction()) == sum(
            map(Fraction, table[:, at].tolist())
        )


def test_an_accumulator_of_numbers_whose_sums_leave_float64() -> None:
    largest = np.finfo(np.float64).max
    columns = [
        (largest, largest, -largest),
        (largest, -largest / 2, largest / 2),
        (largest, 2.0**969, 2.0**900),
    ]
    given_ = [[np.array(row) for row in zip(*columns, strict=True)]]
    same(exactly(given_)[0], wanted(given_))
    infinite = [[np.array([largest]), np.array([largest]), np.array([-np.inf])]]
    assert exactly(infinite)[0][0] == -np.inf


def test_bfloat16_is_rounded_once() -> None:
    # 1 + 2^-8 is a tie of bfloat16; a little more, which float32 loses, decides it.
    given_ = [
        [np.array([1.0], np.float32)],
        [np.array([2.0**-8], np.float32)],
        [np.array([2.0**-40], np.float32)],
    ]
    assert exactly(given_, rounds_to="bfloat16")[0][0] == 1 + 2.0**-7
    same(exactly(given_, rounds_to="bfloat16")[0], wanted(given_, rounds_to="bfloat16"))


@pytest.mark.parametrize(
    ("summands", "result"),
    [
        ((math.nan, 1.0), math.nan),
        ((math.inf, 1.0), math.inf),
        ((-math.inf, 3e38, 3e38), -math.inf),
        ((math.inf, -math.inf), math.nan),
        ((math.inf, math.nan), math.nan),
        ((3e38, 3e38), math.inf),
        ((3e38, 3e38, -3e38), 3e38),
        ((-0.0, -0.0), -0.0),
        ((-0.0, 0.0), 0.0),
        ((1.0, -1.0), 0.0),
        ((-1e-45, 1e-45), 0.0),
        ((1e-45, 1e-45), 3e-45),
    ],
)
def test_special_values(summands: tuple[float, ...], result: float) -> None:
    for place in (0, 255, 300):  # In a block with other numbers, and in one without.
        arrays = []
        for value in summands:
            arrays.append(np.zeros(301, np.float32))
            arrays[-1][:256] = 0.5
            arrays[-1][place] = value
        for given_ in ([[each] for each in arrays], [arrays], [arrays[:1], [], arrays[1:]]):
            total, _ = exactly(given_)
            same(total[place : place + 1], np.array([result], np.float32)) if result else None
            assert str(total[place]) == str(np.float32(result))
            assert total[1] == np.float32(0.5 * len(summands))


def test_digits_never_overflow_whatever_the_summands() -> None:
    for count in range(1, 70):
        assert count * (2 ** (31 - headroom(count)) - 1) < 2**31
    largest = np.full(256, np.nextafter(np.float32(2.0), np.float32(0)), np.float32)
    for count in (1, 2, 3, 4, 5, 31, 32, 33):
        exactly([[largest]] * count)  # `reduce` checks every partial sum.


@pytest.mark.parametrize(("name", "count"), [("float32", 4), ("float32", 32), ("float64", 8)])
def test_normal_numbers_take_two_passes_or_as_many_as_their_type_needs(name: str, count: int) -> None:
    rng = np.random.default_rng(5)
    given_ = [[rng.standard_normal(4096).astype(name)] for _ in range(count)]
    assert exactly(given_)[1] == {"float32": 2, "float64": 3}[name]


def plan(arrays: Any, op: Any = "sum", **how: Any) -> Any:
    return ExactRequest(arrays, op, **how).plan(Admission(1, 0, 1, 0, 1, 1, 64), 0)


def test_what_is_refused() -> None:
    with pytest.raises(
        UnsupportedTypeError, match="not 'sum' of int32; sums of integers are exact without it"
    ):
        plan(np.zeros(3, np.int32))
    with pytest.raises(UnsupportedTypeError, match="not 'max' of float32"):
        plan(np.zeros(3, np.float32), "max")
    with pytest.raises(UnsupportedTypeError, match="takes float32 arrays"):
        plan(np.zeros(3), exact="bfloat16")
    with pytest.raises(ArrayError, match="at least one"):
        plan([])
    with pytest.raises(ArrayError, match="expected float64 of shape \\(3,\\) like the other summands"):
        plan([np.zeros(3), np.zeros(4)])
    with pytest.raises(UnsupportedTypeError, match="take float16, float32, float64, not int64"):
        Accumulator((3,), np.int64)
    with pytest.raises(UnsupportedTypeError, match="not 'min' of float32"):
        plan(Accumulator((3,), "float32"), "min")
    with pytest.raises(MisuseError, match="exact must be"):
        plan(np.zeros(3), exact="float8")
    for count, error, reason in (
        (0, VerificationError, "0 summands of all workers, fewer than this worker's 1"),
        (
            MOST_SUMMANDS + 1,
            MisuseError,
            f"takes 1 to {MOST_SUMMANDS} summands of all workers, not {MOST_SUMMANDS + 1}",
        ),
    ):
        passes = ExactSum([np.zeros(BLOCK)]).passes(Marks(kind="test"))
        for each in (next(passes), next(passes)):
            assert isinstance(each, Pass)
            each.done = True
            if each.op == OP_SUM:
                each.target[:] = count
        with pytest.raises(error, match=reason):
            next(passes)
    full = Accumulator((1,), "float16")
    for _ in range(MOST_SUMMANDS):
        full.add(np.zeros(1, np.float16))
    with pytest.raises(MisuseError, match=f"at most {MOST_SUMMANDS} summands"):
        full.add(np.zeros(1, np.float16))
