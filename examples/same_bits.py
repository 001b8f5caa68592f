"""A training whose weights do not depend on the number of workers, and the same over plain sums and Gloo, where they do.

Each step has a global batch of 8 micro-batches, which the workers share out: 8 workers have one each, 3 workers 3, 3 and 2.

python examples/same_bits.py                        # 1, 2, 3, 4 and 8 workers, and once the number changed in the middle
python examples/same_bits.py --workers 1,3 --steps 6
"""

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

MICRO_BATCHES, ROWS, FEATURES, CLASSES = 8, 16, 64, 10
HOW = ("exact", "netsum", "gloo")  # Exact sums, plain sums on the switch, Gloo.


@dataclass
class Run:
    """Results of a training."""

    state: dict[str, Any]  # State of the model and the optimizer, to resume from.
    gradients: list[Tensor] = field(default_factory=list)  # After each step's all-reduce, flat.

    @property
    def digest(self) -> str:
        """SHA-256 of all weights."""
        weights = [each.reshape(-1).view(torch.uint8) for each in self.state["model"].values()]
        return hashlib.sha256(torch.cat(weights).numpy().tobytes()).hexdigest()


def micro_batch(step: int, index: int) -> tuple[Tensor, Tensor]:
    """Make rows and their classes, which a fixed random matrix decides."""
    generator = torch.Generator().manual_seed(step * MICRO_BATCHES + index)
    teacher = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(0))
    rows = torch.randn(ROWS, FEATURES, generator=generator)
    return rows, (rows @ teacher).argmax(1)


def train(how: str, first: int, last: int, state: dict[str, Any] | None = None) -> Run:
    """Train from step `first` to before step `last` with the ranks of the default group.

    Parameters
    ----------
    how : {"exact", "netsum", "gloo"}
        See `HOW`; the group's backend is the caller's matter.
    state : dict, optional
        Of an earlier run that ended before step `first`, of any number of ranks.
    """
    torch.set_num_threads(1)  # Sums within a process depend on its threads.
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(FEATURES, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES)
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    if how == "exact":
        from netsum.torch import MicroBatches

        batches = MicroBatches(model.parameters(), MICRO_BATCHES)
    run = Run({})
    for step in range(first, last):
        if how == "exact":
            for index in batches.of_step(step):
                backward(model, step, index)
        else:
            add_plainly(model, step)
        run.gradients.append(torch.cat([each.grad.reshape(-1) for each in model.parameters()]))
        optimizer.step()
    run.state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    return run


def backward(model: nn.Module, step: int, index: int) -> None:
    """Compute the gradient of a micro-batch."""
    rows, classes = micro_batch(step, index)
    nn.functional.cross_entropy(model(rows), classes).backward()


def add_plainly(model: nn.Module, step: int) -> None:
    """Leave the mean gradient of the step's micro-batches in the model, as trainings usually do: floats added in some order."""
    model.zero_grad()
    for index in range(dist.get_rank(), MICRO_BATCHES, dist.get_world_size()):
        torch.manual_seed(step * MICRO_BATCHES + index)
        backward(model, step, index)
    for each in model.parameters():
        if each.grad is None:  # This rank has no micro-batch.
            each.grad = torch.zeros_like(each)
        dist.all_reduce(each.grad)
        each.grad /= MICRO_BATCHES


def first_difference(one: Run, other: Run) -> str:
    """Describe the first element of the first step whose gradients differ; empty if there is none."""
    for step, (left, right) in enumerate(zip(one.gradients, other.gradients, strict=True)):
        unequal = (left.view(torch.int32) != right.view(torch.int32)).nonzero()
        if len(unequal):
            at = int(unequal[0])
            bits = [int(each[at].view(torch.int32)) & 0xFFFFFFFF for each in (left, right)]
            return f"step {step}, element {at} of the gradient: 0x{bits[0]:08x} and 0x{bits[1]:08x}"
    return ""


def worker(rank: int, world: int, how: str, first: int, last: int, state: Any, folder: str) -> None:
    """Train as one of the processes of a run; rank 0 keeps the result."""
    backend = "gloo" if how == "gloo" else "netsum"
    dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=world)
    run = train(how, first, last, state)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        torch.save(run, f"{folder}/run")


def launch(world: int, how: str, first: int, last: int, before: Run | None = None) -> Run:
    """Train with processes of their own, and return the result with the gradients of all steps."""
    with tempfile.TemporaryDirectory() as folder:
        state = None if before is None else before.state
        torch.multiprocessing.spawn(worker, (world, how, first, last, state, folder), nprocs=world)
        run: Run = torch.load(Path(folder) / "run", weights_only=False)
    if before is not None:
        run.gradients[:0] = before.gradients
    return run


def main(workers: Sequence[int], steps: int) -> bool:
    """Train over everything with every number of workers, and return whether exact sums gave the same bits each time."""
    same = True
    for how in HOW:
        runs = [(f"{world} workers", launch(world, how, 0, steps)) for world in workers]
        half = steps // 2
        begun = launch(workers[-1], how, 0, half)
        runs.append((f"{workers[-1]}, then {workers[0]}", launch(workers[0], how, half, steps, begun)))
        for name, run in runs:
            difference = first_difference(runs[0][1], run)
            print(f"{how:7}{name:12}{run.digest}  {difference}".rstrip(), flush=True)
            same &= how != "exact" or run.digest == runs[0][1].digest
    return same


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", default="1,2,3,4,8", help="numbers of workers (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=12, help="at least 2 (default: %(default)s)")
    options = parser.parse_args()
    numbers = [int(each) if each.isdecimal() else 0 for each in options.workers.split(",")]
    if min(numbers) < 1 or options.steps < 2:
        parser.error("expected numbers of workers such as 1,2,4, and at least 2 steps")
    sys.exit(0 if main(numbers, options.steps) else 1)
