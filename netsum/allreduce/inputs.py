"""The numbers that are reduced, and what must come out bit for bit; any rank can compute both for all ranks.

They are whole numbers, few enough bits wide that no sum is rounded: neither by netsum's block floating point nor by IEEE
arithmetic in whatever order, so that other all-reduces can be checked with them too. They come out of the seed alone, by way
of a bit generator whose stream NumPy guarantees.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from host_agent.codecs.packed import packed_codec, scale_exponent
from netsum.allreduce.plan import BLOCK, PlanError, PlannedExchange

Array = npt.NDArray[Any]

SHIFT = BLOCK
"""How many elements the numbers move on from one repeat to the next, so that a sum of the last one is not right again."""
_BLOCK = 1 << 18
_BITS = {"float32": 24, "float64": 29, "float16": 11, "int32": 30, "int64": 62}
"""Largest width of the sum over all ranks, in bits; a float64's is as wide as netsum's lanes hold exactly."""


@dataclass(frozen=True)
class Inputs:
    """One rank's numbers for all repeats of an exchange."""

    contributions: Array  # Shape (elements + SHIFT x (rounds - 1),).
    results: Array  # The same shape: what must come out.
    elements: int  # Elements of one round.

    def contribution(self, repeat: int) -> Array:
        """Return the rank's array in a round; shape (elements,), a view."""
        return self._part(self.contributions, repeat)

    def result(self, repeat: int) -> Array:
        """Return what must come out in a round; shape (elements,), a view."""
        return self._part(self.results, repeat)

    def _part(self, array: Array, repeat: int) -> Array:
        return array[repeat * SHIFT : repeat * SHIFT + self.elements]


def make_inputs(exchange: PlannedExchange, rank: int, world_size: int, rounds: int, seed: int) -> Inputs:
    """Compute a rank's numbers, and the result over all ranks."""
    count = exchange.elements + SHIFT * (rounds - 1)
    contributions, results = np.empty(count, exchange.dtype), np.empty(count, exchange.dtype)
    streams = [np.random.SFC64([seed, each]) for each in range(world_size)]
    width = 64 if exchange.dtype == "int64" else 32
    wide = np.dtype(f"int{width}")
    shift = width - 1 - _own_bits(exchange, world_size)
    masks = None if exchange.density == 1 else _masks(exchange, world_size, count, seed)
    for start in range(0, count, _BLOCK):
        stop = min(start + _BLOCK, count)
        total = None
        for each, stream in enumerate(streams):
            raw: Array = np.asarray(stream.random_raw(-(-(stop - start) * width // 64))).view(wide)
            numbers = np.right_shift(raw[: stop - start], shift)
            if masks is not None:
                numbers = numbers * masks[each][start:stop]
            if each == rank:
                contributions[start:stop] = numbers
            total = numbers if total is None else _REDUCE[exchange.op](total, numbers)
        results[start:stop] = total
    return Inputs(contributions, results, exchange.elements)


def tolerance(exchange: PlannedExchange, world_size: int) -> float:
    """Return by how much an element of a sum with few bits may be off."""
    assert isinstance(exchange.bits, int)
    largest = np.array([2.0 ** _own_bits(exchange, world_size)], np.float32)
    exponent = int(scale_exponent(largest.view(np.uint32)))
    bound = float(packed_codec(exchange.bits, world_size).error_bound(exponent, world_size))
    rounding = world_size * float(largest[0]) * float(np.finfo(exchange.dtype).eps)
    return bound * (2 if exchange.rounding == "stochastic" else 1) + rounding


def _own_bits(exchange: PlannedExchange, world_size: int) -> int:
    """Return how many bits a rank's numbers have beside their sign."""
    return _BITS[exchange.dtype] - (world_size - 1).bit_length()


def _masks(exchange: PlannedExchange, world_size: int, count: int, seed: int) -> list[Array]:
    """Return for each rank which of `count` elements are not zero; bool."""
    blocks = -(-count // BLOCK)
    chosen = round(exchange.density * blocks)
    if exchange.overlap == "none" and chosen * world_size > blocks:
        raise PlanError(
            f"{world_size} ranks cannot have {exchange.density:.1%} of the blocks each without overlap"
        )
    masks = []
    for rank in range(world_size):
        stream = np.random.SFC64([seed, world_size + rank if exchange.overlap == "random" else world_size])
        order = np.argsort(np.asarray(stream.random_raw(blocks)), kind="stable")
        mask = np.zeros(blocks, bool)
        first = rank * chosen if exchange.overlap == "none" else 0
        mask[order[first : first + chosen]] = True
        masks.append(mask.repeat(BLOCK)[:count])
    return masks


_REDUCE: dict[str, Any] = {"sum": np.add, "min": np.minimum, "max": np.maximum, "bor": np.bitwise_or}


def same_bits(one: Array, other: Array) -> bool:
    """Whether two arrays of one type and shape are equal bit for bit, so that -0 is not 0 and NaN is NaN."""
    integer = f"u{one.dtype.itemsize}"
    return one.dtype == other.dtype and np.array_equal(one.view(integer), other.view(integer))
