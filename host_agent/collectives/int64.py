"""Reductions of int64, whose elements are wider than a lane.

Sums: each element in three digits (`host_agent.codecs.digits`). Extremes: the high words first, then the low words of
those who hold the winning high word. Bitwise or: each element as two words.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from host_agent.arrays import flat_source, flat_target
from host_agent.codecs.codec import NOTHING
from host_agent.codecs.digits import digit_bits, from_digits, to_digits
from host_agent.codecs.halves import INT32
from host_agent.codecs.raw import WORDS, WORDS_MAX
from host_agent.collectives.collective import OPS, Array, Collective, OnOverflow, Op, Passes, check_choice
from host_agent.collectives.sparse import BlockSparse, Sparse, is_sparse
from host_agent.errors import MisuseError, SumOverflowError, UnsupportedTypeError
from host_agent.protocol.passes import Pass
from host_agent.statistics import Statistics
from host_agent.wire import Admission, describe_dtype, fingerprint
from host_agent.wire.constants import OP_BOR, OP_MAX, OP_SUM

_OPS: Final = tuple(op for op in OPS if op != "mean")


@dataclass(frozen=True, eq=False)
class AllReduceInt64Request:
    """An exact reduction of an int64 array over all workers; the fields are those of `AllReduceRequest`."""

    array: npt.ArrayLike
    op: Op = "sum"
    out: Array | None = None
    on_overflow: OnOverflow = "raise"
    sparse: Sparse = "auto"

    def plan(self, admission: Admission, sequence: int) -> Collective[Array]:
        """Plan the reduction; see `Request.plan`."""
        op, on_overflow, sparse = self.op, self.on_overflow, self.sparse
        values = np.asarray(self.array)
        dtype = values.dtype.newbyteorder("=")
        if dtype != np.int64 or op == "mean":
            raise UnsupportedTypeError(
                f"expected an int64 array and {', '.join(_OPS)}, got {values.dtype} and {op!r}"
            )
        if op not in _OPS:
            raise MisuseError(f"op must be one of {', '.join(_OPS)}, got {op!r}")
        check_choice("on_overflow", on_overflow, ("raise", "saturate"))
        source = flat_source(values, dtype)
        target, deliver = flat_target(values, dtype, self.out, may_be_source=True)
        what = f"allreduce number {sequence} ({op} of {values.size} int64)"

        kind = "allreduce"

        def mark(phase: int) -> int:
            return fingerprint(
                kind=kind,
                op=op,
                dtype=describe_dtype(dtype),
                count=values.size,
                on_overflow=on_overflow,
                sequence=sequence,
                phase=phase,
            )

        bits = digit_bits(admission.world_size)
        if values.size == 0:
            return Collective(what, 0, iter((Pass(NOTHING, OP_SUM, mark(0)),)), lambda statistics: deliver())
        if op == "bor":
            whole = Pass(WORDS, OP_BOR, 0, source.view(np.int32), target.view(np.int32))
        elif op == "sum":
            digits = to_digits(source, bits)
            whole = Pass(INT32, OP_SUM, 0, digits.reshape(-1), digits.reshape(-1))
        if op in ("bor", "sum"):
            left_out = is_sparse(sparse, whole, op, admission.lanes)
            kind = "sparse allreduce" if left_out else "allreduce"
            whole.fingerprint = mark(0)
            # Digits that follow dense ones are mostly zeros.
            blocks = BlockSparse(admission, whole, mark, skips=op == "bor") if left_out else None

            def join(statistics: Statistics) -> Array:
                if blocks is not None:
                    blocks.count(statistics)
                if op == "bor":
                    return deliver()
                statistics.overflowed = from_digits(digits, target, bits)
                if statistics.overflowed and on_overflow == "raise":
                    raise SumOverflowError(
                        f"{what}: {statistics.overflowed} sums do not fit int64. Convert to float, or pass "
                        "on_overflow='saturate'.",
                        statistics.overflowed,
                    )
                return deliver()

            return Collective(what, values.size, blocks.passes() if blocks else iter((whole,)), join)
        if sparse == "always":
            raise MisuseError(f"sparse='always': op {op!r} cannot leave out zeros, only sum and bor can")

        flip = -1 if op == "min" else 0
        high = (source >> 32).astype(np.int32)
        winning_high, low = np.empty_like(high), np.empty_like(high)

        def high_then_low_words() -> Passes:
            first = Pass(WORDS_MAX, OP_MAX, mark(0), high, winning_high, flip=flip)
            yield first
            while not first.done:
                yield None
            # The order of unsigned low words, as signed ones; an element without the winning high word cannot win.
            low[:] = (source & 0xFFFFFFFF) - (1 << 31)
            low[high != winning_high] = np.iinfo(np.int32).max if op == "min" else np.iinfo(np.int32).min
            yield Pass(WORDS_MAX, OP_MAX, mark(1), low, low, flip=flip)

        def pair(statistics: Statistics) -> Array:
            target[:] = (winning_high.astype(np.int64) << 32) + (low.astype(np.int64) + (1 << 31))
            return deliver()

        return Collective(what, values.size, high_then_low_words(), pair)
