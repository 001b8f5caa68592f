"""One rank of `netsum bench hook`: steps of DDP without a hook and with the identity compressor, in turn."""

import copy
import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import netsum.torch  # noqa: F401
from host_agent.compression import compress
from netsum.bench.machine import example
from netsum.bench.torch_world import parse, world
from netsum.terminal import print_json_line

BACKENDS = ("netsum", "gloo")
_TIMEOUT = timedelta(seconds=120)
_WARM_STEPS = 3  # DDP rebuilds its buckets in the first one.

Step = Callable[[DistributedDataParallel], Tensor]


def _wide_step() -> tuple[nn.Module, Step]:
    """Return a model of 4 million parameters, and a step of little computing."""
    model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024))
    inputs = torch.randn(64, 1024, generator=torch.Generator().manual_seed(dist.get_rank()))
    return model, lambda replica: replica(inputs).square().mean()


def _transformer_step() -> tuple[nn.Module, Step]:
    """Return the Transformer of the examples, and its step."""
    task = example("transformer_lm").task
    inputs, targets = task.batch(0, dist.get_rank(), dist.get_world_size())
    return task.model(), lambda replica: task.loss(replica(inputs), targets)


_MODELS: dict[str, Callable[[], tuple[nn.Module, Step]]] = {
    "transformer_lm": _transformer_step,
    "two wide layers": _wide_step,
}


def _measure(name: str, backend: str, group: dist.ProcessGroup, steps: int) -> None:
    """Take steps of both kinds in turn, and say the milliseconds of each, of the slowest rank."""
    torch.manual_seed(0)
    model, step = _MODELS[name]()
    plain = DistributedDataParallel(copy.deepcopy(model), process_group=group)
    hooked = DistributedDataParallel(model, process_group=group)
    compress(hooked, "identity")
    for number in range(-_WARM_STEPS, steps):
        # Which comes first changes with each turn.
        pair = (("plain", plain), ("identity", hooked))
        for kind, replica in pair if number % 2 else pair[::-1]:
            dist.barrier()
            begin = time.perf_counter()
            step(replica).backward()
            slowest = torch.tensor(1e3 * (time.perf_counter() - begin), dtype=torch.float64)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            replica.zero_grad()
            if number >= 0 and dist.get_rank() == 0:
                print_json_line(
                    {"event": "step", "model": name, "backend": backend, "kind": kind, "ms": float(slowest)}
                )


def main(arguments: Sequence[str] | None = None) -> int:
    """Be one rank."""
    options = parse(arguments, main.__doc__, json.loads)
    with world(options, _TIMEOUT):
        for backend in BACKENDS:
            group = dist.new_group(backend=backend, timeout=_TIMEOUT)
            for name in _MODELS:
                _measure(name, backend, group, options.plan)
    return 0


if __name__ == "__main__":
    sys.exit(main())
