"""One rank of the comparisons of netsum with Gloo inside PyTorch: both groups in the same processes, used in turn.

What was measured comes from rank 0.
"""

import dataclasses
import itertools
import sys
import time
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist

import netsum.torch  # noqa: F401
from netsum.bench.machine import example
from netsum.bench.torch_plan import TorchPlan, repeats_of
from netsum.bench.torch_world import parse, world
from netsum.terminal import print_json_line

BACKENDS = ("netsum", "gloo")
_TIMEOUT = timedelta(seconds=300)


def _seconds_to_reduce(group: dist.ProcessGroup, size_bytes: int, dtype: str = "float32") -> float:
    """Return how long an all-reduce takes at the rank that takes longest, and check its result.

    `size_bytes` is that of a float32 tensor with as many elements.
    """
    repeats = repeats_of(size_bytes)
    spent = 0.0
    for _ in range(repeats):
        tensor = torch.full((size_bytes // 4,), dist.get_rank() + 1.0, dtype=getattr(torch, dtype))
        dist.barrier(group)
        begin = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        spent += time.perf_counter() - begin
    world = dist.get_world_size()
    if not torch.equal(tensor, torch.full_like(tensor, world * (world + 1) / 2)):
        raise RuntimeError(
            f"{dist.get_backend(group)}: the sum of {size_bytes // 4} {dtype} elements is wrong"
        )
    slowest = torch.tensor(spent / repeats, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def _measure(plan: TorchPlan, groups: dict[str, dist.ProcessGroup], run: int) -> None:
    for size, dtype in itertools.product(plan.sizes, plan.dtypes):
        for backend, group in groups.items():
            seconds = _seconds_to_reduce(group, size, dtype)
            if dist.get_rank() == 0:
                what = {"event": "allreduce", "backend": backend, "bytes": size, "dtype": dtype}
                print_json_line({**what, "run": run, "seconds": seconds})
    for (name, steps), dtype in itertools.product(plan.examples.items(), plan.dtypes):
        harness = example("harness")
        for group in groups.values():
            task = harness.task_named(name)
            report = harness.train_together(task, steps, seed=0, group=group, gradients=dtype)
            if report is not None:
                what = {"event": "example", "run": run, "name": name, "dtype": dtype}
                print_json_line({**what, **dataclasses.asdict(report)})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rank."""
    options = parse(arguments, main.__doc__, TorchPlan.from_json)
    plan: TorchPlan = options.plan
    with world(options, _TIMEOUT):
        groups = {backend: dist.new_group(backend=backend, timeout=_TIMEOUT) for backend in BACKENDS}
        for group in groups.values():  # Connections are made, and code loaded, by the first ones.
            _seconds_to_reduce(group, 1 << 16)
        for run in range(plan.runs):
            # Which comes first changes with each run.
            order = BACKENDS if run % 2 == 0 else BACKENDS[::-1]
            _measure(plan, {backend: groups[backend] for backend in order}, run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
