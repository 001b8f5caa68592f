"""A training on the hosts of a testbed through its switch, and the same training in one process."""

import contextlib
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from controller.errors import ControllerError
from controller.service.client import OperatorClient
from netsum.allreduce.launch import Ranks, Site
from netsum.digits.dataset import load_digits, shard
from netsum.digits.model import Floats
from netsum.digits.task import JOB, DigitsTask
from netsum.digits.worker import digest, take_steps
from topologies.hosts import SwitchTestbed

SILENCE_S = 15.0  # How long after every deadline has passed a worker may take to report it.

OnStep = Callable[[int, float], None]  # Called with the step and its mean loss.


@dataclass(frozen=True)
class TrainingOutcome:
    """Result of a training run."""

    losses: list[float]  # Mean loss of each step's batch over all workers, before the step.
    parameters: Floats  # Worker 0's at the end, shape (size,).
    digests: tuple[str, ...]  # SHA-256 of each worker's parameters.
    statistics: list[dict[str, Any]]  # Counters of each worker's communicator.
    counters: dict[str, int]  # Counters of the switch; empty if it did not answer.
    seconds: float  # From the first admission to the last worker's end.
    reduce_seconds: float  # Mean over the workers of the time spent in all-reduce.


def train(testbed: SwitchTestbed, task: DigitsTask, controller: str, on_step: OnStep) -> TrainingOutcome:
    """Run a worker on each of a testbed's hosts; logs go to its folder.

    `controller`: address of the controller service of the testbed's switch. Raises RankError if a worker failed.
    """

    def command(rank: int) -> list[str]:
        return [
            *(sys.executable, "-P", "-m", "netsum.digits.worker", "--task", task.to_json()),
            *("--rank", str(rank), "--controller", controller),
            *("--result", str(testbed.folder / f"result-{rank}.npy")),
        ]

    losses: dict[int, dict[int, float]] = defaultdict(dict)  # By step and worker.
    reduce_ns = [0] * task.workers
    done: dict[int, dict[str, Any]] = {}
    times: list[float] = []

    def on_message(rank: int, message: dict[str, Any]) -> None:
        times.append(time.monotonic())
        if message["event"] == "step":
            step = message["step"]
            losses[step][rank] = message["loss"]
            reduce_ns[rank] += message["reduce_ns"]
            if len(losses[step]) == task.workers:
                on_step(step, _mean(losses[step], task))
        elif message["event"] == "done":
            done[rank] = message

    sites = [Site(host.name, host.prefix) for host in testbed.hosts[: task.workers]]
    counters: dict[str, int] = {}
    with Ranks(command, sites, testbed.folder) as ranks:
        ranks.follow(2 * task.timeout_s + SILENCE_S, on_message)
        with contextlib.suppress(ControllerError), OperatorClient(controller) as client:
            counters = dict(client.job(JOB).counters)
        ranks.dismiss()
    return TrainingOutcome(
        losses=[_mean(losses[step], task) for step in range(task.steps)],
        parameters=np.load(testbed.folder / "result-0.npy"),
        digests=tuple(done[rank]["digest"] for rank in range(task.workers)),
        statistics=[done[rank]["statistics"] for rank in range(task.workers)],
        counters=counters,
        seconds=times[-1] - times[0],
        reduce_seconds=float(np.mean(reduce_ns)) / 1e9,
    )


def _mean(losses: dict[int, float], task: DigitsTask) -> float:
    """Add in the order of the workers' numbers, so that the same losses give the same bits."""
    return sum(losses[rank] for rank in range(task.workers)) / (task.workers * task.batch)


def train_alone(task: DigitsTask, on_step: OnStep = lambda step, loss: None) -> TrainingOutcome:
    """Train in this process on the batches that all workers together take."""
    images = load_digits(task.seed)[0]
    losses: list[float] = []

    def keep(step: int, loss: float) -> None:
        losses.append(loss / (task.workers * task.batch))
        on_step(step, losses[-1])

    start = time.monotonic()
    shards = [shard(images, rank, task.workers) for rank in range(task.workers)]
    parameters = take_steps(task, shards, lambda gradient: gradient, keep)
    return TrainingOutcome(
        losses, parameters, (digest(parameters),), [], {}, time.monotonic() - start, reduce_seconds=0.0
    )
