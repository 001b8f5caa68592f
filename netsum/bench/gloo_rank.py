"""One rank of a Gloo all-reduce over TCP, as a process: what `netsum allreduce` is compared with.

It prints the same lines of JSON as `netsum.allreduce.worker`, for the same plan and the same numbers.
"""

import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from netsum.allreduce.inputs import Array
from netsum.allreduce.measurement import measure
from netsum.allreduce.plan import Plan, PlannedExchange
from netsum.bench.torch_world import parse, world
from netsum.terminal import print_json_line


class Gloo:
    """torch's Gloo group as a `Reducer`."""

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        dist.barrier()

    def allreduce(self, array: Array, exchange: PlannedExchange, out: Array) -> None:
        """Reduce `array` over all ranks into `out`."""
        out[:] = array  # Gloo reduces in place.
        operation = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}[exchange.op]
        dist.all_reduce(torch.from_numpy(out), op=operation)

    def counts(self) -> dict[str, Any]:
        """Return nothing: TCP's retransmissions are the kernel's."""
        return {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rank; return 0 if all results were right."""
    options = parse(arguments, main.__doc__, Plan.from_json)
    plan: Plan = options.plan
    correct, rounds = True, 0
    with world(options, timedelta(seconds=max(plan.timeout_s, 120.0))) as outcome:
        for each in measure(Gloo(), plan, options.rank, options.world_size):
            print_json_line(each.to_message(options.rank))
            correct, rounds = correct and each.correct, rounds + 1
        outcome.update(rounds=rounds, correct=correct)
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
