"""One rank of an MPI all-reduce for `netsum bench torch`: ``mpirun -n 4 python -m netsum.bench.mpi_rank 4 PLAN``.

Rank 0 prints the same lines of JSON as `netsum.bench.torch_rank`, for the float32 all-reduces of the same plan.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from netsum.bench.torch_plan import TorchPlan, repeats_of
from netsum.terminal import print_json_line


def _seconds_to_reduce(world: Any, in_place: Any, size_bytes: int) -> list[float]:
    spent = []
    for _ in range(repeats_of(size_bytes)):
        array = np.full(size_bytes // 4, world.Get_rank() + 1.0, np.float32)
        world.Barrier()
        begin = time.perf_counter()
        world.Allreduce(in_place, array)
        spent.append(time.perf_counter() - begin)
    size = world.Get_size()
    if not (array == size * (size + 1) / 2).all():
        raise RuntimeError(f"MPI: the sum of {size_bytes // 4} elements is wrong")
    return spent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rank."""
    from mpi4py import MPI

    processes, text = sys.argv[1:] if arguments is None else arguments
    plan, world = TorchPlan.from_json(text), MPI.COMM_WORLD
    if world.Get_size() != int(processes):
        library = MPI.Get_library_version().partition(",")[0]
        print(
            f"expected {processes} MPI processes, found {world.Get_size()}: mpi4py uses {library}, which is not this "
            "launcher's; MPI4PY_MPIABI chooses (openmpi, mpich)",
            file=sys.stderr,
        )
        return 1
    _seconds_to_reduce(world, MPI.IN_PLACE, 1 << 16)
    for run in range(plan.runs):
        for size in plan.sizes:
            spent = _seconds_to_reduce(world, MPI.IN_PLACE, size)
            seconds = world.allreduce(sum(spent) / len(spent), MPI.MAX)
            if world.Get_rank() == 0:
                what = {"event": "collective", "collective": "all_reduce", "backend": "mpi", "bytes": size}
                print_json_line({**what, "dtype": "float32", "run": run, "seconds": seconds, "received": 0.0})
    return 0


if __name__ == "__main__":
    sys.exit(main())
