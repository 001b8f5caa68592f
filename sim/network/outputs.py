"""Arrays that all workers of a job write their results to, compared with the expected results during the run."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sim.network.engine.engine_records import OUTPUT
from sim.network.engine.outputs import ERASED
from sim.network.network_memory import RecordRows, address_of

_AT_A_TIME: Final = 1 << 18  # Elements compared at a time, which limits the memory for temporary arrays.

Array = npt.NDArray[Any]


class Output:
    """The result of one collective at all workers of a job."""

    def __init__(
        self,
        rows: RecordRows,
        number: int,
        expected: Array,
        workers: int,
        compute: Callable[[int], int] | None,
    ) -> None:
        self._rows, self.number, self.compute = rows, number, compute
        self.expected = np.ascontiguousarray(expected)  # The expected output of each worker.
        # The workers' output. A block is erased once it has been compared (`sim.network.engine.outputs`).
        self.array = np.empty_like(self.expected)
        self.array.view(np.uint8)[:] = ERASED
        self._blocks = np.zeros(workers, np.int64)
        row = rows[number]
        row["target"], row["expected"] = address_of(self.array), address_of(self.expected)
        row["known"] = 0 if compute else expected.size
        row["element_bytes"] = expected.itemsize
        row["blocks"] = address_of(self._blocks)
        row["wrong_worker"] = row["wrong_element"] = -1

    def blocks(self, rank: int) -> int:
        """Return the number of blocks that a worker has written since the last `restart`."""
        return int(self._blocks[rank])

    def restart(self) -> None:
        """Count the blocks of all workers from 0 again, as the workers begin once more."""
        self._blocks[:] = 0

    @property
    def wrong(self) -> tuple[int, int] | None:
        """(rank, element) of the first wrong value that a worker wrote; None if there is none."""
        row = self._rows[self.number]
        return None if row["wrong_worker"] < 0 else (int(row["wrong_worker"]), int(row["wrong_element"]))

    def stray(self, left_out: npt.NDArray[np.bool_] | None = None) -> int | None:
        """Return an element that a worker has written without accepting a RESULT for it; None if there is none.

        Elements marked in `left_out` may be written as zeros without a RESULT.
        """
        for at in range(0, self.array.size, _AT_A_TIME):
            part = self.array[at : at + _AT_A_TIME]
            right = (part.view(np.uint8).reshape(-1, part.itemsize) == ERASED).all(axis=1)
            if left_out is not None:
                right |= left_out[at : at + _AT_A_TIME] & (part == 0)
            if not right.all():
                return at + int(np.argmin(right))
        return None


class Outputs:
    """The outputs of a network that are in use."""

    def __init__(self, world: Array) -> None:
        self._world = world
        self._rows = RecordRows(world, "outputs", OUTPUT)
        self._free: list[int] = []
        self._used: dict[int, Output] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, expected: Array, workers: int, compute: Callable[[int], int] | None = None) -> Output:
        """Add an output of a job with `workers` workers, each of which must write `expected`.

        `compute`: called before a block is compared, with the number of leading elements of `expected` that the comparison
        needs; returns the number of leading elements computed by then. None: all elements are computed.
        """
        number = self._free.pop() if self._free else self._rows.add()
        output = self._used[number] = Output(self._rows, number, expected, workers, compute)
        self._world["output_count"] = len(self._rows)
        return output

    def compute(self) -> None:
        """Compute the expected values for the RESULT that waits to be compared."""
        world = self._world[0]
        compute = self._used[int(world["due_output"])].compute
        assert compute is not None
        self._rows[int(world["due_output"])]["known"] = compute(int(world["due_elements"]))

    def remove(self, output: Output) -> None:
        """Remove an output that all workers have written."""
        self._rows[output.number]["target"] = 0
        del self._used[output.number]
        self._free.append(output.number)
