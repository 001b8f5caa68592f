"""Strategies with a parameter server: results, staleness, bounds, and a worker that fails."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch

import netsum
from host_agent.errors import MisuseError
from tests.host_agent.strategies import tasks
from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch


def _run(s: Any, rank: int, steps: int) -> None:
    inputs, targets = tasks.rows(rank)
    with s:
        if s.serves:
            s.serve()
            return
        for _ in range(steps):
            with s.step():
                tasks.mean_square(s.model, inputs, targets).backward()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("downpour", {}),
        ("downpour", {"fetch": 3, "push_every": 2}),
        ("stale-synchronous", {"bound": 0}),
        ("easgd", {"every": 2}),
    ],
)
def test_all_end_with_the_servers_model_and_a_tenth_of_the_loss(
    gloo_ranks: Ranks, name: str, options: dict[str, Any]
) -> None:
    results = gloo_ranks.run(_solve, name, options)
    assert all(model == results[0][0] for model, _ in results)
    model = tasks.linear_model()
    torch.nn.utils.vector_to_parameters(torch.tensor(results[0][0], dtype=torch.float64), model.parameters())
    inputs, targets = (torch.cat(each) for each in zip(*map(tasks.rows, (1, 2, 3)), strict=True))
    start = tasks.mean_square(tasks.linear_model(), inputs, targets).item()
    assert tasks.mean_square(model, inputs, targets).item() < 0.1 * start


def _solve(rank: int, world: int, name: str, options: dict[str, Any]) -> tuple[list[float], int]:
    torch.set_num_threads(1)
    model = tasks.linear_model(rank + 1)
    s: Any = netsum.strategy(name, model, torch.optim.SGD(model.parameters(), 0.02), **options)
    _run(s, rank, 120)
    return s.vector().tolist(), s.version


def test_downpour_reports_the_staleness_of_each_push(gloo_ranks: Ranks) -> None:
    staleness, version = gloo_ranks.run(_staleness)[0]
    assert len(staleness) == version == 3 * 10
    assert min(staleness) >= 0
    # Over all pushes, each push is between the pull and the push of another worker at most twice.
    assert max(staleness) > 0


def _staleness(rank: int, world: int) -> tuple[list[int], int]:
    model = tasks.linear_model()
    s: Any = netsum.strategy("downpour", model, torch.optim.SGD(model.parameters(), 0.01), fetch=5)
    _run(s, rank, 10)
    return s.staleness, s.version


def test_no_worker_is_farther_ahead_than_the_bound(gloo_ranks: Ranks) -> None:
    assert max(gloo_ranks.run(_leads)[0]) <= 2 + 1


def _leads(rank: int, world: int) -> list[int]:
    model = tasks.linear_model()
    s: Any = netsum.strategy("stale-synchronous", model, torch.optim.SGD(model.parameters(), 0.01), bound=2)
    leads = []
    apply = s.apply

    def applied(gradient: Any) -> None:
        clocks = s._clocks.values()
        leads.append(max(clocks) - min(clocks))
        apply(gradient)

    s.apply = applied
    # Rank 3 has five times as much to compute in a step as the others; without the bound they would be at the end first.
    inputs, targets = tasks.rows(rank, 20_000 if rank == 3 else 8)
    with s:
        if s.serves:
            s.serve()
        else:
            for _ in range(15):
                with s.step():
                    tasks.mean_square(s.model, inputs, targets).backward()
    return leads or [0]


def test_the_server_goes_on_without_a_worker_that_fails() -> None:
    with Ranks(4, backend="gloo") as ranks:
        results = ranks.run(_killed)
    lost, version, model = results[0]
    assert list(lost) == [2]
    assert version == 2 * 6 + 3
    assert results[2] is None
    assert results[1][2] == results[3][2] == model


def _killed(rank: int, world: int) -> tuple[dict[int, str], int, list[float]]:
    import os
    import warnings

    warnings.simplefilter("ignore")
    model = tasks.linear_model()
    s: Any = netsum.strategy("downpour", model, torch.optim.SGD(model.parameters(), 0.01))
    if rank == 2:
        inputs, targets = tasks.rows(rank)
        with s:
            for _ in range(3):
                with s.step():
                    tasks.mean_square(s.model, inputs, targets).backward()
            s.pull()  # The answer shows that the last push has arrived.
            os._exit(9)
    _run(s, rank, 6)
    return s.lost, s.version, s.vector().tolist()


def test_a_step_at_the_server_says_what_to_call(gloo_ranks: Ranks) -> None:
    assert gloo_ranks.run(_misused) == ["serve", *[""] * 3]


def _misused(rank: int, world: int) -> str:
    model = tasks.linear_model()
    s: Any = netsum.strategy("downpour", model, torch.optim.SGD(model.parameters(), 0.01))
    if rank:
        _run(s, rank, 2)
        return ""
    with s:
        with pytest.raises(MisuseError, match=r"call serve\(\) there"), s.step():
            pass
        s.serve()
    return "serve"
