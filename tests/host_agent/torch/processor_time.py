"""Processor time of an all-reduce over netsum and over Gloo on loopback, that of netsum's switch included.

python -m tests.host_agent.torch.processor_time --workers 2 --sizes 4KiB,16MiB
"""

import argparse
import os
import statistics
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from socket import create_server

import torch
import torch.distributed as dist

import netsum.torch  # noqa: F401
from netsum.allreduce.plan import parse_size, size_text
from netsum.allreduce.session import loopback_controller
from netsum_common.lane_counts import LOCAL_LANES
from tests.processes import with_words

REPEATED_BYTES, MOST_REPEATS, LEAST_REPEATS = 64 << 20, 60, 5


def seconds_of(processes: list[int]) -> float:
    """Return the processor time of processes."""
    spent = 0
    for process in processes:
        for thread in Path(f"/proc/{process}/task").iterdir():
            spent += int((thread / "schedstat").read_text().split()[0])
    return spent / 1e9


def rank(number: int, workers: int, port: int, sizes: list[int]) -> None:
    """Be one rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=number, world_size=workers)
    groups = {backend: dist.new_group(backend=backend) for backend in ("netsum", "gloo")}
    for group in groups.values():
        dist.all_reduce(torch.ones(1 << 20), group=group)
    # No other switches than this program's should run.
    switches = with_words("sim.switch.serve") if number == 0 else []
    for size in sizes:
        for backend, group in groups.items():
            repeats = max(LEAST_REPEATS, min(MOST_REPEATS, REPEATED_BYTES // size))
            wall, own, switch = [], 0.0, 0.0
            for _ in range(repeats):
                tensor = torch.full((size // 4,), number + 1.0)
                dist.barrier(group)
                before, begin_own, begin = seconds_of(switches), time.process_time(), time.perf_counter()
                dist.all_reduce(tensor, group=group)
                wall.append(time.perf_counter() - begin)
                own += time.process_time() - begin_own
                dist.barrier()
                switch += seconds_of(switches) - before
            spent = torch.tensor([own, switch], dtype=torch.float64) / repeats
            dist.all_reduce(spent)
            if number == 0:
                ranks, of_switch = spent.tolist()
                print(
                    f"{workers} processes  {size_text(size):>7}  {backend:6}  {statistics.median(wall) * 1e3:8.2f} ms  "
                    f"processor time: ranks {ranks * 1e3:8.2f}, switch {of_switch * 1e3:7.2f}, "
                    f"together {(ranks + of_switch) * 1e3:8.2f} ms, {(ranks + of_switch) / (size / 4) * 1e9:6.1f} ns an element",
                    flush=True,
                )
    dist.destroy_process_group()


def main() -> None:
    """Run the ranks and their switch."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sizes", default="4KiB,64KiB,1MiB,16MiB,64MiB")
    options = parser.parse_args()
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sizes = [parse_size(size) for size in options.sizes.split(",")]
    with (
        tempfile.TemporaryDirectory() as folder,
        loopback_controller(options.workers, LOCAL_LANES, 0, Path(folder)) as controller,
    ):
        os.environ |= {"NETSUM_CONTROLLER": controller, "GLOO_SOCKET_IFNAME": "lo"}
        processes = [
            get_context("spawn").Process(target=rank, args=(number, options.workers, port, sizes))
            for number in range(options.workers)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()


if __name__ == "__main__":
    main()
