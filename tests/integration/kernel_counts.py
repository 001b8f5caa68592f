"""Bytes that ranks count for each route, beside the kernel's: ``python -m tests.integration.kernel_counts WORLD LANES``.

It makes a network namespace of its own, in which all frames of the loopback interface are the ranks'. Prints a row for each
route: the bytes of all frames that the interface has carried, the bytes that all ranks together have counted, and the bytes
that one rank has sent and received, in units of its payload.
"""

import argparse
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from host_agent.compression import Reducer, TorchExchange, make_compressor, make_memory
from host_agent.compression.exchange import run
from tests.integration.torch_ranks import Ranks, local_service
from tests.own_network import isolated

ELEMENTS: Final = 40_000
STEPS: Final = 2
ETHERNET_HEADER: Final = 14


def _array(x: torch.Tensor, **options: Any) -> None:
    dist.group.WORLD.communicator.allreduce(x.numpy(), **options)


def _compressed(name: str, x: torch.Tensor, **options: Any) -> int:
    exchange = TorchExchange()
    reducer = Reducer(make_compressor(name, **options), make_memory("none"), exchange.rank, exchange.workers)
    run(reducer.rounds("x", x), exchange)
    total = reducer.total()
    return total.bytes_payload + total.bytes_agreed


ROUTES: Final[dict[str, Callable[[torch.Tensor], int | None]]] = {
    "all-reduce, float32": dist.all_reduce,
    "all-reduce, int64": lambda x: dist.all_reduce((100 * x[: ELEMENTS // 2]).to(torch.int64)),
    "all-reduce, exact": functools.partial(_array, exact=True),
    "all-reduce, a tenth non-zero": lambda x: _array(
        x * (torch.arange(ELEMENTS) % 4000 < 400), sparse="always"
    ),
    "reduce-scatter": lambda x: dist.reduce_scatter(
        torch.empty(ELEMENTS // dist.get_world_size()), list(x.chunk(dist.get_world_size()))
    ),
    "broadcast": lambda x: dist.broadcast(x, 0),
    "all-gather": lambda x: dist.all_gather([torch.empty_like(x) for _ in range(dist.get_world_size())], x),
    "compressed, slots (block-float)": functools.partial(_compressed, "block-float"),
    "compressed, slots (block-float, 4 bits)": functools.partial(_compressed, "block-float", bits=4),
    "compressed, slots (agreed-chunk-top-k)": functools.partial(_compressed, "agreed-chunk-top-k"),
    "compressed, gather (chunk-top-k)": functools.partial(_compressed, "chunk-top-k"),
    "compressed, sum (powersgd)": functools.partial(_compressed, "powersgd"),
    "compressed, gather (natural)": functools.partial(_compressed, "natural"),
}


def counted(rank: int, world: int, route: str) -> tuple[int, int, int]:
    """Run a collective; return the bytes of frames that this rank has counted as sent and received, and its payload."""
    exchange = TorchExchange()
    before = exchange.wire_bytes()
    payload = 0
    for step in range(STEPS):
        x = torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(100 * step + rank))
        payload += ROUTES[route](x) or x.nbytes
    after = exchange.wire_bytes()
    assert before is not None
    assert after is not None
    return after[0] - before[0], after[1] - before[1], payload


def carried() -> int:
    """Return the bytes of all frames that the loopback interface has carried: it counts packets without their Ethernet header."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    counts = next(line.split(":")[1].split() for line in lines if line.strip().startswith("lo:"))
    return int(counts[0]) + ETHERNET_HEADER * int(counts[1])


def main(world: int, lanes: int) -> None:
    with (
        local_service("--places", str(world), "--lanes", str(lanes)) as (address, _),
        Ranks(world, {"NETSUM_CONTROLLER": address}) as ranks,
    ):
        for route in ROUTES:
            ranks.run(counted, route)  # the job has started, and everything is compiled
            before = carried()
            found = ranks.run(counted, route)
            kernel, ours = carried() - before, sum(each[0] + each[1] for each in found)
            sent, received, payload = found[-1]
            row = (
                f"{world} | {lanes} | {route}",
                f"{kernel:,}",
                f"{ours:,}",
                f"{100 * (ours / kernel - 1):+.2f} %",
            )
            print("|", " | ".join(row), f"| {sent / payload:.2f} | {received / payload:.2f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("world", type=int, help="number of ranks")
    parser.add_argument("lanes", type=int, choices=(64, 256))
    options = parser.parse_args()
    if "NETSUM_ISOLATED" not in os.environ:
        # Shared memory does not pass the kernel.
        environment = {**os.environ, "NETSUM_ISOLATED": "1", "NETSUM_LINK": "udp"}
        command = [sys.executable, "-m", "tests.integration.kernel_counts", *sys.argv[1:]]
        # One datagram a message, so that the kernel sees each frame.
        command = isolated("ip link set lo up gso_max_segs 1", command)
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)
    main(options.world, options.lanes)
