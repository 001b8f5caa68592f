"""One rank of `netsum compression bench`: trains point after point, and prints each one's curve."""

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import netsum.torch  # noqa: F401
from host_agent.compression import CompressionState, compress
from netsum.bench.compression_points import UNCOMPRESSED, Curve, Point, method_of
from netsum.bench.machine import example
from netsum.bench.torch_world import parse, wire_bytes, world
from netsum.terminal import print_json_line

_TIMEOUT = timedelta(seconds=120)
_LOOKS = 15  # How often the accuracy of a training is taken.
_SKIP_BELOW = 1024  # Elements of a tensor that is sent as it is, where layers are compressed by themselves.
_ADAM_EPS = 1e-6


def _train(point: Point, group: Any, interface: str) -> Curve:
    """Train with the processes of a group."""
    rank, workers = dist.get_rank(group), dist.get_world_size(group)
    task = example(point.task).task
    torch.manual_seed(point.seed)
    model = DistributedDataParallel(task.model(), process_group=group)
    state = _compressed(model, point)
    optimizer = torch.optim.Adam(model.parameters(), task.rate, eps=_ADAM_EPS)
    # Made before the clock runs: a loader would have them ready, too.
    batches = [task.batch(1_000_003 * point.seed + step, rank, workers) for step in range(point.steps)]
    looks = sorted({max(1, round(point.steps * look / _LOOKS)) for look in range(1, _LOOKS + 1)})
    curve = Curve([], [], [], 0.0, 0.0, sum(4 * each.numel() for each in model.parameters()), 0.0)
    seconds, sent, received = 0.0, 0, 0
    for first, last in zip([0, *looks], looks, strict=False):
        dist.barrier()
        before = wire_bytes(interface)
        began = time.perf_counter()
        for inputs, targets in batches[first:last]:
            optimizer.zero_grad()
            task.loss(model(inputs), targets).backward()
            optimizer.step()
        seconds += time.perf_counter() - began
        after = wire_bytes(interface)
        sent, received = sent + after[0] - before[0], received + after[1] - before[1]
        if rank == 0:
            curve.steps.append(last)
            curve.seconds.append(seconds)
            curve.accuracies.append(task.accuracy(model.module))
    spent_ms = state.total().compress_ns / 1e6 if state is not None else 0.0
    return dataclasses.replace(
        curve,
        sent_bytes=sent / point.steps,
        received_bytes=received / point.steps,
        compress_ms=spent_ms / point.steps,
    )


def _compressed(model: DistributedDataParallel, point: Point) -> CompressionState | None:
    if point.method == UNCOMPRESSED:
        return None
    name, method = method_of(point.method)
    return compress(
        model,
        name,
        memory=method.memory,
        granularity=method.granularity,  # type: ignore[arg-type]
        skip_below=_SKIP_BELOW if method.granularity == "layer" else 0,
        seed=point.seed,
        **method.options,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rank."""
    options = parse(arguments, main.__doc__, lambda text: [Point(**each) for each in json.loads(text)])
    points: list[Point] = options.plan
    with world(options, _TIMEOUT):
        groups = {
            backend: dist.new_group(backend=backend, timeout=_TIMEOUT)
            for backend in dict.fromkeys(point.backend for point in points)
        }
        for group in groups.values():  # Connections are made, and code loaded, by the first ones.
            dist.all_reduce(torch.ones(1 << 14), group=group)
        for point in points:
            curve = _train(point, groups[point.backend], options.interface)
            if options.rank == 0:
                print_json_line(
                    {"event": "curve", "point": dataclasses.asdict(point), **dataclasses.asdict(curve)}
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
