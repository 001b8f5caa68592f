"""Reductions over all workers, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from host_agent.arrays import flat_source, flat_target
from host_agent.codecs.codec import NOTHING
from host_agent.codecs.exponent import INT32_BITS
from host_agent.codecs.halves import INT32, INT32_HIGH
from host_agent.codecs.table import CODEC_OF
from host_agent.collectives.collective import OP_CODES, Array, Collective, OnOverflow, Op, check_choice
from host_agent.collectives.int64 import plan_allreduce_int64
from host_agent.errors import MisuseError, SumOverflowError, UnsupportedTypeError
from host_agent.protocol.passes import Pass
from host_agent.statistics import Statistics
from host_agent.wire import Admission, fingerprint
from host_agent.wire.constants import EXPONENT_BIAS, OP_SUM

_KIND: Final = 1
_DTYPES: Final = ("float32", "float64", "float16", "int32")


def plan_allreduce(
    admission: Admission,
    sequence: int,
    array: npt.ArrayLike,
    op: Op,
    out: Array | None,
    on_overflow: OnOverflow,
) -> Collective:
    """Plan the reduction of `array` over all workers; the arguments are those of `Communicator.allreduce`."""
    values = np.asarray(array)
    dtype = values.dtype.newbyteorder("=")
    if dtype == np.int64:
        return plan_allreduce_int64(admission, sequence, values, op, out, on_overflow)
    _check(dtype, op)
    check_choice("on_overflow", on_overflow, ("raise", "saturate"))
    # The pass over the high halves of int32 sums reads the source again.
    target, deliver = flat_target(values, dtype, out, may_be_source=not (dtype == np.int32 and op == "sum"))
    source = flat_source(values, dtype)
    working = source
    if dtype == np.float16:
        # The wider copy is both source and target; the result is rounded to float16 once, on delivery.
        working = source.astype(np.float32)
        target, deliver = working, deliver.after_rounding(working)

    def mark(phase: int) -> int:
        return fingerprint(
            kind=_KIND,
            op=OP_CODES[op],
            dtype_kind=ord(dtype.kind),
            item_bytes=dtype.itemsize,
            count=values.size,
            sequence=sequence,
            phase=phase,
        )

    what = f"allreduce number {sequence} ({op} of {values.size} {dtype})"
    if values.size == 0:
        first = Pass(NOTHING, OP_SUM, mark(0))
    else:
        codec = CODEC_OF[working.dtype.name, op]
        divisor = admission.num_workers if op == "mean" else 1
        flip = -1 if op == "min" else 0
        first = Pass(codec, codec.switch_op, mark(0), working, target, flip=flip, divisor=divisor)

    def with_high_halves() -> Iterator[Pass | None]:
        yield first
        while not first.done:
            yield None
        # Read the limit as in codecs.exponent.may_overflow; every worker sees the same exponents.
        headroom = (admission.num_workers - 1).bit_length()
        blocks = np.flatnonzero(first.exponents > EXPONENT_BIAS + INT32_BITS - headroom)
        if blocks.size:
            yield Pass(INT32_HIGH, OP_SUM, mark(1), source, target, blocks=blocks.astype(np.int64))

    def finish(statistics: Statistics) -> Array:
        if statistics.overflowed and on_overflow == "raise":
            raise SumOverflowError(
                f"{what}: {statistics.overflowed} sums do not fit int32. Convert to float, or pass on_overflow='saturate'.",
                statistics.overflowed,
            )
        return deliver()

    passes = with_high_halves() if first.codec is INT32 else iter((first,))
    return Collective(what, values.size, passes, finish)


def _check(dtype: np.dtype[Any], op: str) -> None:
    if op not in OP_CODES:
        raise MisuseError(f"op must be one of {', '.join(OP_CODES)}, got {op!r}")
    if dtype.name not in _DTYPES:
        raise UnsupportedTypeError(
            f"allreduce takes {', '.join(_DTYPES)} and int64, not {dtype}: convert the array first, for instance with "
            ".astype(np.float32)"
        )
    if op == "bor" and dtype != np.int32:
        raise UnsupportedTypeError(f"op 'bor' takes int32 and int64, not {dtype}: view the array as int32")
    if op == "mean" and dtype == np.int32:
        raise UnsupportedTypeError(
            "op 'mean' takes floats, not int32: convert the array, or divide the sum yourself"
        )
