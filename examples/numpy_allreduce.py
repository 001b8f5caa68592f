"""Four workers add NumPy arrays on an embedded switch on loopback, no root.

`start_service` brings up a switch and its controller, which end with the last worker; with NETSUM_CONTROLLER set,
the workers join the job through that controller instead, and add on its switch.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from host_agent.joining import CONTROLLER_VARIABLE, join, start_service

WORKERS = 4


def work(controller: str, rank: int, done: threading.Barrier) -> str:
    """Run one worker, in a real job a process on a host of its own; returns the line that reports its results."""
    gradients = np.full(100_000, 0.5 + rank, np.float32)
    with (
        join(controller, job="example", rank=rank, world_size=WORKERS) as membership,
        membership.communicator(timeout_s=60.0) as comm,
    ):
        mean = comm.allreduce(gradients, op="mean")
        futures = [comm.allreduce_async(gradients * step) for step in range(3)]  # several in flight
        totals = [float(future.result()[0]) for future in futures]
        # A worker that leaves while others still add would end their collectives with an error.
        done.wait(300)
        return f"worker {comm.worker_id}: mean {mean[0]}, totals {totals}, {comm.total_stats.chunks} chunks"


def main() -> None:
    """Let four workers join a job, add, and leave."""
    controller = os.environ.get(CONTROLLER_VARIABLE) or start_service(places=WORKERS)
    done = threading.Barrier(WORKERS)
    with ThreadPoolExecutor(WORKERS) as pool:
        # One thread prints: lines printed by four at once can interleave.
        for line in pool.map(work, [controller] * WORKERS, range(WORKERS), [done] * WORKERS):
            print(line)


if __name__ == "__main__":
    main()
