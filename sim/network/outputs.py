"""Arrays that all workers of a job write their results to, and that are compared while they do."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sim.network.engine.engine_records import OUTPUT
from sim.network.engine.outputs import ERASED
from sim.network.network_memory import RecordRows, address_of

_AT_A_TIME: Final = 1 << 18  # Elements that are compared together, so that they need little memory.

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
        # The workers' output. A block is erased as soon as it was compared (`sim.network.engine.outputs`).
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
        """Return how many blocks a worker has written since the last `restart`."""
        return int(self._blocks[rank])

    def restart(self) -> None:
        """Count the blocks of all workers from 0: they begin once more."""
        self._blocks[:] = 0

    @property
    def wrong(self) -> tuple[int, int] | None:
        """The rank of the first worker that wrote something else than expected, and the element; None: there is none."""
        row = self._rows[self.number]
        return None if row["wrong_worker"] < 0 else (int(row["wrong_worker"]), int(row["wrong_element"]))

    def stray(self, left_out: npt.NDArray[np.bool_] | None = None) -> int | None:
        """Return an element that a worker has written without having accepted a RESULT for it, or None.

        Elements that are `left_out` may be written without one, as zeros.
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
        """Add an output of a job with this many workers, each of which must write `expected`.

        `compute`: called before a block is compared, with how many elements of `expected` that needs, from the first on; returns
        how many it has computed then. None: all are there.
        """
        number = self._free.pop() if self._free else self._rows.add()
        output = self._used[number] = Output(self._rows, number, expected, workers, compute)
        self._world["output_count"] = len(self._rows)
        return output

    def compute(self) -> None:
        """Compute the expected values of the waiting RESULT."""
        world = self._world[0]
        compute = self._used[int(world["due_output"])].compute
        assert compute is not None
        self._rows[int(world["due_output"])]["known"] = compute(int(world["due_elements"]))

    def remove(self, output: Output) -> None:
        """Remove an output that all workers have written."""
        self._rows[output.number]["target"] = 0
        del self._used[output.number]
        self._free.append(output.number)
