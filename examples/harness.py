"""Common code of the examples: training over any backend, its losses, its time, and the same training in one process.

torchrun --nproc-per-node 4 examples/digits_cnn.py --backend netsum
torchrun --nproc-per-node 4 examples/digits_cnn.py --backend gloo
torchrun --nproc-per-node 4 examples/digits_cnn.py --backend netsum --check   # and then the same batches in one process
python examples/digits_cnn.py --backend single --workers 4                    # those alone
"""

import argparse
import contextlib
import copy
import hashlib
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

TIMED_COMPUTE_STEPS = 20
ADAM_EPS = 1e-6
"""With PyTorch's 1e-8 the rounding errors of gradients that are nearly zero become steps: in one process, the order of a
batch's rows then moves the losses by thousandths, and there is nothing to compare with."""
OTHER_ORDERS = 3
ROUNDING_MARGIN = 10
"""How many times as far as float32 rounding moves the losses of one process they may be from it."""

Batch = Callable[[int], tuple[Tensor, Tensor]]


def replicated(model: nn.Module, group: dist.ProcessGroup, gradients: str) -> nn.Module:
    """Give each rank of a group the whole model, with DDP; `gradients` is the type in which they are added."""
    model = DistributedDataParallel(model, process_group=group)
    if gradients == "bfloat16":
        from netsum.torch import bfloat16_hook

        model.register_comm_hook(group, bfloat16_hook)
    return model


