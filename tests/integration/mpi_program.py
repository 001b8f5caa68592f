"""The program of tests/integration/test_mpi.py: started by mpiexec, and no other than one for MPI but for `wrap`."""

import hashlib
import json
import os
import sys
from typing import Any

import numpy as np
from mpi4py import MPI

import netsum
import netsum.mpi

comm = netsum.mpi.wrap(MPI.COMM_WORLD, timeout_s=120)
rank, size = comm.rank, comm.size


def sums() -> None:
    """Compare the elements of every collective with MPI's."""
    for dtype in ("float64", "float32", "int64", "int16", "complex128", "uint32"):
        values = (np.arange(6 * size) + rank).astype(dtype)
        ours, theirs = np.empty_like(values), np.empty_like(values)
        for op in (MPI.SUM, MPI.MAX, MPI.PROD) if dtype != "complex128" else (MPI.SUM,):
            comm.Allreduce(values, ours, op=op)
            MPI.COMM_WORLD.Allreduce(values, theirs, op=op)
            assert (ours == theirs).all(), (dtype, op)
        part, their_part = np.empty(6, dtype), np.empty(6, dtype)
        comm.Reduce_scatter_block(values, part)
        comm.Reduce_scatter(values, their_part, [6] * size)
        MPI.COMM_WORLD.Reduce_scatter_block(values, theirs[:6])
        assert (part == theirs[:6]).all()
        assert (their_part == theirs[:6]).all()
        whole = np.empty((size, 6 * size), dtype)
        comm.Allgather(values, whole)
        assert (whole == [(np.arange(6 * size) + other).astype(dtype) for other in range(size)]).all()
        sent = values.copy()
        comm.Bcast(sent, root=size - 1)
        assert (sent == (np.arange(6 * size) + size - 1).astype(dtype)).all()
    in_place = np.full((2, 3), rank, np.int32)
    comm.Allreduce(MPI.IN_PLACE, [in_place, MPI.INT32_T])
    assert (in_place == size * (size - 1) // 2).all()
    assert comm.allreduce({"rank": rank}["rank"], op=MPI.SUM) == size * (size - 1) // 2
    uneven, counts = np.empty(rank + 1), [each + 1 for each in range(size)]
    comm.Reduce_scatter(np.ones(sum(counts)), uneven, counts)
    assert (uneven == size).all()
    halves = comm.Split(rank % 2, rank)
    total = np.array([1.0])
    halves.Allreduce(MPI.IN_PLACE, total)
    assert total[0] == halves.size
    assert halves.counts == {("Allreduce", "switch"): 1}
    again = comm.Dup()
    again.Allreduce(MPI.IN_PLACE, total)
    assert (total[0], again.counts["Allreduce", "switch"]) == (
        sum((size + 1 - each % 2) // 2 for each in range(size)),
        1,
    )
    again.Free()


def digests() -> dict[str, str]:
    """Return the SHA-256 of sums of 240 summands, shared out over the ranks: of all at once, of ranks' sums, of MPI's."""
    summands = (
        np.random.default_rng(7).normal(size=(240, 1000)) * 10.0 ** np.arange(-12, 12).repeat(10)[:, None]
    )
    mine = summands[rank::size]
    exact, plain, native = comm.exact_sum(mine), np.empty(1000), np.empty(1000)
    comm.Allreduce(mine.sum(axis=0), plain)
    MPI.COMM_WORLD.Allreduce(mine.sum(axis=0), native)
    return {
        name: hashlib.sha256(each.tobytes()).hexdigest()[:8]
        for name, each in (("exact_sum", exact), ("Allreduce", plain), ("MPI", native))
    }


sums()
said: dict[str, Any] = {
    "digests": digests(),
    "counts": {" ".join(each): n for each, n in comm.counts.items()},
}
if "leave" in sys.argv:
    odd = comm.Dup()
    try:
        odd.Allreduce(MPI.IN_PLACE, np.ones(3 + rank % 2))
    except netsum.MismatchError as error:
        said["swapped"] = str(error)
    if rank == size - 1:
        os._exit(0)
    try:
        comm.Allreduce(MPI.IN_PLACE, np.ones(3))
    except netsum.NetsumError as error:
        said["left"] = str(error)
print(json.dumps(said), flush=True)
if "leave" in sys.argv:
    os._exit(0)
