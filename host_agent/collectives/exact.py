"""Exact sums and means of floats: the correctly rounded result of all summands, whatever their order, workers or buckets.

In each pass a block sends the next bits below its largest exponent at any worker, as integers that the switch adds without
overflow. Blocks in which no worker has anything left drop out. The host adds the integer sums with their weights, and rounds
once (`host_agent.codecs.exact`; docs/protocol.md, "Exact sums").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from host_agent.arrays import flat_target
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
from host_agent.errors import ArrayError, MisuseError, UnsupportedTypeError
from host_agent.protocol.passes import Pass
from host_agent.statistics import Statistics
from host_agent.wire import Admission, describe_dtype, fingerprint
from host_agent.wire.constants import OP_BOR, OP_MAX, OP_SUM

SUM_BITS: Final = 31
"""Of an int32 beside its sign."""
Exact = Literal[False, True, "bfloat16"]
_TYPES: Final = ("float16", "float32", "float64")
MOST_SUMMANDS: Final = 1 << 16
"""Of all workers together: a pass then carries 15 bits of each element."""


def headroom(summands: int) -> int:
    """Return h, the least with 2^h >= summands: a digit has 31 - h bits, so that no partial sum leaves int32."""
    return (summands - 1).bit_length()


def most_passes(dtype: str, summands: int) -> int:
    """Return how many passes over a block the sums of a type take at most, for digits of 31 - h bits."""
    least = PRECISIONS[dtype][1]
    greatest = {"float16": 16, "float64": 1024}.get(dtype, 128)
    return -(-(greatest - least) // (SUM_BITS - headroom(summands)))


class ExactSum:
    """The passes of one exact sum; `result` is there when they are done.

    Parameters
    ----------
    summands : sequence of float64 arrays (blocks * BLOCK,)
        This worker's, padded with zeros. They are changed.

    Attributes
    ----------
    count : int
        Summands of this worker; those of all workers, once they have been counted.
    """

    def __init__(self, summands: Sequence[npt.NDArray[np.float64]]) -> None:
        self._summands = summands
        self._blocks = summands[0].size // BLOCK
        self._sums: list[npt.NDArray[np.int32]] = []
        self._taken: list[npt.NDArray[np.int64]] = []
        self._quanta: list[npt.NDArray[np.int64]] = []
        self._flagged = np.zeros(0, np.int64)
        self._flags = np.zeros(0, np.int32)
        self.count = len(summands)

    def passes(self, mark: Marks) -> Passes:
        """Yield exponents and digits in turns; exponents of the next digits travel while digits do."""
        blocks = self._blocks
        non_finite, minus_zero = np.zeros(blocks, np.uint8), np.zeros(blocks, np.uint8)
        here = np.ones(blocks, np.uint8)
        for values in self._summands:
            minus_zero[:] = 0
            special_blocks(values, non_finite, minus_zero)
            here &= minus_zero
        # By bitwise or: where any worker has something that is not finite, and where any has no -0.0.
        special = _words(np.packbits(np.concatenate([non_finite, 1 - here])))
        count = np.array([self.count], np.int32)
        opening = [mark.bits(special), mark.sum(count)]
        yield from opening
        while not all(work.done for work in opening):
            yield None
        self.count = int(count[0])
        if self.count > MOST_SUMMANDS:
            raise MisuseError(
                f"an exact sum takes at most {MOST_SUMMANDS} summands of all workers, not {self.count}"
            )
        bits = np.unpackbits(special.view(np.uint8))[: 2 * blocks]
        self._flagged = np.flatnonzero(bits[:blocks] | (1 - bits[blocks:])).astype(np.int64)
        if self._flagged.size:
            self._flags = np.zeros(self._flagged.size * BLOCK, np.int32)
            for values in self._summands:
                flags_of(values, self._flagged, self._flags)
                values[~np.isfinite(values)] = 0.0
            yield mark.bits(self._flags)
        width = SUM_BITS - headroom(self.count)
        active = np.arange(blocks, dtype=np.int64)
        while True:
            exponents = np.full(active.size, NO_DIGITS, np.int32)
            for values in self._summands:
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
            for values in self._summands:
                take_digits(values, active, quanta, digits)
            self._sums.append(digits)
            self._taken.append(active)
            self._quanta.append(quanta)
            yield mark.sum(digits)

    def result(self, dtype: str, mean: bool) -> npt.NDArray[np.float64]:
        """Return the results of all blocks, rounded to a type."""
        out = np.zeros(self._blocks * BLOCK)
        if self._sums:
            taken, quanta = np.concatenate(self._taken), np.concatenate(self._quanta)
            order = np.argsort(taken, kind="stable")
            starts = np.searchsorted(taken[order], np.arange(self._blocks + 1)).astype(np.int64)
            precision, least = PRECISIONS[dtype]
            sums = np.concatenate(self._sums)
            divisor = self.count if mean else 1
            round_sums(sums, starts, order.astype(np.int64), quanta[order], divisor, precision, least, out)
        if self._flagged.size:
            where = (self._flagged[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1)
            up, down = self._flags & IS_INFINITY != 0, self._flags & IS_MINUS_INFINITY != 0
            out[where[up]] = np.inf
            out[where[down]] = -np.inf
            out[where[(self._flags & IS_NAN != 0) | (up & down)]] = np.nan
            out[where[self._flags & IS_NOT_MINUS_ZERO == 0]] = -0.0
        return out


class Marks:
    """Passes of one exact sum, each with a fingerprint of its own; what they reduce is reduced in place.

    Parameters
    ----------
    what : str
        What the workers must agree on.
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

    def sum(self, words: npt.NDArray[np.int32]) -> Pass:
        """Return a pass that adds int32 whose sums fit."""
        return Pass(WORDS, OP_SUM, self._next(), words, words)

    def _next(self) -> int:
        self._number += 1
        return fingerprint(**self._what, phase=self._number)


