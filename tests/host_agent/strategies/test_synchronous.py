"""Synchronous SGD: the same as one process with the whole batch; large-batch rules."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch

import netsum
from tests.host_agent.strategies import tasks
from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch


def test_it_is_one_process_with_the_whole_batch(gloo_ranks: Ranks) -> None:
    results = gloo_ranks.run(_train, {"momentum": 0.9})
    model = tasks.linear_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for _ in range(10):
        optimizer.zero_grad()
        tasks.mean_square(model, *tasks.all_rows(gloo_ranks.world)).backward()
        optimizer.step()
    expected = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
    assert [result["model"] for result in results] == [results[0]["model"]] * gloo_ranks.world
    torch.testing.assert_close(torch.tensor(results[0]["model"], dtype=torch.float64), expected)
    # Each step one all-reduce of seven float64 parameters; the broadcast at the start comes from rank 0.
    assert [result["bytes_sent"] for result in results] == [11 * 56, 560, 560, 560]
    assert results[0]["synchronizations"] == 11


def _train(rank: int, world: int, options: dict[str, Any]) -> dict[str, object]:
    return tasks.summary(tasks.train("synchronous", rank, 10, **options))


def test_accumulated_gradients_are_those_of_a_larger_batch(gloo_ranks: Ranks) -> None:
    accumulated, steps, traffic = gloo_ranks.run(_accumulate)[0]
    plain = gloo_ranks.run(_train, {})[0]["model"]
    torch.testing.assert_close(torch.tensor(accumulated), torch.tensor(plain))
    assert (steps, traffic) == (10, 10 * 56 + 56)


def _accumulate(rank: int, world: int) -> tuple[list[float], int, int]:
    model = tasks.linear_model(rank + 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    inputs, targets = tasks.rows(rank)
    with netsum.strategy("synchronous", model, optimizer, accumulate=2) as s:
        for micro in range(20):
            half = slice(0, 4) if micro % 2 == 0 else slice(4, 8)
            with s.step():
                tasks.mean_square(model, inputs[half], targets[half]).backward()
    return s.vector().tolist(), s.steps, s.traffic.bytes_sent


def test_the_rate_warms_up_to_the_number_of_workers_and_a_scheduler_keeps_its_own(gloo_ranks: Ranks) -> None:
    assert gloo_ranks.run(_rates)[2] == [(1.0, 1.0), (2.5, 0.5), (4.0, 0.25), (4.0, 0.125)]


def _rates(rank: int, world: int) -> list[tuple[float, float]]:
    model = tasks.linear_model()
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    seen: list[float] = []
    optimizer.register_step_pre_hook(lambda o, *_: seen.append(o.param_groups[0]["lr"]))
    kept = []
    with netsum.strategy("synchronous", model, optimizer, scale_rate=True, warmup_steps=2) as s:
        for _ in range(4):
            kept.append(scheduler.get_last_lr()[0])
            with s.step():
                tasks.mean_square(model, *tasks.rows(rank)).backward()
            scheduler.step()
    return [(used / own, own) for used, own in zip(seen, kept, strict=True)]


def test_lars_moves_each_weight_by_a_share_of_its_norm(gloo_ranks: Ranks) -> None:
    moved, norm = gloo_ranks.run(_lars)[1]
    assert moved == pytest.approx(0.01 * norm)


def _lars(rank: int, world: int) -> tuple[float, float]:
    model = tasks.linear_model()
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    with netsum.strategy("synchronous", model, optimizer, trust=0.01) as s:
        before = model.weight.detach().clone()
        with s.step():
            (1000 * tasks.mean_square(model, *tasks.rows(rank))).backward()
    return (model.weight - before).norm().item(), before.norm().item()
