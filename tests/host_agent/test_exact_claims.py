"""The four claims of docs/protocol.md, "Exact sums", checked by machine: over all exponents and h, and by an SMT solver."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from host_agent.codecs.accumulator import MOST_SUMMANDS
from host_agent.codecs.exact import BLOCK, LEAST_QUANTUM, PRECISIONS, round_sums, take_digits
from host_agent.collectives.exact import SUM_BITS, headroom, most_passes
from tests.host_agent.test_exact_sums import exactly

WIDTHS = range(SUM_BITS - headroom(MOST_SUMMANDS), SUM_BITS + 1)
"""Bits of a digit, 31 - h, for any number of summands."""


def test_1_no_sum_of_digits_leaves_int32() -> None:
    for parts in range(1, MOST_SUMMANDS + 1):
        # A partial sum has at most all digits, each at most so large.
        assert parts * (2 ** (SUM_BITS - headroom(parts)) - 1) < 2**31


@pytest.mark.parametrize("width", WIDTHS)
def test_1_2_3_digits_are_small_and_the_rest_is_exact_and_below_the_quantum(width: int) -> None:
    """All exponents of float64, all h and several significands, by the routine that collectives call."""
    significands = [1.0, 2.0 - 2.0**-52, 1.0 + 2.0**-26, 4 / 3, -4 / 3, 2.0**-52 - 2.0]
    exponents = np.arange(LEAST_QUANTUM + 1, 1025)  # |x| < 2^E
    values = np.zeros((exponents.size, BLOCK))
    for k, exponent in enumerate(exponents.tolist()):
        largest = math.nextafter(math.ldexp(1.0, exponent), 0.0) if exponent < 1024 else math.inf
        for at, significand in enumerate(significands):
            values[k, at] = max(-largest, min(math.ldexp(significand, exponent - 1), largest))
    quanta = np.maximum(exponents - width, LEAST_QUANTUM)
    before = values.copy().reshape(-1)
    digits = np.zeros(values.size, np.int32)
    after = before.copy()
    take_digits(after, np.arange(exponents.size), quanta, digits)
    assert np.abs(digits.astype(np.int64)).max() == 2**width - 1
    for at in np.flatnonzero(before).tolist():
        quantum = int(quanta[at // BLOCK]) - LEAST_QUANTUM
        whole, rest = (as_integer(each) for each in (before[at], after[at]))
        assert (int(digits[at]) << quantum) + rest == whole
        assert abs(rest) < 1 << quantum


def as_integer(value: float) -> int:
    """Return a float64 as a multiple of 2^-1074."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * ((1 << -LEAST_QUANTUM) // denominator)


def test_3_the_worst_case_of_passes_is_reached() -> None:
    for name, workers in itertools.product(("float16", "float32", "float64"), (1, 2, 5, 33)):
        width = SUM_BITS - headroom(workers)
        least = PRECISIONS[name][1]
        greatest = {"float16": 16, "float32": 128, "float64": 1024}[name]
        powers = range(greatest - 1, least - 1, -width)
        summand = np.array([2.0**power for power in powers]).astype(name)
        nothing = np.zeros_like(summand)
        result, passes = exactly([[summand]] + [[nothing]] * (workers - 1))
        assert passes == most_passes(name, workers) == len(powers)
        assert result.tobytes() == summand.tobytes()


def oracle(value: Fraction, precision: int, least: int) -> Fraction:
    """Round to nearest, ties to even, to a multiple of 2^least of `precision` bits."""
    if not value:
        return value
    exponent = math.floor(math.log2(abs(value)))
    exponent += (Fraction(2) ** (exponent + 1) <= abs(value)) - (Fraction(2) ** exponent > abs(value))
    unit = Fraction(2) ** max(exponent - precision + 1, least)
    return round(value / unit) * unit


