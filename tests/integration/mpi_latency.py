"""Latency of Allreduce through netsum beside MPI's, in the way of osu_allreduce.

``mpiexec -n 4 python -m tests.integration.mpi_latency`` prints the microseconds of a call by size in bytes.
"""

import time

import numpy as np
from mpi4py import MPI

import netsum.mpi

ITERATIONS = 50


def latency(comm: MPI.Intracomm, elements: int) -> float:
    """Return the microseconds of an Allreduce of float32."""
    given, taken = np.ones(elements, np.float32), np.empty(elements, np.float32)
    for _ in range(5):
        comm.Allreduce(given, taken)
    MPI.COMM_WORLD.Barrier()
    began = time.perf_counter()
    for _ in range(ITERATIONS):
        comm.Allreduce(given, taken)
    took = (time.perf_counter() - began) / ITERATIONS * 1e6
    assert (taken == comm.size).all()
    return float(MPI.COMM_WORLD.allreduce(took, op=MPI.MAX))


def main() -> None:
    """Print the table."""
    exact = netsum.mpi.wrap(MPI.COMM_WORLD)
    plain = netsum.mpi.wrap(MPI.COMM_WORLD, options=netsum.mpi.Options())
    first = MPI.COMM_WORLD.rank == 0
    if first:
        print(f"# Allreduce of float32, {MPI.COMM_WORLD.size} ranks, {MPI.Get_library_version().split()[2]}")
        print(f"{'bytes':>10}{'netsum, exact':>16}{'netsum':>12}{'MPI':>12}", flush=True)
    for size in (4, 64, 1024, 4096, 16384, 65536, 262144, 1048576):
        took = [latency(comm, size // 4) for comm in (exact, plain, MPI.COMM_WORLD)]
        if first:
            print(f"{size:>10}{took[0]:>16.1f}{took[1]:>12.1f}{took[2]:>12.1f}", flush=True)


if __name__ == "__main__":
    main()
