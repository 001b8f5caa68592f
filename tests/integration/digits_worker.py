"""One worker process of `tests.integration.digits_training`, which takes commands on standard input.

Lines in: first the task, then the step to begin with, for each epoch of the job. Lines out: ``ready``, when the job
has been joined; a ``step`` each; ``failed`` when a collective fails, after which the next line in says where to go on;
``done``, which another worker's failure may still undo.

A survivor of a failed step may be one step ahead of another: it has the last sum that the other's switch
died with, and none can be two ahead, as the next sum needs all workers. So the state before the last step is
kept, and the runner names the step that all can go on from. A step taken again gives the same bits.
"""

import hashlib
import sys
import time
from dataclasses import asdict
from typing import IO, Any

import numpy as np

from host_agent.communicator import Communicator, compile_ahead
from host_agent.errors import PeerError
from host_agent.joining import Membership, join
from netsum.allreduce.launch import read_line, write_line
from netsum.digits.dataset import Images, batch_indices, load_digits, shard
from netsum.digits.model import Floats, MomentumDescent, Perceptron
from netsum.digits.task import JOB, DigitsTask

JOIN_TIMEOUT_S = 60.0
"""How long a worker waits for the others, and for the switch, to begin or to begin again."""


class DigitsWorker:
    """A worker's model, its part of the images and the steps it has taken."""

    def __init__(self, task: DigitsTask, images: Images, events: IO[bytes]) -> None:
        self._task = task
        self._images = images
        self._events = events
        self._model = Perceptron(task.widths)
        self._descent = MomentumDescent(self._model.initial_parameters(task.seed), task.rate)
        self._before = self._state()
        self.step = 0

    @property
    def parameters(self) -> Floats:
        """The model's parameters, shape (size,)."""
        return self._descent.parameters

    def train(self, communicator: Communicator, first_step: int) -> None:
        """Take all steps from one on. Raises PeerError if a collective failed; `step` is the step it belongs to."""
        self._return_to(first_step)
        communicator.barrier()  # So that the time of the first step does not count the others' start.
        total = np.empty_like(self.parameters)
        while self.step < self._task.steps:
            chosen = batch_indices(self.step, len(self._images), self._task.batch, self._task.seed)
            batch = self._images.select(chosen)
            loss, gradient = self._model.gradient(self.parameters, batch.pixels, batch.digits)
            start_ns = time.perf_counter_ns()
            communicator.allreduce(gradient, op="mean", out=total)
            reduce_ns = time.perf_counter_ns() - start_ns
            self._before = self._state()
            self._descent.step(total)
            write_line(self._events, event="step", step=self.step, loss=loss, reduce_ns=reduce_ns)
            self.step += 1

    def _state(self) -> tuple[Floats, Floats]:
        return self._descent.parameters.copy(), self._descent.velocity.copy()

    def _return_to(self, step: int) -> None:
        if step == self.step:
            return
        if step != self.step - 1:
            raise ValueError(f"a worker that has taken {self.step} steps cannot go on from step {step}")
        parameters, velocity = self._before
        self._descent.parameters[:] = parameters
        self._descent.velocity[:] = velocity
        self.step = step


def main() -> None:
    """Work until the task is done or the runner closes the stream."""
    commands, events = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # Output of libraries belongs in the log, not among the messages.
    opening = read_line(commands)
    if opening is None:
        return
    task = DigitsTask.from_json(opening["task"])
    worker = DigitsWorker(task, shard(load_digits(task.seed)[0], opening["rank"], task.workers), events)
    compile_ahead()  # Takes long unless the parent has compiled; no deadline is running yet.
    with join(
        opening["controller"],
        job=JOB,
        rank=opening["rank"],
        world_size=task.workers,
        slots=task.slots,
        timeout_s=JOIN_TIMEOUT_S,
    ) as membership:
        write_line(events, event="ready")
        while (life := read_line(commands)) is not None:
            try:
                membership.start_again(JOIN_TIMEOUT_S)
                statistics = _live(worker, task, membership, life["step"])
            except PeerError as error:
                write_line(events, event="failed", step=worker.step, error=str(error))
                continue
            np.save(opening["result"], worker.parameters)
            digest = hashlib.sha256(worker.parameters.tobytes()).hexdigest()
            write_line(events, event="done", digest=digest, statistics=statistics)


def _live(worker: DigitsWorker, task: DigitsTask, membership: Membership, step: int) -> dict[str, Any]:
    """Train through one epoch of the job, and return the worker's statistics of it."""
    with membership.communicator(timeout_s=task.timeout_s) as communicator:
        worker.train(communicator, step)
        return asdict(communicator.total_stats)


if __name__ == "__main__":
    main()
