"""Local SGD, post-local SGD and DiLoCo: results, and savings of bytes."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch

import netsum
from tests.host_agent.strategies import tasks
from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch


def _train(rank: int, world: int, name: str, steps: int, options: dict[str, Any]) -> dict[str, Any]:
    return tasks.summary(tasks.train(name, rank, steps, **options))


def _models(results: list[dict[str, Any]]) -> torch.Tensor:
    assert all(result["model"] == results[0]["model"] for result in results), "the workers end with one model"
    return torch.tensor(results[0]["model"], dtype=torch.float64)


def _alone(worker: int, steps: int) -> torch.Tensor:
    """The model that one worker has after some steps of its own."""
    model = tasks.linear_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        tasks.mean_square(model, *tasks.rows(worker)).backward()
        optimizer.step()
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()])


def _train_in_groups(rank: int, world: int, options: dict[str, Any]) -> list[list[float]]:
    """Return the model after each of four steps."""
    model = tasks.linear_model(seed=rank + 1)
    models: list[list[float]] = [[]]
    with netsum.strategy("hierarchical", model, torch.optim.SGD(model.parameters(), 0.05), **options) as s:
        for _ in range(4):
            with s.step():
                tasks.mean_square(model, *tasks.rows(rank)).backward()
            models.append(s.vector().tolist())
    return models


def _bytes_in_groups(rank: int, world: int) -> tuple[int, int]:
    s = tasks.train("hierarchical", rank, 16, every=2, between=4)
    return s.traffic.bytes_sent - s.bytes_between, s.bytes_between


def test_local_sgd_with_every_1_is_synchronous(gloo_ranks: Ranks) -> None:
    # Without momentum the mean of the models after a step is the model after a step with the mean of the gradients.
    local = _models(gloo_ranks.run(_train, "local-sgd", 6, {"sync_every": 1}))
    torch.testing.assert_close(local, _models(gloo_ranks.run(_train, "synchronous", 6, {})))


def test_local_sgd_is_the_mean_of_models_trained_apart(gloo_ranks: Ranks) -> None:
    averaged = _models(gloo_ranks.run(_train, "local-sgd", 4, {"sync_every": 4}))
    apart = [_alone(worker, 4) for worker in range(gloo_ranks.world)]
    torch.testing.assert_close(averaged, torch.stack(apart).mean(0))


def test_steps_left_over_are_averaged_at_the_end(gloo_ranks: Ranks) -> None:
    results = gloo_ranks.run(_train, "local-sgd", 7, {"sync_every": 3})
    _models(results)
    assert results[0]["synchronizations"] == 1 + 3


def test_post_local_sgd_begins_synchronously(gloo_ranks: Ranks) -> None:
    results = gloo_ranks.run(_train, "local-sgd", 12, {"sync_every": 4, "after": 4})
    assert results[1]["synchronizations"] == 1 + 4 + 2
    early = _models(gloo_ranks.run(_train, "local-sgd", 4, {"sync_every": 4, "after": 4}))
    torch.testing.assert_close(early, _models(gloo_ranks.run(_train, "synchronous", 4, {})))


def test_hierarchical_averages_groups_then_all(gloo_ranks: Ranks) -> None:
    # Four workers in two groups: after two steps the means of each group, after four the mean of all.
    results = gloo_ranks.run(_train_in_groups, {"groups": 2, "every": 2, "between": 2})
    assert results[0][2] == results[1][2] != results[2][2] == results[3][2]
    assert len({tuple(each[4]) for each in results}) == 1
    apart = [_alone(worker, 2) for worker in range(4)]
    expected = torch.stack(apart[:2]).mean(0)
    torch.testing.assert_close(torch.tensor(results[0][2], dtype=torch.float64), expected)


def test_hierarchical_with_one_group_or_average_is_local_sgd(gloo_ranks: Ranks) -> None:
    local = _models(gloo_ranks.run(_train, "local-sgd", 8, {"sync_every": 2}))
    one_group = _models(gloo_ranks.run(_train, "hierarchical", 8, {"groups": 1, "every": 2, "between": 4}))
    torch.testing.assert_close(one_group, local)
    always_all = _models(gloo_ranks.run(_train, "hierarchical", 8, {"groups": 2, "every": 2, "between": 1}))
    torch.testing.assert_close(always_all, local)


def test_hierarchical_counts_what_goes_between_groups(gloo_ranks: Ranks) -> None:
    for within, between in gloo_ranks.run(_bytes_in_groups)[1:]:  # Rank 0 also sends the first model.
        assert within == 3 * between > 0


def test_diloco_with_a_plain_outer_step_is_local_sgd(gloo_ranks: Ranks) -> None:
    plain = {"sync_every": 3, "outer_rate": 1.0, "outer_momentum": 0.0}
    torch.testing.assert_close(
        _models(gloo_ranks.run(_train, "diloco", 9, plain)),
        _models(gloo_ranks.run(_train, "local-sgd", 9, {"sync_every": 3})),
    )


def test_the_outer_step_of_diloco_is_torch_nesterov(gloo_ranks: Ranks) -> None:
    # One step is every: the outer gradient is rate · the mean gradient, so that all of it can be done in one process.
    result = _models(
        gloo_ranks.run(_train, "diloco", 5, {"sync_every": 1, "outer_rate": 0.6, "outer_momentum": 0.8})
    )
    model = tasks.linear_model()
    outer = torch.optim.SGD(model.parameters(), 0.6, momentum=0.8, nesterov=True)
    for _ in range(5):
        outer.zero_grad()
        (0.05 * tasks.mean_square(model, *tasks.all_rows(gloo_ranks.world))).backward()
        outer.step()
    expected = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
    torch.testing.assert_close(result, expected)


def test_diloco_of_50_steps_sends_at_least_40_times_fewer_bytes_for_the_same_loss(gloo_ranks: Ranks) -> None:
    # The paper's momentum of 0.9 is for hundreds of outer steps; here are ten.
    rare = gloo_ranks.run(_train, "diloco", 500, {"sync_every": 50, "outer_momentum": 0.3, "count": 32})
    often = gloo_ranks.run(_train, "synchronous", 500, {"count": 32})
    for few, many in zip(rare, often, strict=True):
        assert many["bytes_sent"] >= 40 * few["bytes_sent"]
    inputs, targets = tasks.all_rows(gloo_ranks.world, 32)
    losses = []
    for results in (rare, often):
        model = tasks.linear_model()
        torch.nn.utils.vector_to_parameters(_models(results), model.parameters())
        losses.append(tasks.mean_square(model, inputs, targets).item())
    assert losses[0] <= 1.05 * losses[1]
