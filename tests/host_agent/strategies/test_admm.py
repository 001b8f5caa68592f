"""ADMM: the solution that one process computes from all rows, although no worker sees the others'."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch

import netsum
from tests.host_agent.strategies import tasks
from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch


def test_it_reaches_the_least_squares_solution_of_all_rows(gloo_ranks: Ranks) -> None:
    inputs, targets = tasks.all_rows(gloo_ranks.world)
    solution = torch.linalg.lstsq(torch.cat([inputs, torch.ones(len(inputs), 1)], dim=1), targets).solution[
        :, 0
    ]
    for model, primal, dual in gloo_ranks.run(_solve, 0.0):
        torch.testing.assert_close(torch.tensor(model, dtype=torch.float64), solution, rtol=0, atol=1e-4)
        assert primal < 1e-3
        assert dual < 1e-3


def test_an_l1_norm_makes_its_solution_sparse_and_optimal(gloo_ranks: Ranks) -> None:
    weight = 2.0
    model = torch.tensor(gloo_ranks.run(_solve, weight)[0][0], dtype=torch.float64)
    inputs, targets = tasks.all_rows(gloo_ranks.world)
    rows = torch.cat([inputs, torch.ones(len(inputs), 1)], dim=1)
    slope = 2 / len(rows) * rows.T @ (rows @ model - targets[:, 0])
    zero = model == 0
    assert zero.any()
    # The optimality conditions of the mean loss plus weight · ‖z‖₁.
    torch.testing.assert_close(slope[~zero], -weight * model[~zero].sign(), rtol=0, atol=2e-3)
    assert (slope[zero].abs() <= weight + 2e-3).all()


def _solve(rank: int, world: int, l1: float) -> tuple[list[float], float, float]:
    torch.set_num_threads(1)
    model = tasks.linear_model(rank + 1)
    inputs, targets = tasks.rows(rank)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    s: Any
    with netsum.strategy("admm", model, optimizer, every=10, l1=l1) as s:
        for _ in range(600):
            with s.step():
                tasks.mean_square(model, inputs, targets).backward()
    return s.vector().tolist(), s.primal, s.dual
