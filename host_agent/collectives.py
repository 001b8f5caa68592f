"""Which passes over the data make up a collective."""

from __future__ import annotations

import binascii
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from host_agent.arrays import flat_source, flat_target
from host_agent.errors import MisuseError, SumOverflowError, UnsupportedTypeError
from host_agent.packetize.blocks import (
    CODING_FLOAT32,
    CODING_FLOAT32_ORDER,
    CODING_FLOAT64,
    CODING_FLOAT64_ORDER,
    CODING_INT32,
    CODING_INT32_HIGH,
    CODING_NOTHING,
    CODING_WORDS,
)
from host_agent.protocol.passes import Pass
from host_agent.protocol.records import CONTRIBUTES_DATA, CONTRIBUTES_NOTHING, CONTRIBUTES_ZEROS
from host_agent.quantize.exponent import INT32_BITS
from host_agent.statistics import Statistics
from host_agent.wire import Admission, fingerprint
from host_agent.wire.constants import EXPONENT_BIAS, LANE_BYTES, OP_BOR, OP_MAX, OP_SUM

Op = Literal["sum", "mean", "min", "max", "bor"]
OnOverflow = Literal["raise", "saturate"]
Array = npt.NDArray[Any]

_KIND_ALLREDUCE: Final = 1
_KIND_BARRIER: Final = 2
_KIND_BROADCAST: Final = 3

_OP_CODES: Final = {"sum": 1, "mean": 2, "min": 3, "max": 4, "bor": 5}
_DTYPES: Final = ("float32", "float64", "float16", "int32")

_GROWTH_BYTES: Final = 512
"""What a packet can grow by inside every switch; BMv2's limit. A result longer than that needs a contribution with
lanes to travel in."""


@dataclass
class Collective:
    """One call on its way.

    Attributes
    ----------
    what : str
        For messages: "allreduce number 7 (sum of 100 float32)".
    first : Pass
        What to begin with.
    follow_up : callable, optional
        Given the first pass when it is done, returns a second one or None. While a collective has one, the next
        collective must wait: all workers number their chunks in the same order.
    finish : callable
        Returns the result when all passes are done, or raises.
    future : Future
        Where the result goes.
    """

    what: str
    elements: int
    first: Pass
    finish: Callable[[Statistics], Array | None]
    follow_up: Callable[[Pass], Pass | None] | None = None
    future: Future[Any] = field(default_factory=Future)

    def agree_on(self, label: str, sequence: int) -> None:
        """Make the workers' labels part of what they must agree on, and the collective's name."""
        self.first.fingerprint ^= binascii.crc_hqx(label.encode(), 0xFFFF)
        self.what = f"{label}, number {sequence}"


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
    _check(dtype, op)
    check_on_overflow(on_overflow)
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
            kind=_KIND_ALLREDUCE,
            op=_OP_CODES[op],
            dtype_kind=ord(dtype.kind),
            item_bytes=dtype.itemsize,
            count=values.size,
            sequence=sequence,
            phase=phase,
        )

    what = f"allreduce number {sequence} ({op} of {values.size} {dtype})"
    flip = -1 if op == "min" else 0
    if values.size == 0:
        first = Pass(CODING_NOTHING, OP_SUM, mark(0))
    elif op in ("sum", "mean"):
        coding = {np.dtype(np.float64): CODING_FLOAT64, np.dtype(np.int32): CODING_INT32}.get(
            dtype, CODING_FLOAT32
        )
        divisor = admission.num_workers if op == "mean" else 1
        first = Pass(coding, OP_SUM, mark(0), working, target, divisor=divisor)
    elif op == "bor" or dtype == np.int32:
        first = Pass(CODING_WORDS, OP_BOR if op == "bor" else OP_MAX, mark(0), working, target, flip=flip)
    else:
        coding = CODING_FLOAT64_ORDER if dtype == np.float64 else CODING_FLOAT32_ORDER
        first = Pass(coding, OP_MAX, mark(0), working, target, flip=flip)

    def high_halves(done: Pass) -> Pass | None:
        # Read the limit as in quantize.exponent.may_overflow; every worker sees the same exponents.
        headroom = (admission.num_workers - 1).bit_length()
        blocks = np.flatnonzero(done.exponents > EXPONENT_BIAS + INT32_BITS - headroom)
        if blocks.size == 0:
            return None
        return Pass(CODING_INT32_HIGH, OP_SUM, mark(1), source, target, blocks=blocks.astype(np.int64))

    def finish(statistics: Statistics) -> Array:
        if statistics.overflowed and on_overflow == "raise":
            raise SumOverflowError(
                f"{what}: {statistics.overflowed} sums do not fit int32. Convert to float, or pass on_overflow='saturate'.",
                statistics.overflowed,
            )
        return deliver()

    follow_up = high_halves if first.coding == CODING_INT32 else None
    return Collective(what, values.size, first, finish, follow_up)


