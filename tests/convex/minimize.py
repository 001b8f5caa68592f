"""Descent on a problem with compressed gradients, over any exchange or with all workers in one process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor
from host_agent.compression.exchange import Combine, Exchange, reduce_in_process, run
from host_agent.compression.memory import Memory
from host_agent.compression.reducer import Reducer
from tests.convex.problems import Problem

Estimator = Literal["full", "sampled", "l-svrg", "saga"]


@dataclass(frozen=True)
class Progress:
    """End of a run."""

    point: Tensor  # The last one.
    distances: list[float]  # ‖x − x*‖² / ‖x₀ − x*‖² before the first step and after each.
    payload_bytes: int  # Sent by one worker.

    def steps_to(self, accuracy: float) -> int | None:
        """Return after how many steps the distance was at most `accuracy`; None if never."""
        return next((step for step, each in enumerate(self.distances) if each <= accuracy), None)


class _Oracle:
    """One worker's gradient estimates; each from random numbers of its own."""

    def __init__(self, problem: Problem, worker: int, estimator: Estimator, batch: int, seed: int) -> None:
        self._problem, self._worker, self._estimator, self._batch = problem, worker, estimator, batch
        self._generator = torch.Generator().manual_seed(1_000_003 * seed + worker)
        self._table: Tensor | None = None
        self._reference: Tensor | None = None
        self._full = torch.empty(0)

    def __call__(self, point: Tensor) -> Tensor:
        problem, worker = self._problem, self._worker
        if self._estimator == "full":
            return problem.gradient(worker, point)
        rows = torch.randint(0, problem.rows, (self._batch,), generator=self._generator)
        fresh = problem.row_gradients(worker, rows, point)
        if self._estimator == "sampled":
            return fresh.mean(dim=0)
        if self._estimator == "saga":
            if self._table is None:
                self._table = problem.row_gradients(worker, torch.arange(problem.rows), point)
            estimate = (fresh - self._table[rows]).mean(dim=0) + self._table.mean(dim=0)
            self._table[rows] = fresh
            return estimate
        if self._reference is None:
            self._move_reference(point)
        assert self._reference is not None
        estimate = (fresh - problem.row_gradients(worker, rows, self._reference)).mean(dim=0) + self._full
        # Loopless SVRG: a new reference with probability 1 / m, as one pass over the rows costs on average.
        if float(torch.rand(1, generator=self._generator)) < self._batch / problem.rows:
            self._move_reference(point)
        return estimate

    def _move_reference(self, point: Tensor) -> None:
        self._reference = point
        self._full = self._problem.gradient(self._worker, point)


def minimize(
    problem: Problem,
    compressor: Callable[[], Compressor],
    memory: Callable[[], Memory],
    *,
    step: float,
    steps: int,
    estimator: Estimator = "full",
    batch: int = 1,
    seed: int = 0,
    exchange: Exchange | None = None,
    combine: Combine | None = None,
    accuracy: float = 0.0,
    on_step: Callable[[int, float], None] = lambda step, distance: None,
) -> Progress:
    """Descend from 0 with a constant step.

    `problem`: with as many workers as the exchange. `compressor`, `memory`: make one for each worker. `step`: γ; see
    `theory`. `steps`: how many at most. `estimator`: what each worker compresses. `batch`: rows of a stochastic gradient.
    `seed`: of rows and compressors. `exchange`: over which this process is one of the workers; all workers in this process
    if None. `combine`: with all workers in this process: what carries out their rounds, see `reduce_in_process`. `accuracy`:
    stop when the distance is at most that. `on_step`: called after each step with its number, from 1 on, and the distance.
    """
    ranks: Sequence[int] = range(problem.workers) if exchange is None else [exchange.rank]
    reducers = [Reducer(compressor(), memory(), rank, problem.workers, seed) for rank in ranks]
    oracles = [_Oracle(problem, rank, estimator, batch, seed) for rank in ranks]
    optimum = problem.optimum()
    point = torch.zeros(problem.dimension, dtype=torch.float64)
    scale = float((point - optimum).square().sum())
    distances = [1.0]
    for number in range(1, steps + 1):
        gradients = [oracle(point) for oracle in oracles]
        if exchange is None:
            estimate = reduce_in_process(reducers, "x", gradients, combine)[0]
        else:
            estimate = run(reducers[0].rounds("x", gradients[0]), exchange)
        point = point - step * estimate
        distances.append(float((point - optimum).square().sum()) / scale)
        on_step(number, distances[-1])
        if distances[-1] <= accuracy:
            break
    total = reducers[0].total()
    return Progress(point, distances, total.bytes_payload + total.bytes_agreed)
