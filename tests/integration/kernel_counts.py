"""Bytes that ranks count for each route, beside the kernel's: ``unshare -rn … python -m tests.integration.kernel_counts WORLD``.

It needs a network namespace of its own, in which all frames of the loopback interface are the ranks'. Prints a line of JSON: for
each route the bytes that all ranks together have counted, and those that the interface has carried.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from host_agent.compression import Reducer, TorchExchange, make_compressor, make_memory
from host_agent.compression.exchange import reduce_over
from tests.integration.torch_ranks import Ranks, local_service

ROUTES = {"slots": "block-float", "sum": "identity", "gather": "natural"}
ELEMENTS = 40_000
STEPS = 2
ETHERNET_HEADER = 14


def counted(rank: int, world: int, compressor: str) -> int:
    """Reduce, and return the bytes that this rank has counted as sent and received."""
    dist.barrier()
    exchange = TorchExchange()
    reducer = Reducer(make_compressor(compressor), make_memory("none"), rank, world)
    for step in range(STEPS):
        gradient = torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(100 * step + rank))
        reduce_over(exchange, reducer, "x", gradient)
    total = reducer.total()
    return total.bytes_sent + total.bytes_received


def carried() -> int:
    """Return the bytes of all frames that the loopback interface has carried: it counts packets without their Ethernet header."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    counts = next(line.split(":")[1].split() for line in lines if line.strip().startswith("lo:"))
    return int(counts[0]) + ETHERNET_HEADER * int(counts[1])


def main() -> None:
    world = int(sys.argv[1])
    with (
        local_service("--places", str(world)) as (address, _),
        Ranks(world, {"NETSUM_CONTROLLER": address}) as ranks,
    ):
        ranks.run(counted, "identity")  # the job has started, and everything is compiled
        told = {}
        for route, compressor in ROUTES.items():
            before = carried()
            told[route] = sum(ranks.run(counted, compressor)), carried() - before
    print(json.dumps(told))


if __name__ == "__main__":
    main()