def plan_barrier(admission: Admission, sequence: int) -> Collective:
    """Plan a collective that is done when all workers have begun it."""
    mark = fingerprint(kind=_KIND_BARRIER, op=0, dtype_kind=0, item_bytes=0, count=0, sequence=sequence)
    return Collective(
        f"barrier number {sequence}", 0, Pass(CODING_NOTHING, OP_SUM, mark), lambda statistics: None
    )


def plan_broadcast(
    admission: Admission, sequence: int, array: npt.ArrayLike, root: int, out: Array | None
) -> Collective:
    """Plan the distribution of the root's array; the arguments are those of `Communicator.broadcast`."""
    values = np.asarray(array)
    if values.dtype.hasobject:
        raise UnsupportedTypeError(
            "broadcast: Python objects cannot be sent, only arrays of plain numbers or bytes"
        )
    if not isinstance(root, int) or not 0 <= root < admission.num_workers:
        raise MisuseError(f"broadcast: root must be a worker id, 0…{admission.num_workers - 1}, got {root!r}")
    dtype = values.dtype.newbyteorder("=")
    mark = fingerprint(
        kind=_KIND_BROADCAST,
        op=0,
        dtype_kind=ord(dtype.kind),
        item_bytes=dtype.itemsize & 0xFF,
        count=values.nbytes,
        sequence=sequence,
        root=root,
    )
    target, deliver = flat_target(values, dtype, out, may_be_source=True)
    words = target.view(np.uint32) if values.nbytes % 4 == 0 else np.zeros(values.nbytes // 4 + 1, np.uint32)
    source = words
    if admission.worker_id == root:
        source = _padded_words(flat_source(values, dtype))
        contributes = CONTRIBUTES_DATA
    elif admission.lanes * LANE_BYTES > _GROWTH_BYTES:
        contributes = CONTRIBUTES_ZEROS
    else:
        contributes = CONTRIBUTES_NOTHING
    if values.nbytes == 0:
        first = Pass(CODING_NOTHING, OP_BOR, mark)
    else:
        first = Pass(CODING_WORDS, OP_BOR, mark, source, words, contributes=contributes)

    def finish(statistics: Statistics) -> Array:
        if not np.may_share_memory(target, words):
            target.view(np.uint8)[:] = words.view(np.uint8)[: values.nbytes]
        return deliver()

    what = f"broadcast number {sequence} ({values.size} {dtype} from worker {root})"
    return Collective(what, values.size, first, finish)


def _padded_words(flat: Array) -> npt.NDArray[np.uint32]:
    """Return the bytes of a flat array as 32-bit words, the last one filled up with zeros."""
    if flat.nbytes % 4 == 0:
        return flat.view(np.uint32)
    words = np.zeros(flat.nbytes // 4 + 1, np.uint32)
    words.view(np.uint8)[: flat.nbytes] = flat.view(np.uint8)
    return words


def check_on_overflow(choice: str) -> None:
    """Refuse what is no choice.

    Raises
    ------
    MisuseError
        If it is neither "raise" nor "saturate".
    """
    if choice not in ("raise", "saturate"):
        raise MisuseError(f"on_overflow must be 'raise' or 'saturate', got {choice!r}")


def _check(dtype: np.dtype[Any], op: str) -> None:
    if op not in _OP_CODES:
        raise MisuseError(f"op must be one of {', '.join(_OP_CODES)}, got {op!r}")
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