def adam(model: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Return Adam over all parameters."""
    return [torch.optim.Adam(model.parameters(), rate, eps=ADAM_EPS)]


@dataclass(frozen=True)
class Task:
    """Something to train."""

    name: str  # For the first line printed.
    model: Callable[[], nn.Module]  # Makes the model; called with torch's generator seeded.
    # (step, worker, workers) to the inputs and targets of that worker, each with as many rows as any other worker's.
    batch: Callable[[int, int, int], tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) to their mean loss.
    # The model's share of right answers on samples that it was not trained on.
    accuracy: Callable[[nn.Module], float]
    rate: float
    steps: int
    # Given the model and the rate, makes what updates its parameters.
    optimizers: Callable[[nn.Module, float], list[torch.optim.Optimizer]] = adam
    # Spreads the model over the ranks of a group, given the type in which gradients are added.
    spread: Callable[[nn.Module, dist.ProcessGroup, str], nn.Module] = replicated


@dataclass
class Report:
    """Results of a run."""

    # backend, workers: "netsum", "gloo" or "single", and by how many processes, or for how many processes' batches.
    backend: str
    workers: int
    # Loss of each step, the mean over all workers' batches, before the step.
    losses: list[float] = field(default_factory=list)
    accuracy: float = 0.0  # After the last step.
    step_ms: float = 0.0  # Median time of a step.
    # Median time of a step that communicates nothing: forward, backward, optimizer, in all processes at once. The rest of
    # `step_ms` is communication that was not hidden behind computing.
    compute_ms: float = 0.0
    # gradient_bytes, sent_bytes: size of the gradients, and the bytes that each worker sent of them a step, headers
    # and retransmissions included; None where the backend does not count.
    gradient_bytes: int = 0
    sent_bytes: float | None = None
    digests: list[str] = field(default_factory=list)  # Digests of the parameters, one of each worker.
    # deviation, rounding: with --check: the largest difference of a loss from one process's, and what that is between runs
    # in one process that take the rows of a batch, and so add, in different orders; at least the distance of two float32
    # losses.
    deviation: float | None = None
    rounding: float | None = None

    @property
    def well(self) -> bool:
        """Whether all ranks ended with the same bits, and with --check where one process ends."""
        agreed = len(set(self.digests)) == 1
        if self.deviation is None or self.rounding is None:
            return agreed
        return agreed and self.deviation <= ROUNDING_MARGIN * self.rounding


def task_named(name: str) -> Task:
    """Return the task of an example by the name of its module; with `_sparse` behind it, its variant with sparse gradients."""
    module = importlib.import_module(name.removesuffix("_sparse"))
    chosen: Task = module.sparse_task if name.endswith("_sparse") else module.task
    return chosen


def main(task: Task, sparse_task: Task | None = None) -> None:
    """Run a task as the command line says, and print its report on rank 0.

    Parameters
    ----------
    sparse_task
        The same with sparse gradients, for ``--sparse``.
    """
    parser = argparse.ArgumentParser(description=task.name)
    parser.add_argument("--backend", choices=["netsum", "gloo", "single"], default="netsum")
    parser.add_argument("--steps", type=int, default=task.steps)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="with single: whose batches to take together")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare with the same batches in one process; status 1 if it differs",
    )
    parser.add_argument(
        "--gradients",
        choices=["float32", "bfloat16"],
        default="float32",
        help="the type in which gradients are added",
    )
    parser.add_argument("--out", type=Path, help="file for the report, as JSON")
    if sparse_task is not None:
        parser.add_argument("--sparse", action="store_true", help="sparse gradients for the embedding")
    options = parser.parse_args()
    if sparse_task is not None and options.sparse:
        task = sparse_task
    torch.set_num_threads(1)
    if options.backend == "single":
        report: Report | None = train_alone(task, options.steps, options.workers, options.seed)
    elif "RANK" not in os.environ:
        parser.error(f"--backend {options.backend} is for torchrun; without it: --backend single --workers N")
    else:
        if options.backend == "netsum":
            import netsum.torch  # noqa: F401  # PyTorch does this by itself, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0
        dist.init_process_group(options.backend)
        try:
            report = train_together(task, options.steps, options.seed, gradients=options.gradients)
        finally:
            dist.destroy_process_group()
    if report is None:
        return
    if options.check:
        compare_with_one_process(task, report, options.seed)
    show(task, report)
    if options.out is not None:
        options.out.write_text(json.dumps(asdict(report)) + "\n")
    sys.exit(0 if report.well else 1)


def train_together(
    task: Task,
    steps: int,
    seed: int,
    group: dist.ProcessGroup | None = None,
    gradients: str = "float32",
) -> Report | None:
    """Train with the processes of a group, by default all there are; returns the report on rank 0."""
    group = dist.group.WORLD if group is None else group
    rank, workers = dist.get_rank(group), dist.get_world_size(group)
    torch.manual_seed(seed)
    model = task.model()
    alone = copy.deepcopy(model)
    model = task.spread(model, group, gradients)
    report = Report(dist.get_backend(group), workers)
    report.gradient_bytes = sum(each.numel() * each.element_size() for each in model.parameters())

    def mine(step: int) -> tuple[Tensor, Tensor]:
        return task.batch(step, rank, workers)

    dist.barrier(group)
    report.compute_ms = _median_ms(_steps(task, alone, TIMED_COMPUTE_STEPS, mine))[1]
    dist.barrier(group)
    before = _bytes_sent(group)
    losses, report.step_ms = _median_ms(_steps(task, model, steps, mine))
    if before is not None:
        report.sent_bytes = ((_bytes_sent(group) or 0) - before) / steps
    means = torch.tensor(losses, dtype=torch.float64) / workers
    dist.all_reduce(means, group=group)
    report.losses = means.tolist()
    report.accuracy = task.accuracy(_inner(model))
    digests: list[str | None] = [None] * workers
    dist.all_gather_object(digests, _digest(_inner(model)), group=group)
    report.digests = [str(each) for each in digests]
    return report if rank == 0 else None


def train_alone(task: Task, steps: int, workers: int, seed: int, *, order: int = 0) -> Report:
    """Train on the batches of `workers` workers in one process, their rows in one order or another."""

    def of_all(step: int) -> tuple[Tensor, Tensor]:
        parts = [task.batch(step, worker, workers) for worker in range(workers)]
        inputs, targets = (torch.cat(each) for each in zip(*parts, strict=True))
        if order == 0:
            return inputs, targets
        rows = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(order))
        return inputs[rows], targets[rows]

    torch.manual_seed(seed)
    model = task.model()
    report = Report("single", workers)
    report.gradient_bytes = sum(each.numel() * each.element_size() for each in model.parameters())
    report.losses, report.step_ms = _median_ms(_steps(task, model, steps, of_all))
    report.compute_ms = report.step_ms
    report.accuracy = task.accuracy(model)
    report.digests = [_digest(model)]
    return report


def compare_with_one_process(task: Task, report: Report, seed: int) -> None:
    """Add to a report how far its losses are from one process's, and how far rounding alone moves those."""
    alone, *others = (
        train_alone(task, len(report.losses), report.workers, seed, order=order).losses
        for order in range(1 + OTHER_ORDERS)
    )
    report.deviation = _largest_difference(report.losses, alone)
    spacing = torch.finfo(torch.float32).eps * max(alone)
    report.rounding = max(spacing, *(_largest_difference(other, alone) for other in others))


def _largest_difference(some: list[float], others: list[float]) -> float:
    return max(abs(one - other) for one, other in zip(some, others, strict=True))


def _steps(task: Task, model: nn.Module, steps: int, batch: Batch) -> Iterator[Tensor]:
    """Train, yielding the loss of each step."""
    optimizers = task.optimizers(_inner(model), task.rate)
    for step in range(steps):
        inputs, targets = batch(step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = task.loss(model(inputs), targets)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        yield loss.detach()


def _inner(model: nn.Module) -> nn.Module:
    return model.module if isinstance(model, DistributedDataParallel) else model


def whole(parameter: Tensor) -> Tensor:
    """Return a parameter with all its shards; to be called at all ranks."""
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter.detach()


def _median_ms(steps: Iterator[Tensor]) -> tuple[list[float], float]:
    """Run the steps; returns their losses and their median time."""
    losses, times = [], []
    begin = time.perf_counter()
    for loss in steps:
        losses.append(float(loss))
        end = time.perf_counter()
        times.append(end - begin)
        begin = end
    return losses, statistics.median(times) * 1e3


def _bytes_sent(group: dist.ProcessGroup) -> int | None:
    """Return the UDP payload that this worker has sent to the switch so far; None for other backends."""
    communicator = getattr(group, "communicator", None)
    return None if communicator is None else int(communicator.total_stats.bytes_sent)


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(whole(parameter).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def show(task: Task, report: Report) -> None:
    """Print a report."""
    print(f"{task.name}: {report.workers} workers, {report.backend}")
    every = max(1, len(report.losses) // 10)
    for step in range(0, len(report.losses) - 1, every):
        print(f"  step {step:4}  loss {report.losses[step]:.6f}")
    print(f"  step {len(report.losses) - 1:4}  loss {report.losses[-1]:.6f}  accuracy {report.accuracy:.1%}")
    beyond = max(0.0, report.step_ms - report.compute_ms)
    print(f"  {report.step_ms:.1f} ms a step: {report.compute_ms:.1f} computing, {beyond:.1f} communicating")
    if report.sent_bytes is not None:
        share = report.sent_bytes / report.gradient_bytes
        print(
            f"  {report.gradient_bytes / 1e6:.2f} MB of gradients a step; each worker sends {report.sent_bytes / 1e6:.2f} MB "
            f"for them ({share:.0%})"
        )
    same = "the same bits on every rank" if len(set(report.digests)) == 1 else "DIFFERENT ON SOME RANKS"
    print(f"  parameters {report.digests[0][:16]}, {same}")
    if report.deviation is not None and report.rounding is not None:
        print(
            f"  losses within {report.deviation:.1e} of one process's, which float32 rounding alone moves by "
            f"{report.rounding:.1e}"
        )
    sys.stdout.flush()


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch a model to evaluation for a block."""
    model.eval()
    with torch.no_grad():
        yield
    model.train()
