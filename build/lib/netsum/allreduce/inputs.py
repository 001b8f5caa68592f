"""The numbers that are reduced, and what must come out bit for bit; any rank can compute both for all ranks.

They are whole numbers, few enough bits wide that no sum is rounded: neither by netsum's block floating point nor by IEEE
arithmetic in whatever order, so that other all-reduces can be checked with them too. They come out of the seed alone, by way
of a bit generator whose stream NumPy guarantees.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from netsum.allreduce.plan import Exchange

Array = npt.NDArray[Any]

SHIFT = 64
"""How many elements the numbers move on from one repeat to the next, so that a sum of the last one is not right again."""
_BLOCK = 1 << 18
_BITS = {"float32": 24, "float64": 29, "float16": 11, "int32": 30, "int64": 62}
"""What the sum over all ranks may be wide; a float64's is as wide as netsum's lanes hold exactly."""


@dataclass(frozen=True)
class Inputs:
    """One rank's numbers for all repeats of an exchange.

    Attributes
    ----------
    contributions
        Shape (elements + SHIFT x (rounds - 1),).
    results
        The same shape: what must come out.
    elements
        Of one round.
    """

    contributions: Array
    results: Array
    elements: int

    def contribution(self, repeat: int) -> Array:
        """Return the rank's array in a round; shape (elements,), a view."""
        return self._part(self.contributions, repeat)

    def result(self, repeat: int) -> Array:
        """Return what must come out in a round; shape (elements,), a view."""
        return self._part(self.results, repeat)

    def _part(self, array: Array, repeat: int) -> Array:
        return array[repeat * SHIFT : repeat * SHIFT + self.elements]


def make_inputs(exchange: Exchange, rank: int, world_size: int, rounds: int, seed: int) -> Inputs:
    """Compute a rank's numbers, and what they and the others' come to.

    Parameters
    ----------
    exchange
        What is reduced.
    rank, world_size
        Which of how many.
    rounds
        How often it is reduced.
    seed
        The same at all ranks.
    """
    count = exchange.elements + SHIFT * (rounds - 1)
    contributions, results = np.empty(count, exchange.dtype), np.empty(count, exchange.dtype)
    streams = [np.random.SFC64([seed, each]) for each in range(world_size)]
    width = 64 if exchange.dtype == "int64" else 32
    wide = np.dtype(f"int{width}")
    shift = width - 1 - (_BITS[exchange.dtype] - (world_size - 1).bit_length())
    for start in range(0, count, _BLOCK):
        stop = min(start + _BLOCK, count)
        total = None
        for each, stream in enumerate(streams):
            raw: Array = np.asarray(stream.random_raw(-(-(stop - start) * width // 64))).view(wide)
            numbers = np.right_shift(raw[: stop - start], shift)
            if each == rank:
                contributions[start:stop] = numbers
            total = numbers if total is None else _REDUCE[exchange.op](total, numbers)
        results[start:stop] = total
    return Inputs(contributions, results, exchange.elements)


_REDUCE: dict[str, Any] = {"sum": np.add, "min": np.minimum, "max": np.maximum, "bor": np.bitwise_or}


def same_bits(one: Array, other: Array) -> bool:
    """Whether two arrays of one type and shape are equal bit for bit, so that -0 is not 0 and NaN is NaN."""
    integer = f"u{one.dtype.itemsize}"
    return one.dtype == other.dtype and np.array_equal(one.view(integer), other.view(integer))
