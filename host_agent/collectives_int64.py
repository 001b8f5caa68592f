"""Reductions of int64, whose elements are wider than a lane.

Sums: each element is written in three balanced digits, x = d0 + d1 * 2^25 + d2 * 2^50 with |d0|, |d1| <= 2^24 and
|d2| <= 2^13, so that the sums of 32 workers' digits fit a lane, and elements near zero, of either sign, have higher
digits that are zero and cost no lanes. Extremes: the high words first, then the low words of those who hold the
winning high word. Bitwise or: each element as two words.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from host_agent.arrays import flat_source, flat_target
from host_agent.collectives import Collective, OnOverflow, Op, check_on_overflow
from host_agent.errors import MisuseError, SumOverflowError, UnsupportedTypeError
from host_agent.packetize.blocks import CODING_INT32, CODING_NOTHING, CODING_WORDS
from host_agent.protocol.passes import Pass
from host_agent.statistics import Statistics
from host_agent.wire import Admission, fingerprint
from host_agent.wire.constants import OP_BOR, OP_MAX, OP_SUM

Array = npt.NDArray[Any]
Int64s = npt.NDArray[np.int64]

_KIND: Final = 4
_OP_CODES: Final = {"sum": 1, "min": 3, "max": 4, "bor": 5}
_DIGIT_BITS: Final = 25
_DIGIT_MASK: Final = (1 << _DIGIT_BITS) - 1
_HALF: Final = 1 << (_DIGIT_BITS - 1)
_TOP_LIMIT: Final = 1 << (63 - 2 * _DIGIT_BITS)


def plan_allreduce_int64(
    admission: Admission,
    sequence: int,
    array: npt.ArrayLike,
    op: Op,
    out: Array | None = None,
    on_overflow: OnOverflow = "raise",
) -> Collective:
    """Plan the exact reduction of an int64 array over all workers.

    Parameters
    ----------
    admission : Admission
        This worker's.
    sequence : int
        How many collectives came before.
    array : int64 array
        Of any shape; the same shape on all workers.
    op : {"sum", "min", "max", "bor"}
        How elements are combined.
    out : array, optional
        Where the result goes; may be `array` itself.
    on_overflow : {"raise", "saturate"}
        What to do if a sum does not fit int64.

    Raises
    ------
    UnsupportedTypeError
        The array is not int64, or the operation is not defined for integers.
    MisuseError
        An argument is none of its choices.
    """
    values = np.asarray(array)
    dtype = values.dtype.newbyteorder("=")
    if dtype != np.int64 or op == "mean":
        raise UnsupportedTypeError(
            f"expected an int64 array and {', '.join(_OP_CODES)}, got {values.dtype} and {op!r}"
        )
    if op not in _OP_CODES:
        raise MisuseError(f"op must be one of {', '.join(_OP_CODES)}, got {op!r}")
    check_on_overflow(on_overflow)
    source = flat_source(values, dtype)
    target, deliver = flat_target(values, dtype, out, may_be_source=True)
    what = f"allreduce number {sequence} ({op} of {values.size} int64)"

    def mark(phase: int) -> int:
        return fingerprint(
            kind=_KIND,
            op=_OP_CODES[op],
            dtype_kind=ord("i"),
            item_bytes=8,
            count=values.size,
            sequence=sequence,
            phase=phase,
        )

    if values.size == 0:
        return Collective(what, 0, Pass(CODING_NOTHING, OP_SUM, mark(0)), lambda statistics: deliver())
    if op == "bor":
        words = Pass(CODING_WORDS, OP_BOR, mark(0), source.view(np.int32), target.view(np.int32))
        return Collective(what, values.size, words, lambda statistics: deliver())
    if op == "sum":
        digits = to_digits(source)

        def join(statistics: Statistics) -> Array:
            statistics.overflowed = from_digits(digits, target)
            if statistics.overflowed and on_overflow == "raise":
                raise SumOverflowError(
                    f"{what}: {statistics.overflowed} sums do not fit int64. Convert to float, or pass "
                    "on_overflow='saturate'.",
                    statistics.overflowed,
                )
            return deliver()

        flat = digits.reshape(-1)
        return Collective(what, values.size, Pass(CODING_INT32, OP_SUM, mark(0), flat, flat), join)

    flip = -1 if op == "min" else 0
    high = (source >> 32).astype(np.int32)
    winning_high, low = np.empty_like(high), np.empty_like(high)

    def low_words(done: Pass) -> Pass | None:
        if done.target is low:
            return None
        # The order of unsigned low words, as signed ones; whoever does not hold the high word cannot win.
        low[:] = (source & 0xFFFFFFFF) - (1 << 31)
        low[high != winning_high] = np.iinfo(np.int32).max if op == "min" else np.iinfo(np.int32).min
        return Pass(CODING_WORDS, OP_MAX, mark(1), low, low, flip=flip)

    def pair(statistics: Statistics) -> Array:
        target[:] = (winning_high.astype(np.int64) << 32) + (low.astype(np.int64) + (1 << 31))
        return deliver()

    first = Pass(CODING_WORDS, OP_MAX, mark(0), high, winning_high, flip=flip)
    return Collective(what, values.size, first, pair, low_words)


def to_digits(values: Int64s) -> npt.NDArray[np.int32]:
    """Return the balanced digits of int64 values (n,), lowest first: int32 (3, n)."""
    digits = np.empty((3, values.size), np.int32)
    rest = values
    for digit in digits[:2]:
        low = rest & _DIGIT_MASK
        rest = (rest >> _DIGIT_BITS) + (low >= _HALF)
        digit[:] = np.where(low >= _HALF, low - (1 << _DIGIT_BITS), low)
    digits[2] = rest
    return digits


def from_digits(digits: npt.NDArray[np.int32], out: Int64s) -> int:
    """Write the values of sums of digits, int32 (3, n), to `out` (n,).

    Returns
    -------
    int
        How many do not fit int64; they become the nearest value that does.
    """
    low = digits[0].astype(np.int64)
    middle = digits[1] + (low >> _DIGIT_BITS)
    high = digits[2] + (middle >> _DIGIT_BITS)
    out[:] = (high << 2 * _DIGIT_BITS) | ((middle & _DIGIT_MASK) << _DIGIT_BITS) | (low & _DIGIT_MASK)
    below, above = high < -_TOP_LIMIT, high >= _TOP_LIMIT
    limits = np.iinfo(np.int64)
    out[below], out[above] = limits.min, limits.max
    return int(np.count_nonzero(below) + np.count_nonzero(above))
