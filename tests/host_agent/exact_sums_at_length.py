"""Exact sums of very many random elements against two other ways to compute them.

`python -m tests.host_agent.exact_sums_at_length` checks 10^9 results, in about ten minutes of processor time.

float16 and bfloat16, sums and means: integers, divided and rounded as integers. float32 and float64: `math.fsum`, which rounds
the exact sum to float64; where that is a tie of float32 and not the exact sum, fractions. A sample of every batch is compared
with fractions too, which checks these oracles as well.

In parts that can be stopped: one seed after the other, as in ``--elements 1e8 --seed 1``, ``--seed 2`` and so on.
"""

import argparse
import collections
import gc
import math
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.host_agent.test_exact_sums import INFINITE_FROM, exactly, rounded, wanted

Array = npt.NDArray[Any]
SIZE = 1 << 16
SAMPLE = 32
"""Share of a batch that fractions check, too."""
POINT = {"float16": 24, "bfloat16": 30}
"""Values are integers times 2^-POINT."""
FINER = {"float16": 0, "bfloat16": 16}
"""Bits below these that a quotient may have."""
BITS = {"float16": 11, "bfloat16": 8}


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    values: Array = rng.standard_normal(shape)
    return values


def student(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    values: Array = rng.standard_t(3, shape)
    return values


def log_normal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    values: Array = rng.lognormal(0.0, 2.0, shape) * rng.choice([-1.0, 1.0], shape)
    return values


def cancelling(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    values = np.ldexp(rng.standard_normal(shape), rng.integers(-14, 8, shape))
    half = shape[0] // 2
    values[half : 2 * half] = -values[:half] * rng.choice([1.0, 1.0 + 2.0**-7], shape[1])
    return values


def wide(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return np.ldexp(rng.standard_normal(shape), rng.integers(-70, 70, shape))


def tiny(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    values: Array = rng.integers(-9, 10, shape) * 2.0 ** rng.integers(-149, -120)
    return values


KINDS: dict[str, Sequence[Callable[..., Array]]] = {
    "float16": (normal, student, cancelling),
    "bfloat16": (normal, student, cancelling),
    "float32": (normal, student, log_normal, cancelling, wide, tiny),
    "float64": (normal, student, log_normal, cancelling, wide, tiny),
}


def as_bfloat16(values: Array) -> Array:
    """Drop the lower half of each float32, and bits below 2^-POINT."""
    cut: Array = (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    cut[np.abs(cut) < 2.0 ** (8 - POINT["bfloat16"])] = 0.0
    return cut


def by_integers(table: Array, name: str, divisor: int) -> Array:
    """Return sums of columns, divided, rounded half to even: integers alone until the last line."""
    total = np.ldexp(table.astype(np.float64), POINT[name]).astype(np.int64).sum(0) << FINER[name]
    size = np.abs(total)
    length = np.zeros(size.size, np.int64)
    quotient = size // divisor
    for step in (32, 16, 8, 4, 2, 1):
        more = quotient >= np.int64(1) << step
        length += more * step
        quotient = np.where(more, quotient >> step, quotient)
    length += quotient
    unit = np.maximum(length - BITS[name], 0)
    divisors = np.int64(divisor) << unit
    kept, rest = np.divmod(size, divisors)
    kept += (2 * rest > divisors) | ((2 * rest == divisors) & (kept & 1 == 1))
    values: Array = np.copysign(np.ldexp(kept.astype(np.float64), unit - POINT[name] - FINER[name]), total)
    return np.where(values >= INFINITE_FROM[name], np.inf, values)


def by_fsum(table: Array, name: str, divisor: int) -> Array:
    """Return sums of columns over a power of two, rounded once."""
    wide_table = table.astype(np.float64)
    # In parts that stay in the processor's caches.
    parts = (wide_table[:, at : at + 1024].T.tolist() for at in range(0, SIZE, 1024))
    sums = np.fromiter((math.fsum(column) for part in parts for column in part), np.float64, SIZE)
    if name == "float32":
        ties = np.flatnonzero(sums.view(np.int64) & 0x1FFF_FFFF == 0x1000_0000)
        for at in ties.tolist():
            column = wide_table[:, at].tolist()
            if math.fsum([*column, -sums[at]]):
                sums[at] = rounded(sum(map(Fraction, column), Fraction()), name)
    return sums / divisor


def one_batch(rng: np.random.Generator, name: str, kind: Callable[..., Array]) -> tuple[int, str]:
    """Return the number of wrong results, and the batch's description."""
    summands = int(rng.choice([2, 3, 4, 5, 8]))
    narrow = name in POINT
    mean = bool(rng.integers(2)) and (narrow or (summands & (summands - 1) == 0 and kind is not tiny))
    table = kind(rng, (summands, SIZE))
    table = (as_bfloat16(table) if name == "bfloat16" else table.astype(name)) + 0
    cuts = sorted(rng.integers(1, summands, rng.integers(1, 3)).tolist())
    given = [list(part) for part in np.split(table, cuts) if len(part)]
    result, _ = exactly(given, "mean" if mean else "sum", name if narrow else "")
    divisor = summands if mean else 1
    with np.errstate(over="ignore"):
        expected = (by_integers if narrow else by_fsum)(table, name, divisor).astype(result.dtype) + 0
    at = rng.integers(SIZE, size=SAMPLE)
    by_fractions = wanted([list(table[:, at])], "mean" if mean else "sum", name)
    unequal = int((result != expected).sum()) + int((expected[at] != by_fractions).sum())
    return unequal, f"{name}, {kind.__name__}, {summands} summands, {'mean' if mean else 'sum'}"


def check(elements: int, seed: int) -> int:
    """Check results until there are enough of them; print and return how many were wrong."""
    rng = np.random.default_rng(seed)
    begin = time.monotonic()
    checked: collections.Counter[str] = collections.Counter()
    wrong = batches = 0
    pairs = [(name, kind) for name, kinds in KINDS.items() for kind in kinds]
    while checked.total() < elements:
        name, kind = pairs[batches % len(pairs)]
        unequal, what = one_batch(rng, name, kind)
        if unequal:
            print(f"WRONG: {unequal} of {SIZE}: {what}, batch {batches} of seed {seed}", flush=True)
        wrong += unequal
        checked[name] += SIZE
        batches += 1
        if batches % 500 == 0:
            print(f"{checked.total():,} results, {wrong} wrong, {time.monotonic() - begin:.0f} s", flush=True)
    print(
        f"seed {seed}: {checked.total():,} results ({', '.join(f'{k} {v:,}' for k, v in checked.items())}), "
        f"{batches * SAMPLE:,} of them also by fractions, {wrong} wrong"
    )
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    gc.disable()  # Lists of floats have no cycles.
    raise SystemExit(check(int(options.elements), options.seed) > 0)