def rounded_by_host(
    rows: np.ndarray[Any, Any], quanta: list[int], divisor: int, precision: int, least: int
) -> Any:
    """Return what `round_sums` makes of terms, one row for each quantum, of any number of elements."""
    count = -(-rows.shape[1] // BLOCK)
    padded = np.zeros((len(quanta), count * BLOCK), np.int32)
    padded[:, : rows.shape[1]] = rows
    # Block by block, and in each the row of the larger quantum first.
    order = np.arange(len(quanta) * count).reshape(len(quanta), count).T.reshape(-1)
    starts = np.arange(count + 1) * len(quanta)
    out = np.zeros(count * BLOCK)
    round_sums(
        padded.reshape(-1), starts, order, np.tile(np.array(quanta), count), divisor, precision, least, out
    )
    return out[: rows.shape[1]]


@pytest.mark.parametrize("gap", [2, 5, 30, 31, 45])
@pytest.mark.parametrize("divisor", [1, 2, 3, 6, 7, 8])
def test_4_all_small_sums_are_rounded_once(gap: int, divisor: int) -> None:
    """To 8 bits, with subnormal results: every pair of two terms."""
    pairs = np.array(list(itertools.product(range(-160, 161), range(-9, 10))), np.int32).T
    low, least = -10, -6
    results = rounded_by_host(pairs, [low + gap, low], divisor, 8, least)
    for high_sum, low_sum, result in zip(*pairs.tolist(), results.tolist(), strict=True):
        exact = (Fraction(high_sum) * 2**gap + low_sum) * Fraction(2) ** low / divisor
        assert Fraction(result) == oracle(exact, 8, least), (high_sum, low_sum)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32", "float64"])
def test_4_two_terms_of_any_distance_are_rounded_once(name: str) -> None:
    """Ties, all but ties, and cancellation; `round_sums` and the conversion to the type, which NumPy's types need, together."""
    precision, least = PRECISIONS[name]
    low = {"bfloat16": -100, "float16": -24, "float32": -100, "float64": -300}[name]
    infinite = {"bfloat16": 128, "float16": 16, "float32": 128, "float64": 1024}[name]
    most = {"bfloat16": 190, "float16": 8, "float32": 190, "float64": 1000}[name]
    terms = [1, 2, 3, 2**10 + 1, 2**11 + 1, 2**24 + 1, 2**25 + 3, 2**30, 2**31 - 1]
    pairs = np.array(list(itertools.product([*terms, *(-each for each in terms)], repeat=2)), np.int64).T
    for gap in (*range(1, min(most, 70)), *range(70, most, 13)):
        fits = np.abs(pairs[0]) * 2.0**gap < 2.0**40 if name == "float16" else pairs[0] != 0
        chosen = pairs[:, fits]
        results = rounded_by_host(chosen.astype(np.int32), [low + gap, low], 1, precision, least)
        if name != "bfloat16":
            results = results.astype(name)
        for high_sum, low_sum, result in zip(*chosen.tolist(), results.tolist(), strict=True):
            exact = (Fraction(high_sum) * 2**gap + low_sum) * Fraction(2) ** low
            if abs(exact) < (1 - Fraction(2) ** -precision) * Fraction(2) ** infinite:
                assert Fraction(result) == oracle(exact, precision, least), (gap, high_sum, low_sum)


def test_by_a_solver_for_every_significand_width_and_number() -> None:
    """Claims 1 to 3 for every significand of 53 bits, claim 4 for all numbers of 24 bits."""
    z3 = pytest.importorskip("z3", reason="needs an SMT solver: pip install z3-solver")

    def proved(claim: Any) -> None:
        solver = z3.Solver()
        solver.add(z3.Not(claim))
        assert solver.check() == z3.unsat, solver.model()

    def number(name: str) -> Any:
        return z3.BitVec(name, 64)

    one = z3.BitVecVal(1, 64)
    # x = significand * 2^e and |x| < 2^E; length is E - e, and the digit has `width` bits.
    significand, length, width = number("significand"), number("length"), number("width")
    given = z3.And(
        z3.ULT(significand, one << 53), z3.ULE(length, 53), z3.ULT(significand, one << length),
        z3.UGE(width, WIDTHS[0]), z3.ULE(width, WIDTHS[-1]),
    )  # fmt: skip
    below = z3.If(z3.ULT(width, length), length - width, z3.BitVecVal(0, 64))
    digit = z3.LShR(significand, below)
    rest = significand - (digit << below)
    proved(z3.Implies(given, z3.ULT(digit, one << width)))
    proved(z3.Implies(given, z3.And(rest & ~significand == 0, z3.ULT(rest, one << below))))
    # With a quantum finer than the significand's last bit, the digit is the number itself.
    finer = z3.And(given, z3.ULE(length, width))
    proved(z3.Implies(finer, z3.And(rest == 0, z3.ULT(significand << (width - length), one << width))))
    parts, h = number("parts"), number("h")
    enough = z3.And(z3.UGE(parts, 1), z3.ULE(parts, one << h), z3.ULE(h, 16))
    proved(z3.Implies(enough, z3.ULT(parts * ((one << (31 - h)) - 1), one << 31)))

    # `_rounded`: the upper bits of a number, and whether there is anything below them.
    for unknown, shift in itertools.product((1, 5, 9), (1, 2, 7, 12)):
        whole = number("whole")
        upper = z3.LShR(whole, unknown)
        sticky = whole & ((one << unknown) - 1) != 0
        kept = z3.LShR(upper, shift)
        left = upper - (kept << shift)
        half = one << (shift - 1)
        up = z3.Or(z3.UGT(left, half), z3.And(left == half, z3.Or(sticky, kept & 1 == 1)))
        result = kept + z3.If(up, one, z3.BitVecVal(0, 64))
        unit = one << (unknown + shift)
        over, under = whole - (kept << (unknown + shift)), ((kept + 1) << (unknown + shift)) - whole
        nearest = z3.If(
            over == under, kept + (kept & 1), z3.If(z3.ULT(over, under), kept, kept + 1)
        )  # fmt: skip
        proved(z3.Implies(z3.ULT(whole, one << 24), z3.And(result == nearest, over + under == unit)))
