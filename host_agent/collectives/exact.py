"""Exact sums and means of floats: the correctly rounded result of all summands, whatever their order, workers or buckets.

In each pass a block sends the next bits below its largest exponent at any worker, as integers that the switch adds without
overflow. Blocks in which no worker has anything left drop out. The host adds the integer sums with their weights, and rounds
once (`host_agent.codecs.exact`; docs/protocol.md, "Exact sums").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from host_agent.arrays import flat_target
from host_agent.codecs.accumulator import MOST_SUMMANDS, TYPES, Accumulator
from host_agent.codecs.codec import NOTHING
from host_agent.codecs.exact import (
    BLOCK,
    IS_INFINITY,
    IS_MINUS_INFINITY,
    IS_NAN,
    IS_NOT_MINUS_ZERO,
    LEAST_QUANTUM,
    NO_DIGITS,
    PRECISIONS,
    block_exponents,
    flags_of,
    round_sums,
    special_blocks,
    take_digits,
)
from host_agent.codecs.raw import WORDS, WORDS_MAX
from host_agent.collectives.collective import Array, Collective, Op, Passes, check_choice
from host_agent.errors import ArrayError, MisuseError, UnsupportedTypeError, VerificationError
from host_agent.protocol.passes import Pass
from host_agent.statistics import Statistics
from host_agent.wire import Admission, describe_dtype, fingerprint
from host_agent.wire.constants import OP_BOR, OP_MAX, OP_SUM

SUM_BITS: Final = 31  # Bits of an int32 beside its sign.
ROUNDED_TOGETHER: Final = 512  # Blocks whose sums stay in a processor's cache while they are rounded.
Exact = Literal[False, True, "bfloat16"]


def headroom(parts: int) -> int:
    """Return h, the least with 2^h >= parts: a digit has 31 - h bits, so that no partial sum leaves int32."""
    return (parts - 1).bit_length()


def most_passes(dtype: str, parts: int, summands: int = 1, sum_bits: int = SUM_BITS) -> int:
    """Return how many passes over a block the sums of a type take at most, for digits of `sum_bits` - h bits.

    `dtype`: of the summands. `parts`: arrays of all workers in which digits are taken. `summands`: most summands that were
    added to one part.
    """
    least = PRECISIONS[dtype][1]
    greatest = {"float16": 16, "float64": 1024}.get(dtype, 128)
    greatest = min(greatest + (summands - 1).bit_length(), 1024)
    return -(-(greatest - least) // (sum_bits - headroom(parts)))


class ExactSum:
    """The passes of one exact sum; `result` is there when they are done.

    `parts`: what this worker's summands add up to, padded with zeros; see `Accumulator`. They are changed. `count`: summands
    of this worker; each part is one by default.
    """

    def __init__(
        self, parts: Sequence[npt.NDArray[np.float64]], count: int | None = None, reserve: int = 0
    ) -> None:
        self._bits = SUM_BITS - reserve
        self._parts = parts
        self._blocks = parts[0].size // BLOCK
        self._sums: list[npt.NDArray[np.int32]] = []
        self._taken: list[npt.NDArray[np.int64]] = []
        self._quanta: list[npt.NDArray[np.int64]] = []
        self._flagged = np.zeros(0, np.int64)
        self._flags = np.zeros(0, np.int32)
        # Summands of this worker; those of all workers, once they have been counted.
        self.count = len(parts) if count is None else count

    def passes(self, mark: "Marks") -> Passes:
        """Yield exponents and digits in turns; exponents of the next digits travel while digits do."""
        blocks = self._blocks
        non_finite, minus_zero = np.zeros(blocks, np.uint8), np.zeros(blocks, np.uint8)
        here = np.ones(blocks, np.uint8)
        for values in self._parts:
            minus_zero[:] = 0
            special_blocks(values, non_finite, minus_zero)
            here &= minus_zero
        # By bitwise or: where any worker has something that is not finite, and where any has no -0.0.
        special = _words(np.packbits(np.concatenate([non_finite, 1 - here])))
        counts = np.array([len(self._parts), self.count], np.int32)
        opening = [mark.bits(special), mark.sum(counts, decides=True)]
        yield from opening
        while not all(work.done for work in opening):
            yield None
        parts, count = counts.tolist()
        if parts < len(self._parts) or count < self.count:
            raise VerificationError(
                f"an exact sum has {count} summands of all workers, fewer than this worker's {self.count}: a RESULT was changed"
            )
        self.count = count
        if not 0 < count <= MOST_SUMMANDS:
            raise MisuseError(f"an exact sum takes 1 to {MOST_SUMMANDS} summands of all workers, not {count}")
        bits = np.unpackbits(special.view(np.uint8))[: 2 * blocks]
        self._flagged = np.flatnonzero(bits[:blocks] | (1 - bits[blocks:])).astype(np.int64)
        if self._flagged.size:
            self._flags = np.zeros(self._flagged.size * BLOCK, np.int32)
            for values in self._parts:
                flags_of(values, self._flagged, self._flags)
                values[~np.isfinite(values)] = 0.0
            yield mark.bits(self._flags)
        width = self._bits - headroom(parts)
        active = np.arange(blocks, dtype=np.int64)
        for _ in range(most_passes("float64", parts, self.count, self._bits) + 1):
            exponents = np.full(active.size, NO_DIGITS, np.int32)
            for values in self._parts:
                block_exponents(_blocks_of(values, active), exponents)
            work = mark.max(exponents)
            yield work
            while not work.done:
                yield None
            left = exponents != NO_DIGITS
            active, exponents = active[left], exponents[left]
            if not active.size:
                return
            quanta = np.maximum(exponents.astype(np.int64) - width, LEAST_QUANTUM)
            digits = np.zeros(active.size * BLOCK, np.int32)
            for values in self._parts:
                take_digits(values, active, quanta, digits)
            self._sums.append(digits)
            self._taken.append(active)
            self._quanta.append(quanta)
            yield mark.sum(digits)
        raise VerificationError(
            "an exact sum does not end: the maxima of exponents that came are none that workers sent"
        )

    def result(self, dtype: str, mean: bool) -> npt.NDArray[np.float64]:
        """Return the results of all blocks, rounded to a type; once."""
        out = self._parts[0]  # Nothing is left in it; memory of its own costs more time than rounding.
        out[:] = 0.0
        precision, least = PRECISIONS[dtype]
        divisor = self.count if mean else 1
        for first in range(0, self._blocks if self._sums else 0, ROUNDED_TOGETHER):
            last = min(first + ROUNDED_TOGETHER, self._blocks)
            sums, taken, quanta = self._of_blocks(first, last)
            order = np.argsort(taken, kind="stable")
            starts = np.searchsorted(taken[order], np.arange(first, last + 1)).astype(np.int64)
            rounded = out[first * BLOCK : last * BLOCK]
            round_sums(
                sums, starts, order.astype(np.int64), quanta[order], divisor, precision, least, rounded
            )
        if self._flagged.size:
            where = (self._flagged[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1)
            up, down = self._flags & IS_INFINITY != 0, self._flags & IS_MINUS_INFINITY != 0
            out[where[up]] = np.inf
            out[where[down]] = -np.inf
            out[where[(self._flags & IS_NAN != 0) | (up & down)]] = np.nan
            out[where[self._flags & IS_NOT_MINUS_ZERO == 0]] = -0.0
        return out

    def _of_blocks(self, first: int, last: int) -> list[Array]:
        """Return the sums of some blocks in all passes, the numbers of their blocks, and the exponents of their quanta."""
        found = []
        for sums, taken, quanta in zip(self._sums, self._taken, self._quanta, strict=True):
            begin, end = np.searchsorted(taken, (first, last)).tolist()
            found.append((sums[begin * BLOCK : end * BLOCK], taken[begin:end], quanta[begin:end]))
        return [np.concatenate(each) for each in zip(*found, strict=True)]


class Marks:
    """Passes of one exact sum, each with a fingerprint of its own; arrays are reduced in place.

    `what`: the terms on which the workers must agree.
    """

    def __init__(self, **what: int | str) -> None:
        self._what = what
        self._number = 0

    def bits(self, words: npt.NDArray[np.int32]) -> Pass:
        """Return a pass that reduces words by bitwise or."""
        return Pass(WORDS, OP_BOR, self._next(), words, words)

    def max(self, words: npt.NDArray[np.int32]) -> Pass:
        """Return a pass that takes the largest of int32."""
        return Pass(WORDS_MAX, OP_MAX, self._next(), words, words)

    def sum(self, words: npt.NDArray[np.int32], decides: bool = False) -> Pass:
        """Return a pass that adds int32 whose sums fit. `decides`: as for `Pass`."""
        return Pass(WORDS, OP_SUM, self._next(), words, words, decides=decides)

    def _next(self) -> int:
        self._number += 1
        return fingerprint(**self._what, phase=self._number)


@dataclass(frozen=True, eq=False)
class ExactRequest:
    """An exact sum or mean; the fields are the arguments of `Communicator.allreduce`.

    `arrays`: this worker's summands; an accumulator is emptied. `op`: a mean divides by the number of summands of all workers.
    `exact`: "bfloat16" rounds the result of float32 to that type.
    """

    arrays: npt.ArrayLike | list[npt.ArrayLike] | Accumulator
    op: Op = "sum"
    out: Array | None = None
    exact: Exact = True
    reserve: int = 0  # Bits of a lane beside those that sums of digits need.

    def plan(self, admission: Admission, sequence: int) -> Collective[Array]:
        """Plan the sum or mean; see `Request.plan`.

        Raises UnsupportedTypeError: other types than float16, float32 and float64, or another operation. Raises ArrayError if
        there is no summand, or they differ in shape or type.
        """
        op, exact = self.op, self.exact
        total = self.arrays if isinstance(self.arrays, Accumulator) else _accumulated(self.arrays, op)
        dtype = total.dtype
        check_choice("exact", exact, (True, "bfloat16"))
        if op not in ("sum", "mean"):
            raise _unsupported(dtype, op)
        if exact == "bfloat16" and dtype != np.float32:
            raise UnsupportedTypeError(
                f"exact='bfloat16' takes float32 arrays, which hold bfloat16, not {dtype}"
            )
        rounds_to = dtype.name if exact is True else "bfloat16"
        # All values are copied before the first pass, so that `out` may be any of the summands.
        shape = np.broadcast_to(np.zeros((), dtype), total.shape)
        what = f"exact allreduce number {sequence} ({op} of {shape.size} {dtype})"
        mark = Marks(
            kind="exact allreduce",
            op=op,
            dtype=rounds_to + describe_dtype(dtype),
            count=shape.size,
            sequence=sequence,
        )
        target, deliver = flat_target(shape, dtype, self.out, may_be_source=True)
        if shape.size == 0:
            nothing = Pass(NOTHING, OP_SUM, mark.sum(np.zeros(1, np.int32)).fingerprint)
            return Collective(what, 0, iter((nothing,)), lambda statistics: deliver())
        summed = ExactSum(*total.drain(), reserve=self.reserve)

        def finish(statistics: Statistics) -> Array:
            with np.errstate(over="ignore"):  # A result beyond the type is infinite, as of any addition.
                target[:] = summed.result(rounds_to, op == "mean")[: shape.size]
            return deliver()

        return Collective(what, shape.size, summed.passes(mark), finish)


def _accumulated(arrays: npt.ArrayLike | list[npt.ArrayLike], op: Op) -> Accumulator:
    """Return one array or the arrays of a list in an accumulator."""
    given = [np.asarray(each) for each in (arrays if isinstance(arrays, list) else [arrays])]
    if not given:
        raise ArrayError("exact=True takes an array, a list of at least one, or an Accumulator")
    if given[0].dtype.name not in TYPES:
        raise _unsupported(given[0].dtype, op)
    total = Accumulator(given[0].shape, given[0].dtype)
    for each in given:
        total.add(each)
    return total


def _unsupported(dtype: np.dtype[Any], op: Op) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"exact=True takes the sum and mean of {', '.join(TYPES)}, not {op!r} of {dtype}"
        + ("; sums of integers are exact without it" if dtype.kind in "iu" else "")
    )


def _words(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Return bytes as words, padded with zeros."""
    padded = np.zeros(-(-data.size // 4) * 4, np.uint8)
    padded[: data.size] = data
    return padded.view(np.int32)


def _blocks_of(values: npt.NDArray[np.float64], blocks: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return some blocks of an array one after the other; the array itself if it is all of them."""
    if blocks.size * BLOCK == values.size:
        return values
    return values.reshape(-1, BLOCK)[blocks].reshape(-1)