def plan_exact_allreduce(
    admission: Admission,
    sequence: int,
    arrays: npt.ArrayLike | list[npt.ArrayLike],
    op: Op,
    out: Array | None,
    exact: Exact = True,
) -> Collective:
    """Plan an exact sum or mean; the arguments are those of `Communicator.allreduce`.

    Parameters
    ----------
    admission : Admission
        This worker's.
    sequence : int
        How many collectives came before.
    arrays : array or list of arrays
        This worker's summands.
    op : {"sum", "mean"}
        A mean divides by the number of summands of all workers.
    out : array, optional
        Where the result goes.
    exact : {True, "bfloat16"}
        "bfloat16" rounds the result of float32 to that type.

    Raises
    ------
    UnsupportedTypeError
        Other types than float16, float32 and float64, or another operation.
    ArrayError
        There is no summand, or they differ in shape or type.
    """
    del admission
    given = [np.asarray(each) for each in (arrays if isinstance(arrays, list) else [arrays])]
    if not given:
        raise ArrayError("exact=True takes an array or a list of at least one")
    first = given[0]
    dtype = first.dtype.newbyteorder("=")
    check_choice("exact", exact, (True, "bfloat16"))
    if dtype.name not in _TYPES or op not in ("sum", "mean"):
        raise UnsupportedTypeError(
            f"exact=True takes the sum and mean of {', '.join(_TYPES)}, not {op!r} of {dtype}"
            + ("; sums of integers are exact without it" if dtype.kind in "iu" else "")
        )
    if exact == "bfloat16" and dtype != np.float32:
        raise UnsupportedTypeError(f"exact='bfloat16' takes float32 arrays, which hold bfloat16, not {dtype}")
    rounds_to = dtype.name if exact is True else "bfloat16"
    if any(each.shape != first.shape or each.dtype.newbyteorder("=") != dtype for each in given):
        raise ArrayError("the summands of exact=True must have one shape and type")
    what = f"exact allreduce number {sequence} ({op} of {first.size} {dtype})"
    mark = Marks(
        kind="exact allreduce",
        op=op,
        dtype=rounds_to + describe_dtype(dtype),
        count=first.size,
        sequence=sequence,
    )
    target, deliver = flat_target(first, dtype, out, may_be_source=True)
    if first.size == 0:
        nothing = Pass(NOTHING, OP_SUM, mark.sum(np.zeros(1, np.int32)).fingerprint)
        return Collective(what, 0, iter((nothing,)), lambda statistics: deliver())
    padded = []
    for each in given:
        values = np.zeros(-(-first.size // BLOCK) * BLOCK)
        values[: first.size] = each.reshape(-1)
        padded.append(values)
    summed = ExactSum(padded)

    def finish(statistics: Statistics) -> Array:
        with np.errstate(over="ignore"):  # A result beyond the type is infinite, as of any addition.
            target[:] = summed.result(rounds_to, op == "mean")[: first.size]
        return deliver()

    return Collective(what, first.size, summed.passes(mark), finish)


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
