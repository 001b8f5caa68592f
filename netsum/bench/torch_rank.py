"""One rank of the comparisons of netsum with Gloo inside PyTorch: both groups in the same processes, used in turn.

The measurements come from rank 0.
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
from netsum.bench.torch_world import parse, wire_bytes, world
from netsum.terminal import print_json_line

BACKENDS = ("netsum", "gloo")
_TIMEOUT = timedelta(seconds=300)


def _run(collective: str, tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Run a collective over a tensor of the whole size; returns its result."""
    if collective == "all_reduce":
        dist.all_reduce(tensor, group=group)
        return tensor
    part = torch.empty_like(tensor[: tensor.numel() // dist.get_world_size()])
    if collective == "reduce_scatter":
        dist.reduce_scatter_tensor(part, tensor, group=group)
        return part
    dist.all_gather_into_tensor(tensor, part.fill_(dist.get_rank() + 1), group=group)
    return tensor


def _measure_collective(
    group: dist.ProcessGroup, collective: str, size_bytes: int, dtype: str, device: str, interface: str
) -> tuple[float, float]:
    """Return how long a collective takes at the rank that takes longest, and the bytes that this host receives; check the result.

    `size_bytes` is that of a float32 tensor with as many elements as are reduced or gathered.
    """
    repeats = repeats_of(size_bytes)
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    world = dist.get_world_size()
    elements = -(-size_bytes // 4 // world) * world
    spent, (_, before) = 0.0, wire_bytes(interface)
    for _ in range(repeats):
        tensor = torch.full((elements,), dist.get_rank() + 1.0, dtype=getattr(torch, dtype), device=device)
        synchronize()
        dist.barrier(group)
        begin = time.perf_counter()
        result = _run(collective, tensor, group)
        synchronize()
        spent += time.perf_counter() - begin
    received = (wire_bytes(interface)[1] - before) / repeats
    expected = torch.full_like(result, world * (world + 1) / 2)
    if collective == "all_gather":
        expected = (torch.arange(world) + 1).to(result).repeat_interleave(elements // world)
    if not torch.equal(result, expected):
        raise RuntimeError(f"{dist.get_backend(group)}: {collective} of {elements} {dtype} elements is wrong")
    slowest = torch.tensor(spent / repeats, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest), received


def _measure(plan: TorchPlan, groups: dict[str, dist.ProcessGroup], run: int, interface: str) -> None:
    for collective, size, dtype in itertools.product(plan.collectives, plan.sizes, plan.dtypes):
        for backend, group in groups.items():
            seconds, received = _measure_collective(group, collective, size, dtype, plan.device, interface)
            if dist.get_rank() == 0:
                what = {"event": "collective", "collective": collective, "backend": backend, "bytes": size}
                took = {"seconds": seconds, "received": received}
                print_json_line({**what, "dtype": dtype, "run": run, **took})
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
            _measure_collective(group, "all_reduce", 1 << 16, "float32", plan.device, options.interface)
        for run in range(plan.runs):
            # The first backend changes with each run.
            order = BACKENDS if run % 2 == 0 else BACKENDS[::-1]
            _measure(plan, {backend: groups[backend] for backend in order}, run, options.interface)
    return 0


if __name__ == "__main__":
    sys.exit(main())
