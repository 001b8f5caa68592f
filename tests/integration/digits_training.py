"""A training whose switch may die: the demo's, with workers that go on from the step that all have taken."""

import contextlib
import os
import queue
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from controller.errors import ControllerError
from controller.service.client import OperatorClient
from host_agent.errors import NetsumError
from netsum.allreduce.launch import START_TIMEOUT_S, Conversation
from netsum.digits.task import JOB, DigitsTask
from netsum.digits.training import SILENCE_S, OnStep, TrainingOutcome
from topologies.children import Child
from topologies.hosts import Host, SwitchTestbed


class TrainingError(NetsumError):
    """The training could not be finished; the message says who failed."""


@dataclass(frozen=True)
class LivesOutcome(TrainingOutcome):
    """Result of a training run whose job may have been restarted."""

    job_epochs: int = 1  # 1 and the number of restarts.


@dataclass
class _Worker:
    child: Child
    result: Path
    losses: dict[int, float] = field(default_factory=dict)
    reduce_ns: dict[int, int] = field(default_factory=dict)
    failed_at: int | None = None
    error: str = ""
    digest: str | None = None
    statistics: dict[str, Any] = field(default_factory=dict)
    lost: bool = False

    @property
    def resting(self) -> bool:
        """Whether it sends nothing more until it receives a command."""
        return self.lost or self.digest is not None or self.failed_at is not None

    def begin_incarnation(self) -> None:
        self.failed_at, self.error, self.digest = None, "", None


class TrainingRun(Conversation):
    """Worker processes for one task; they are gone when the ``with`` block ends.

    `testbed`: where they run; host i becomes worker i. `controller`: address of the controller service of the testbed's
    switch. `restarts`: how often a switch that died is started again. `on_step`: called with (step, mean loss) when all
    workers have taken a step.
    """

    def __init__(
        self,
        testbed: SwitchTestbed,
        task: DigitsTask,
        controller: str,
        *,
        restarts: int = 1,
        on_step: OnStep = lambda step, loss: None,
    ) -> None:
        super().__init__()
        self._testbed = testbed
        self._task = task
        self._controller = controller
        self._restarts = restarts
        self._on_step = on_step
        self._workers: list[_Worker] = []

    def start_all(self) -> None:
        """Start the workers."""
        for worker_id, host in enumerate(self._testbed.hosts[: self._task.workers]):
            self._workers.append(self._start_worker(worker_id, host))

    def train(self) -> LivesOutcome:
        """Run the task to its end.

        Raises TrainingError if a worker was lost, or the switch failed more often than it may be restarted.
        """
        self._await_ready()
        start = time.monotonic()
        step, job_epochs = 0, 1
        while True:
            self._begin(step)
            self._follow()
            failed = [worker for worker in self._workers if worker.digest is None]
            if not failed:
                break
            if any(worker.lost for worker in self._workers) or job_epochs > self._restarts:
                raise TrainingError(self._account())
            if not self._testbed.switch.running:
                self._testbed.restart_switch()
            step, job_epochs = self._common_step(), job_epochs + 1
        seconds = time.monotonic() - start
        counters: dict[str, int] = {}
        # The switch may have died when its work was done.
        with contextlib.suppress(ControllerError), OperatorClient(self._controller) as client:
            counters = dict(client.job(JOB).counters)
        return LivesOutcome(
            losses=[self._mean_loss(one) for one in range(self._task.steps)],
            parameters=np.load(self._workers[0].result),
            digests=tuple(str(worker.digest) for worker in self._workers),
            statistics=[worker.statistics for worker in self._workers],
            counters=counters,
            seconds=seconds,
            reduce_seconds=float(np.mean([sum(worker.reduce_ns.values()) for worker in self._workers])) / 1e9,
            job_epochs=job_epochs,
        )

    def _start_worker(self, worker_id: int, host: Host) -> _Worker:
        folder = self._testbed.folder
        result = folder / f"{host.name}-result.npy"
        child = self.start(
            f"worker {worker_id}",
            host.command([sys.executable, "-P", os.fspath(Path(__file__).with_name("digits_worker.py"))]),
            folder / f"{host.name}.log",
        )
        self.send(
            worker_id,
            task=self._task.to_json(),
            result=os.fspath(result),
            controller=self._controller,
            rank=worker_id,
        )
        return _Worker(child, result)

    def _begin(self, step: int) -> None:
        for worker_id, worker in enumerate(self._workers):
            worker.begin_incarnation()
            self.send(worker_id, step=step)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        waiting = set(range(len(self._workers)))
        while waiting:
            worker, message = self._next(deadline, lambda: f"workers {sorted(waiting)} did not start")
            if message is None:
                raise TrainingError(worker.child.how_it_ended())
            waiting.discard(self._workers.index(worker))

    def _follow(self) -> None:
        """Take the workers' messages until all are done, have failed or are lost."""
        while not all(worker.resting for worker in self._workers):
            deadline = time.monotonic() + 2 * self._task.timeout_s + SILENCE_S
            worker, message = self._next(deadline, self._account)
            if message is None:
                worker.lost = True
            elif message["event"] == "step":
                self._take_step(worker, message)
            elif message["event"] == "failed":
                worker.failed_at, worker.error = message["step"], message["error"]
            else:
                worker.digest, worker.statistics = message["digest"], message["statistics"]

    def _take_step(self, worker: _Worker, message: dict[str, Any]) -> None:
        step = message["step"]
        worker.losses[step], worker.reduce_ns[step] = message["loss"], message["reduce_ns"]
        if all(step in one.losses for one in self._workers):
            self._on_step(step, self._mean_loss(step))

    def _next(self, deadline: float, silence: Callable[[], str]) -> tuple[_Worker, dict[str, Any] | None]:
        try:
            worker_id, message = self.receive(max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TrainingError(f"no worker has said anything for too long: {silence()}") from None
        return self._workers[worker_id], message

    def _mean_loss(self, step: int) -> float:
        """Sum over the workers in the order of their ids, so that the same losses give the same bits."""
        return sum(worker.losses[step] for worker in self._workers) / (self._task.workers * self._task.batch)

    def _common_step(self) -> int:
        """Return the earliest step that some worker has not taken."""
        return min(
            self._task.steps - 1 if worker.failed_at is None else worker.failed_at for worker in self._workers
        )

    def _account(self) -> str:
        """Return which processes died, on one line, and each survivor's error on a line of its own."""
        dead = [worker.child.how_it_ended() for worker in self._workers if worker.lost]
        if not self._testbed.switch.running:
            dead.append(self._testbed.switch.how_it_ended())
        survivors = [
            f"worker {worker_id} stopped at step {worker.failed_at}: {worker.error}"
            for worker_id, worker in enumerate(self._workers)
            if worker.failed_at is not None
        ]
        return "\n  ".join(["; ".join(dead) or "the training stopped", *survivors])
