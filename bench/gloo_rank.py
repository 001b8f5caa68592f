"""One rank of a Gloo all-reduce over TCP, as a process: what `netsum allreduce` is compared with.

It prints the same lines of JSON as `netsum.allreduce.worker`, for the same plan and the same numbers.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from netsum.allreduce.inputs import Array
from netsum.allreduce.measurement import measure
from netsum.allreduce.plan import Plan
from netsum.allreduce.worker import say_line

RENDEZVOUS_PORT = 29511


class Gloo:
    """torch's Gloo group as a `Reducer`."""

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        dist.barrier()

    def allreduce(self, array: Array, op: str, out: Array) -> None:
        """Reduce `array` over all ranks into `out`."""
        out[:] = array  # Gloo reduces in place.
        dist.all_reduce(torch.from_numpy(out), op={"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}[op])

    def counts(self) -> dict[str, Any]:
        """Return nothing: TCP's retransmissions are the kernel's."""
        return {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Be one rank; 0 if all results were right."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--plan", type=Plan.from_json, required=True)
    parser.add_argument("--master", required=True, help="address of rank 0")
    parser.add_argument("--interface", required=True, help="of this host, for Gloo")
    options = parser.parse_args(arguments)
    plan: Plan = options.plan
    os.environ["GLOO_SOCKET_IFNAME"] = options.interface
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{options.master}:{RENDEZVOUS_PORT}",
        rank=options.rank,
        world_size=options.world_size,
        timeout=datetime.timedelta(seconds=max(plan.timeout_s, 120.0)),
    )
    say_line({"event": "joined", "rank": options.rank})
    correct, rounds = True, 0
    for each in measure(Gloo(), plan, options.rank, options.world_size):
        say_line(each.to_message(options.rank))
        correct, rounds = correct and each.correct, rounds + 1
    dist.barrier()
    say_line({"event": "done", "rank": options.rank, "rounds": rounds, "correct": correct})
    sys.stdin.read()  # None leaves while another still needs an answer.
    dist.destroy_process_group()
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
