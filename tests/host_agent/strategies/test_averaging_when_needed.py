"""FedAvg and dynamic model averaging: results, times and amounts of communication."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch

import netsum
from tests.host_agent.strategies import tasks
from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch


# FedAvg


def test_an_average_is_weighted_by_the_numbers_of_samples(gloo_ranks: Ranks) -> None:
    results = gloo_ranks.run(_weighted)
    assert {average for average, _ in results} == {results[0][0]}
    sizes = [1, 2, 3, 4]
    assert results[0][0] == pytest.approx(
        sum(n * own for n, (_, own) in zip(sizes, results, strict=True)) / 10
    )


def _weighted(rank: int, world: int) -> tuple[float, float]:
    model = tasks.linear_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    inputs, targets = tasks.rows(rank)
    own = 0.0
    s: Any
    with netsum.strategy("fedavg", model, optimizer, samples=rank + 1) as s:
        for chosen in s.rounds(1):
            assert chosen
            for _ in range(rank + 1):  # Clients take different numbers of steps.
                with s.step():
                    tasks.mean_square(model, inputs, targets).backward()
            own = s.vector()[0].item()
    return s.vector()[0].item(), own


def test_all_clients_know_which_are_sampled(gloo_ranks: Ranks) -> None:
    rounds = list(zip(*gloo_ranks.run(_sampled), strict=True))
    assert [sum(each) for each in rounds] == [2] * 12
    assert len(set(rounds)) > 1, "not the same clients in every round"
    assert all(any(each[client] for each in rounds) for client in range(gloo_ranks.world))


def _sampled(rank: int, world: int) -> list[bool]:
    model = tasks.linear_model()
    s: Any
    with netsum.strategy(
        "fedavg", model, torch.optim.SGD(model.parameters(), 0.1), samples=5, fraction=0.5
    ) as s:
        return list(s.rounds(12))


TARGET = 0.9
"""Accuracy on the test images; within seconds on small shards."""


def test_more_local_epochs_take_fewer_rounds_on_digits_of_few_classes_each(gloo_ranks: Ranks) -> None:
    # As in McMahan et al., table 2, where FedSGD takes most rounds, then E = 1, 5 and 20.
    sgd, one, five, twenty = (
        gloo_ranks.run(_rounds_to_target, *setting)[0] for setting in ((1, 0), (1, 16), (5, 16), (20, 16))
    )
    assert twenty <= five < one < sgd


def _rounds_to_target(rank: int, world: int, epochs: int, batch: int) -> int:
    """Return after how many rounds the accuracy is reached; each client has two shards of the images in the order of digits."""
    from netsum.digits.dataset import load_digits

    torch.set_num_threads(1)
    torch.manual_seed(0)
    train, test = load_digits(0)
    shards = np.array_split(train.digits.argsort(kind="stable"), 2 * world)
    own = train.select(np.concatenate([shards[rank], shards[rank + world]]))
    inputs, targets = torch.from_numpy(own.pixels), torch.from_numpy(own.digits)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    limit = 150
    s: Any
    with netsum.strategy("fedavg", model, optimizer, samples=len(own)) as s:
        generator = torch.Generator().manual_seed(rank)
        for _ in s.rounds(limit):
            with torch.no_grad():
                right = model(torch.from_numpy(test.pixels)).argmax(1) == torch.from_numpy(test.digits)
            if right.float().mean() >= TARGET:
                break  # At all clients in the same round: they have the same model.
            for _ in range(epochs):
                permutation = torch.randperm(len(own), generator=generator)
                for chosen in permutation.split(batch or len(own)):
                    with s.step():
                        torch.nn.functional.cross_entropy(model(inputs[chosen]), targets[chosen]).backward()
    return int(s.round)


# Dynamic averaging


def test_nothing_but_the_check_is_sent_while_all_conditions_hold(gloo_ranks: Ranks) -> None:
    results = gloo_ranks.run(_dynamic, {"threshold": 1e9}, 8)
    # A start (rank 0 alone sends it), eight checks of four int32, and the average at the end.
    assert [result["bytes_sent"] for result in results] == [56 + 8 * 16 + 56, *[8 * 16 + 56] * 3]


def test_with_a_threshold_of_0_it_averages_every_step(gloo_ranks: Ranks) -> None:
    dynamic = gloo_ranks.run(_dynamic, {"threshold": 0}, 5)
    local = gloo_ranks.run(_local, 5)
    for one, other in zip(dynamic, local, strict=True):
        assert one["model"] == pytest.approx(other["model"])
    assert dynamic[0]["full"] == 5 + 1


def _dynamic(rank: int, world: int, options: dict[str, Any], steps: int) -> dict[str, Any]:
    s = tasks.train("dynamic-averaging", rank, steps, **options)
    return {**tasks.summary(s), "full": s.full, "partial": s.partial}


def _local(rank: int, world: int, steps: int) -> dict[str, Any]:
    return tasks.summary(tasks.train("local-sgd", rank, steps, sync_every=1))


def test_one_model_that_moves_away_is_averaged_with_few_others(gloo_ranks: Ranks) -> None:
    results = gloo_ranks.run(_push_one)
    weights, partial, full = zip(*results, strict=True)
    # Rank 1 is at 2, squared 4: with one other at 0 the mean is 1, squared 1 <= 1.5.
    assert sorted(weights) == [0.0, 0.0, 1.0, 1.0]
    assert weights[1] == 1.0
    assert partial == (1,) * 4
    assert full == (0,) * 4


def _push_one(rank: int, world: int) -> tuple[float, int, int]:
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    s: Any
    with netsum.strategy("dynamic-averaging", model, optimizer, threshold=1.5) as s:
        with s.step():
            (model.weight * (-2.0 if rank == 1 else 0.0)).sum().backward()
        return model.weight.item(), s.partial, s.full


def test_with_drift_it_sends_5_times_fewer_bytes_for_the_same_loss(gloo_ranks: Ranks) -> None:
    # The solution changes once, in the middle. Both look at the models every four steps.
    options = {"dynamic-averaging": {"threshold": 3.0, "every": 4}, "local-sgd": {"sync_every": 4}}
    totals = {}
    for name, of_it in options.items():
        losses, sent = zip(*gloo_ranks.run(_drift, name, of_it), strict=True)
        totals[name] = sum(losses), sum(sent)
    dynamic, periodic = totals["dynamic-averaging"], totals["local-sgd"]
    assert periodic[1] >= 5 * dynamic[1]
    assert dynamic[0] <= 1.02 * periodic[0]


def _drift(rank: int, world: int, name: str, options: dict[str, Any]) -> tuple[float, int]:
    """Return the cumulative loss of predictions made before each step, and the bytes at this worker's link."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(rank)
    features, steps = 50, 400
    model = torch.nn.Linear(features, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    solutions = [torch.linspace(-1, 1, features), torch.linspace(1, -1, features)]
    total = 0.0
    s: Any
    with netsum.strategy(name, model, optimizer, **options) as s:
        for step in range(steps):
            inputs = torch.randn(10, features, generator=generator)
            targets = inputs @ solutions[step * 2 // steps] + 0.3 * torch.randn(10, generator=generator)
            with s.step():
                loss = torch.nn.functional.mse_loss(model(inputs)[:, 0], targets)
                loss.backward()
            total += loss.item()
    return total, s.traffic.bytes_sent + s.traffic.bytes_received
