"""Reductions of arrays of which each worker has some rows, such as the gradients of embeddings.

The workers' bitmaps of rows are united by bitwise or. Each then lays its rows out in an array of the union's rows, which
is reduced like any other: rows that no worker has do not travel, and a worker contributes blocks of rows that it lacks
without data (`sparse`).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from host_agent.collectives.allreduce import AllReduceRequest
from host_agent.collectives.collective import Array, Collective, OnOverflow, Op, Passes
from host_agent.collectives.sparse import Sparse
from host_agent.errors import ArrayError, MisuseError, VerificationError
from host_agent.protocol.passes import Pass
from host_agent.statistics import Statistics
from host_agent.wire import Admission, describe_dtype, fingerprint
from host_agent.wire.parts import PART_ROWS

MOST_ROWS: Final = 1 << 30
_THIN_BITMAP_BYTES: Final = 1 << 16
"""A bitmap of rows from this size on is itself reduced without its blocks of zeros."""


@dataclass(frozen=True)
class Rows:
    """Some rows of an array; all other rows are zero."""

    numbers: npt.NDArray[np.int64]  # Row numbers; ascending, none twice.
    values: Array  # Their elements.


@dataclass(frozen=True)
class AllReduceRowsRequest:
    """The reduction of rows over all workers; the fields are the arguments of `Communicator.allreduce_rows`."""

    rows: Rows
    row_count: int
    op: Op = "sum"
    on_overflow: OnOverflow = "raise"

    def plan(self, admission: Admission, sequence: int) -> Collective[Rows]:
        """Plan the reduction; see `Request.plan`."""
        numbers = np.ascontiguousarray(self.rows.numbers, np.int64)
        values = np.asarray(self.rows.values)
        _check(numbers, values, self.row_count, self.op)
        mark = fingerprint(
            kind="allreduce of rows",
            op=self.op,
            dtype=describe_dtype(values.dtype.newbyteorder("=")),
            row_elements=int(np.prod(values.shape[1:], dtype=np.int64)),
            row_count=self.row_count,
            sequence=sequence,
        )
        flags = np.zeros(-(-self.row_count // 32) * 32, np.uint8)
        flags[numbers] = 1
        bitmap = np.packbits(flags, bitorder="little").view(np.int32)
        thin: Sparse = "always" if bitmap.nbytes >= _THIN_BITMAP_BYTES else "never"
        union = AllReduceRequest(bitmap, "bor", bitmap, sparse=thin).plan(admission, sequence)
        what = f"allreduce of rows number {sequence} ({self.op} of {values.dtype}, {self.row_count} rows)"
        found: list[Collective[Array]] = []

        def passes() -> Passes:
            last: Pass | None = None
            for step in union.passes:
                if isinstance(step, Pass):
                    last = step
                    if step.part == 0:
                        step.part = PART_ROWS
                yield step
            while last is not None and not last.done:
                yield None
            united = np.flatnonzero(np.unpackbits(bitmap.view(np.uint8), bitorder="little")).astype(np.int64)
            if np.setdiff1d(numbers, united).size:
                raise VerificationError(
                    f"{what}: the union of all rows lacks rows of this worker: a RESULT was changed"
                )
            total = np.zeros((united.size, *values.shape[1:]), values.dtype)
            total[np.searchsorted(united, numbers)] = values
            result.append(Rows(united, total))
            part = AllReduceRequest(total, self.op, total, self.on_overflow)
            found.append(part.plan(admission, sequence))
            yield from found[0].passes

        result: list[Rows] = []

        def finish(statistics: Statistics) -> Rows:
            union.finish(Statistics())
            statistics.elements = result[0].values.size
            found[0].finish(statistics)
            return result[0]

        return Collective(what, values.size, passes(), finish, label_mark=mark)


def _check(numbers: npt.NDArray[np.int64], values: Array, row_count: int, op: str) -> None:
    if op not in ("sum", "mean"):
        raise MisuseError(f"rows take op 'sum' and 'mean', not {op!r}: rows that a worker lacks are zero")
    if not 1 <= row_count <= MOST_ROWS:
        raise MisuseError(f"row_count must be 1 to {MOST_ROWS}, got {row_count}")
    if numbers.ndim != 1 or values.shape[:1] != numbers.shape:
        raise ArrayError(
            f"expected as many row numbers as rows of values, got shapes {numbers.shape} and {values.shape}"
        )
    if numbers.size and (numbers[0] < 0 or numbers[-1] >= row_count or (np.diff(numbers) <= 0).any()):
        raise ArrayError(f"row numbers must be ascending, each once, from 0 to {row_count - 1}")
