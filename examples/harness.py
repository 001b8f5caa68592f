"""What the examples share: plain DDP training over any backend, its losses, its time, and the same training in one process.

torchrun --nproc-per-node 4 examples/digits_cnn.py --backend netsum
torchrun --nproc-per-node 4 examples/digits_cnn.py --backend gloo
python examples/digits_cnn.py --workers 4          # the same batches, one process, no communication
"""

import argparse
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

TIMED_COMPUTE_STEPS = 10


@dataclass(frozen=True)
class Task:
    """Something to train.

    Attributes
    ----------
    name
        For the first line printed.
    model
        Makes the model; called with torch's generator seeded.
    batch
        (step, worker, workers) to the inputs and targets of that worker, each with as many rows as any other worker's.
    loss
        (outputs, targets) to their mean loss.
    accuracy
        The model's share of right answers on what it was not trained on.
    rate
        Of Adam.
    steps
        By default.
    """

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[int, int, int], tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, Tensor], Tensor]
    accuracy: Callable[[nn.Module], float]
    rate: float
    steps: int


@dataclass
class Report:
    """What came out of a run."""

    backend: str
    workers: int
    losses: list[float] = field(default_factory=list)
    accuracy: float = 0.0
    step_ms: float = 0.0
    compute_ms: float = 0.0
    digests: list[str] = field(default_factory=list)


def main(task: Task) -> None:
    """Run a task as the command line says, and print its report on rank 0."""
    parser = argparse.ArgumentParser(description=task.name)
    parser.add_argument("--backend", default="netsum", choices=["netsum", "gloo"])
    parser.add_argument("--steps", type=int, default=task.steps)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--workers", type=int, default=1, help="without torchrun: whose batches to take together"
    )
    parser.add_argument("--out", type=Path, help="file for the report, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    if "RANK" in os.environ:
        if options.backend == "netsum":
            import netsum.torch  # noqa: F401  # PyTorch does this by itself, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0
        dist.init_process_group(options.backend)
        try:
            report = _train_together(task, options.steps, options.backend)
        finally:
            dist.destroy_process_group()
    else:
        report = _train_alone(task, options.steps, options.workers)
    if report is not None:
        _show(task, report)
        if options.out is not None:
            options.out.write_text(json.dumps(asdict(report)) + "\n")


def _train_together(task: Task, steps: int, backend: str) -> Report | None:
    rank, workers = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(task.model())
    report = Report(backend, workers)
    report.compute_ms = _compute_ms(task, model, rank, workers)
    started = time.perf_counter()
    for loss in _steps(task, model, steps, lambda step: task.batch(step, rank, workers)):
        mean = loss / workers
        dist.all_reduce(mean)
        report.losses.append(float(mean))
    report.step_ms = (time.perf_counter() - started) / steps * 1e3
    report.accuracy = task.accuracy(model.module)
    digests: list[str | None] = [None] * workers
    dist.all_gather_object(digests, _digest(model.module))
    report.digests = [str(each) for each in digests]
    return report if rank == 0 else None


def _train_alone(task: Task, steps: int, workers: int) -> Report:
    def everybodys(step: int) -> tuple[Tensor, Tensor]:
        parts = [task.batch(step, worker, workers) for worker in range(workers)]
        return torch.cat([inputs for inputs, _ in parts]), torch.cat([targets for _, targets in parts])

    model = task.model()
    report = Report("one process", workers)
    started = time.perf_counter()
    report.losses = [float(loss) for loss in _steps(task, model, steps, everybodys)]
    report.step_ms = report.compute_ms = (time.perf_counter() - started) / steps * 1e3
    report.accuracy = task.accuracy(model)
    report.digests = [_digest(model)]
    return report


def _steps(task: Task, model: nn.Module, steps: int, batch: Callable[[int], tuple[Tensor, Tensor]]):
    """Train, yielding the loss of each step."""
    optimizer = torch.optim.Adam(model.parameters(), task.rate)
    for step in range(steps):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        loss = task.loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        yield loss.detach()


def _compute_ms(task: Task, model: DistributedDataParallel, rank: int, workers: int) -> float:
    """Time forward and backward passes that communicate nothing."""
    inputs, targets = task.batch(0, rank, workers)
    times = []
    with model.no_sync():
        for _ in range(TIMED_COMPUTE_STEPS):
            started = time.perf_counter()
            task.loss(model(inputs), targets).backward()
            times.append(time.perf_counter() - started)
    model.zero_grad()
    return min(times) * 1e3  # the first ones load what later ones find


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _show(task: Task, report: Report) -> None:
    print(f"{task.name}: {report.workers} workers, {report.backend}")
    every = max(1, len(report.losses) // 10)
    for step in range(0, len(report.losses), every):
        print(f"  step {step:4}  loss {report.losses[step]:.4f}")
    print(f"  step {len(report.losses) - 1:4}  loss {report.losses[-1]:.4f}  accuracy {report.accuracy:.1%}")
    beyond = max(0.0, report.step_ms - report.compute_ms)
    print(
        f"  {report.step_ms:.1f} ms a step: {report.compute_ms:.1f} computing, {beyond:.1f} beyond (communication, optimizer)"
    )
    same = "the same bits on every rank" if len(set(report.digests)) == 1 else "DIFFERENT ON SOME RANKS"
    print(f"  parameters {report.digests[0][:16]}, {same}", flush=True)


@contextlib.contextmanager
def evaluating(model: nn.Module):
    """Switch a model to evaluation for a block."""
    model.eval()
    with torch.no_grad():
        yield
    model.train()
