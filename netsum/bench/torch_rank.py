"""One rank of the comparisons of netsum with Gloo inside PyTorch: both groups in the same processes, used in turn.

What was measured comes from rank 0.
"""

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

import netsum.torch  # noqa: F401
from netsum.bench.machine import example
from netsum.bench.torch_world import parse, world
from netsum.terminal import print_json_line

BACKENDS = ("netsum", "gloo")
_TIMEOUT = timedelta(seconds=300)
_REPEATED_BYTES, _MOST_REPEATS = 1 << 20, 20
"""Small tensors are reduced several times between two looks at the clock."""


@dataclass(frozen=True)
class Plan:
    """What the ranks measure."""

    runs: int  # How often all of it, the two backends in turn.
    sizes: list[int]  # Of the float32 tensors that are all-reduced, in bytes.
    examples: dict[str, int]  # Steps of each example, by the name of its module.

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Return what `to_json` wrote."""
        return cls(**json.loads(text))


def _seconds_to_reduce(group: dist.ProcessGroup, size_bytes: int) -> float:
    """Return how long an all-reduce takes at the rank that takes longest, and check its result."""
    tensor = torch.empty(size_bytes // 4)
    repeats = max(1, min(_MOST_REPEATS, _REPEATED_BYTES // size_bytes))
    spent = 0.0
    for _ in range(repeats):
        tensor.fill_(dist.get_rank() + 1.0)
        dist.barrier(group)
        begin = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        spent += time.perf_counter() - begin
    world = dist.get_world_size()
    if not torch.equal(tensor, torch.full_like(tensor, world * (world + 1) / 2)):
        raise RuntimeError(f"{dist.get_backend(group)}: the sum of {size_bytes} bytes is wrong")
    slowest = torch.tensor(spent / repeats, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def _measure(plan: Plan, groups: dict[str, dist.ProcessGroup], run: int) -> None:
    for size in plan.sizes:
        for backend, group in groups.items():
            seconds = _seconds_to_reduce(group, size)
            if dist.get_rank() == 0:
                print_json_line(
                    {"event": "allreduce", "run": run, "backend": backend, "bytes": size, "seconds": seconds}
                )
    for name, steps in plan.examples.items():
        harness = example("harness")
        for group in groups.values():
            report = harness.train_together(harness.task_named(name), steps, seed=0, group=group)
            if report is not None:
                print_json_line({"event": "example", "run": run, "name": name, **dataclasses.asdict(report)})


def main(arguments: Sequence[str] | None = None) -> int:
    """Be one rank."""
    options = parse(arguments, main.__doc__, Plan.from_json)
    plan: Plan = options.plan
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
