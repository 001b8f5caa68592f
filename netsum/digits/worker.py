"""One worker process of the demo: ``python -m netsum.digits.worker``; and the training, which one process can do alone as well.

It prints lines of JSON, as `netsum.allreduce.launch.Ranks` takes them: ``joined``, a ``step`` each, then ``done``, or ``failed``
with the reason.
"""

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from host_agent.communicator import compile_ahead
from host_agent.errors import NetsumError
from host_agent.joining import join
from netsum.compiling import ended_by_signals
from netsum.digits.dataset import Images, batch_indices, load_digits, shard
from netsum.digits.model import Floats, MomentumDescent, Perceptron
from netsum.digits.task import JOB, DigitsTask
from netsum.terminal import print_json_line
from netsum_common.options import REQUIRED, option, parse
from topologies.children import ending_in_order

JOIN_TIMEOUT_S = 60.0
"""How long a worker waits for the others, and for the switch."""


@dataclass(frozen=True)
class WorkerOptions:
    """A worker of a task."""

    task: DigitsTask = option("a `DigitsTask`'s fields, as JSON", REQUIRED, read=DigitsTask.from_json)
    rank: int = option("number of the worker", REQUIRED)
    controller: str = option("HOST:PORT or unix:PATH", REQUIRED)
    result: Path = option("file for the parameters at the end", REQUIRED)


def take_steps(
    task: DigitsTask,
    shards: Sequence[Images],
    reduce: Callable[[Floats], Floats],
    on_step: Callable[[int, float], None],
) -> Floats:
    """Train on the batches of some workers together, and return the parameters, shape (size,).

    `reduce`: returns the mean over all workers of the gradient of the batches' mean. `on_step`: called after each step with its
    number and the loss before it, summed over the batches.
    """
    model = Perceptron(task.widths)
    descent = MomentumDescent(model.initial_parameters(task.seed), task.rate)
    for step in range(task.steps):
        chosen = batch_indices(step, len(shards[0]), task.batch, task.seed)
        pixels = np.concatenate([part.pixels[chosen] for part in shards])
        digits = np.concatenate([part.digits[chosen] for part in shards])
        loss, gradient = model.gradient(descent.parameters, pixels, digits)
        descent.step(reduce(gradient))
        on_step(step, loss)
    return descent.parameters


def digest(parameters: Floats) -> str:
    """Return the SHA-256 of parameters."""
    return hashlib.sha256(parameters.tobytes()).hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Work until the task is done and standard input ends: others may still need an answer."""
    options = parse(WorkerOptions, arguments, "python -m netsum.digits.worker", main.__doc__ or "")
    task = options.task
    own = shard(load_digits(task.seed)[0], options.rank, task.workers)
    total = np.empty(Perceptron(task.widths).size, np.float32)
    reduce_ns = 0
    try:
        with ended_by_signals():
            compile_ahead()  # Takes long unless the parent has compiled; no deadline is running yet.
        with (
            ending_in_order(),
            join(
                options.controller,
                job=JOB,
                rank=options.rank,
                world_size=task.workers,
                slots=task.slots,
                timeout_s=JOIN_TIMEOUT_S,
            ) as membership,
            membership.communicator(timeout_s=task.timeout_s) as communicator,
        ):

            def reduce(gradient: Floats) -> Floats:
                nonlocal reduce_ns
                start_ns = time.perf_counter_ns()
                communicator.allreduce(gradient, op="mean", out=total)
                reduce_ns = time.perf_counter_ns() - start_ns
                return total

            def say(step: int, loss: float) -> None:
                print_json_line({"event": "step", "step": step, "loss": loss, "reduce_ns": reduce_ns})

            print_json_line({"event": "joined"})
            communicator.barrier()  # So that the time of the first step does not count the others' start.
            parameters = take_steps(task, [own], reduce, say)
            np.save(options.result, parameters)
            counted = asdict(communicator.total_stats)
            print_json_line({"event": "done", "digest": digest(parameters), "statistics": counted})
            sys.stdin.read()
    except NetsumError as fault:
        print_json_line({"event": "failed", "error": str(fault)})
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
