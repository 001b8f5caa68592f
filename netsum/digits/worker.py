"""One worker process of the demo: ``python -m netsum.digits.worker``.

It prints lines of JSON, as `netsum.allreduce.launch.Ranks` takes them: ``joined``, a ``step`` each, then ``done``, or ``failed``
with the reason.
"""

import hashlib
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from host_agent import Communicator, compile_ahead
from host_agent.errors import NetsumError
from host_agent.joining import join
from netsum.compiling import ended_by_signals
from netsum.digits.dataset import Images, batch_indices
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
    images: Path = option("file with the worker's part of the images", REQUIRED)
    result: Path = option("file for the parameters at the end", REQUIRED)


def train(options: WorkerOptions, communicator: Communicator) -> Floats:
    """Take all steps, and return the parameters, shape (size,)."""
    task = options.task
    images = Images.load(options.images)
    model = Perceptron(task.widths)
    descent = MomentumDescent(model.initial_parameters(task.seed), task.rate)
    total = np.empty_like(descent.parameters)
    communicator.barrier()  # So that the time of the first step does not count the others' start.
    for step in range(task.steps):
        batch = images.select(batch_indices(step, len(images), task.batch, task.seed))
        loss, gradient = model.gradient(descent.parameters, batch.pixels, batch.digits)
        start_ns = time.perf_counter_ns()
        communicator.allreduce(gradient, op="mean", out=total)
        reduce_ns = time.perf_counter_ns() - start_ns
        descent.step(total)
        print_json_line({"event": "step", "step": step, "loss": loss, "reduce_ns": reduce_ns})
    return descent.parameters


def main(arguments: Sequence[str] | None = None) -> int:
    """Work until the task is done and standard input ends: others may still need an answer."""
    options = parse(WorkerOptions, arguments, "python -m netsum.digits.worker", main.__doc__ or "")
    task = options.task
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
            print_json_line({"event": "joined"})
            parameters = train(options, communicator)
            np.save(options.result, parameters)
            digest = hashlib.sha256(parameters.tobytes()).hexdigest()
            print_json_line(
                {"event": "done", "digest": digest, "statistics": asdict(communicator.total_stats)}
            )
            sys.stdin.read()
    except NetsumError as fault:
        print_json_line({"event": "failed", "error": str(fault)})
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
