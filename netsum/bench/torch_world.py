"""Begin and end of the ranks of benches that use torch: they meet over Gloo, and all stay until all are done.

They print lines of JSON as `netsum.allreduce.launch.Ranks` takes them.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from netsum.terminal import print_json_line

RENDEZVOUS_PORT = 29511


def parse(
    arguments: Sequence[str] | None, description: str | None, plan: Callable[[str], Any]
) -> argparse.Namespace:
    """Return the options of a rank: rank, world_size, plan, master, interface."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--plan", type=plan, required=True)
    parser.add_argument("--master", required=True, help="address of rank 0")
    parser.add_argument("--interface", required=True, help="of this host, for Gloo")
    return parser.parse_args(arguments)


def wire_bytes(interface: str) -> tuple[int, int]:
    """Return the bytes of all frames that an interface of this host has sent and received."""
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == interface:
            received, sent = (int(counts.split()[at]) for at in (0, 8))
            return sent, received
    raise RuntimeError(f"this host has no interface {interface}")


@contextmanager
def world(options: argparse.Namespace, timeout: timedelta) -> Iterator[dict[str, Any]]:
    """Be a rank of Gloo's default group for a block.

    Yields a dict whose items are printed when the block has ended at all ranks.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = options.interface
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{options.master}:{RENDEZVOUS_PORT}",
        rank=options.rank,
        world_size=options.world_size,
        timeout=timeout,
    )
    print_json_line({"event": "joined", "rank": options.rank})
    outcome: dict[str, Any] = {}
    yield outcome
    dist.barrier()
    print_json_line({"event": "done", "rank": options.rank, **outcome})
    sys.stdin.read()  # Every rank stays while another one still needs an answer.
    dist.destroy_process_group()
