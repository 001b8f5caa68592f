"""Decoupled DiLoCo beside a NumPy oracle in virtual time, with slow and new learners, from a checkpoint, and over sockets."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

import netsum
from tests.host_agent.strategies import tasks
from tests.host_agent.strategies.test_backup import DEADLINE_S, _service
from tests.integration.torch_ranks import Ranks
from tests.virtual.group import run_workers

pytestmark = pytest.mark.torch

WORKERS, RATE, EVERY, OUTER, MOMENTUM = 4, 0.05, 3, 0.5, 0.6


def made(group: Any, rank: int, quorum: int, rounds: int) -> Any:
    model = tasks.linear_model(seed=rank + 1)
    options = {"sync_every": EVERY, "outer_rate": OUTER, "outer_momentum": MOMENTUM}
    communicator = group.communicator(quorum)
    return netsum.strategy(
        "decoupled-diloco",
        model,
        torch.optim.SGD(model.parameters(), RATE),
        group=group,
        communicator=communicator,
        rounds=rounds,
        **options,
    )


def run(s: Any, rank: int, world: Any, seconds: float) -> None:
    inputs, targets = tasks.rows(rank)
    for _ in s.training():
        with s.step():
            world.compute(seconds)
            tasks.mean_square(s.model, inputs, targets).backward()


def trained(quorum: int, seconds: list[float], rounds: int = 12) -> list[dict[str, Any]]:
    """Train with learners that take these times for a step; return what each has in the end."""

    def body(rank: int, group: Any, world: Any) -> dict[str, Any]:
        s = made(group, rank, quorum, rounds)
        with s:
            run(s, rank, world, seconds[rank])
        found = {"model": s.vector().numpy(), "late": s.late, "in": s.contributed, "at": world.now}
        return {**found, "offers": s.steps // EVERY}

    return run_workers(WORKERS, body)[0]


def oracle(quorum: int, seconds: list[float], rounds: int) -> np.ndarray:
    """Learners and the switch, event by event, in NumPy; no two learners hand in at the same time, or all are in."""
    first = np.concatenate(
        [each.detach().numpy().ravel() for each in tasks.linear_model(seed=1).parameters()]
    )
    data = [tuple(each.numpy() for each in tasks.rows(worker)) for worker in range(WORKERS)]
    models, outers = ([first.copy() for _ in range(WORKERS)] for _ in "ab")
    momenta, taken = [np.zeros_like(first) for _ in range(WORKERS)], [0] * WORKERS
    offered: list[dict[int, np.ndarray]] = [{} for _ in range(rounds + 1)]  # To each round, in order.
    sent: dict[int, np.ndarray] = {}
    ready = [(each * EVERY, worker) for worker, each in enumerate(seconds)]
    waiting: set[int] = set()

    def offer(worker: int, change: np.ndarray) -> None:
        sent[worker] = change
        if len(offered[taken[worker]]) < quorum:
            offered[taken[worker]][worker] = change

    def take(worker: int, now: float) -> None:
        model, outer = models[worker], outers[worker]
        left, last = outer - model, False
        while taken[worker] < rounds and len(offered[taken[worker]]) == quorum:
            members = offered[taken[worker]]
            gradient = np.mean([members[each] for each in sorted(members)], axis=0)
            momenta[worker] = MOMENTUM * momenta[worker] + gradient
            outer = outer - OUTER * (gradient + MOMENTUM * momenta[worker])
            if last := worker in members:
                left = left - sent[worker]
            taken[worker] += 1
        del sent[worker]
        models[worker], outers[worker] = outer - left, outer
        if not last and taken[worker] < rounds:
            offer(worker, left)
        if taken[worker] < rounds:
            ready.append((now + EVERY * seconds[worker], worker))

    while ready:
        now, worker = min(ready)
        ready.remove((now, worker))
        inputs, targets = data[worker]
        for _ in range(EVERY):
            error = inputs @ models[worker][:-1] + models[worker][-1] - targets[:, 0]
            models[worker] -= RATE * 2 / len(error) * np.append(inputs.T @ error, error.sum())
        if worker not in sent:
            offer(worker, outers[worker] - models[worker])
        waiting.add(worker)
        while ended := [each for each in sorted(waiting) if len(offered[taken[each]]) == quorum]:
            waiting.remove(ended[0])
            take(ended[0], now)
    assert taken == [rounds] * WORKERS
    return outers[0]


EVEN = [1.0] * WORKERS


def test_with_all_learners_each_outer_step_is_that_of_the_oracle() -> None:
    expected = oracle(WORKERS, EVEN, 12)
    for each in trained(WORKERS, EVEN):
        assert np.abs(each["model"] - expected).max() <= 1e-7
        assert (each["in"], each["late"]) == (12, 0)


@pytest.mark.parametrize("seconds", [[1.0, 1.001, 1.002, 1.5], [1.0, 1.13, 2.71, 7.4], [3.1, 1.0, 1.2, 1.01]])
def test_with_late_learners_each_outer_step_is_that_of_the_oracle(seconds: list[float]) -> None:
    expected = oracle(3, seconds, 25)
    found = trained(3, seconds, 25)
    assert sum(each["late"] for each in found) >= 10
    for each in found:
        assert np.abs(each["model"] - expected).max() <= 1e-7


def test_a_learner_ten_times_slower_delays_no_other_and_has_the_same_model() -> None:
    slowest = [1.0, 1.0, 1.0, 10.0]
    even, slow, waiting = trained(3, EVEN), trained(3, slowest), trained(4, slowest)
    assert all((each["model"] == slow[0]["model"]).all() for each in slow)
    assert slow[0]["at"] == even[0]["at"] == 12 * EVERY
    assert waiting[0]["at"] == 10 * slow[0]["at"]
    assert sum(each["in"] for each in slow) == 3 * 12


@pytest.mark.parametrize(("slower", "least"), [(1.01, 20), (2.5, 14), (10.0, 3)])
def test_a_slower_learner_is_late_once_and_then_in_the_next_outer_step(slower: float, least: int) -> None:
    *_, slow = trained(3, [1.0, 1.0, 1.0, slower], rounds=40)
    assert slow["in"] >= least
    assert slow["in"] >= slow["offers"] // 2


def test_what_only_a_slower_learner_has_seen_is_learned() -> None:
    def body(rank: int, group: Any, world: Any) -> float:
        model = torch.nn.Linear(1, 1, bias=False)
        options = {"communicator": group.communicator(3), "rounds": 60, "sync_every": EVERY}
        optimizer = torch.optim.SGD(model.parameters(), RATE)
        s: Any = netsum.strategy("decoupled-diloco", model, optimizer, group=group, **options)
        inputs = torch.ones(1, 1) if rank == WORKERS - 1 else torch.zeros(1, 1)
        with s:
            for _ in s.training():
                with s.step():
                    world.compute(2.5 if rank == WORKERS - 1 else 1.0)
                    (model(inputs) - 5.0).square().mean().backward()
        return float(model.weight.detach())

    assert run_workers(WORKERS, body)[0] == pytest.approx([5.0] * WORKERS, abs=0.5)


def test_a_checkpoint_continues_bit_by_bit() -> None:
    def halves(parts: tuple[int, ...]) -> list[Any]:
        kept: dict[int, Any] = {}

        def body(rank: int, group: Any, world: Any) -> Any:
            s = made(group, rank, WORKERS, parts[-1] if kept else parts[0])
            if rank in kept:
                s.load_state_dict(kept[rank][0])
                s.model.load_state_dict(kept[rank][1])
            with s:
                run(s, rank, world, 1.0)
            kept[rank] = s.state_dict(), {key: each.clone() for key, each in s.model.state_dict().items()}
            return s.vector().tolist()

        return [run_workers(WORKERS, body)[0] for _ in parts][-1]

    assert halves((12,)) == halves((5, 7))


def test_a_training_goes_on_with_fewer_learners_and_with_a_new_one() -> None:
    def body(rank: int, group: Any, world: Any) -> tuple[Any, list[float], float]:
        s = made(group, rank, 2, 12)
        if kept:
            s.load_state_dict(kept[0][0])
            torch.nn.utils.vector_to_parameters(torch.tensor(kept[0][1]).double(), s.model.parameters())
        with s:
            run(s, rank, world, 1.0 + rank)
        loss = tasks.mean_square(s.model, *tasks.all_rows(3)).item()
        return s.state_dict(), s.vector().tolist(), loss

    kept: list[Any] = []
    losses = []
    for workers in (3, 2, 3):
        kept = run_workers(workers, body)[0]
        assert [each[1] for each in kept] == [kept[0][1]] * workers
        losses.append(kept[0][2])
    assert losses == sorted(losses, reverse=True)


def _over_sockets(rank: int, world: int, quorum: int) -> Any:
    torch.set_num_threads(1)
    place: dict[str, Any] = {"rank": rank, "world_size": world, "quorum": quorum, "timeout_s": DEADLINE_S}
    membership = netsum.join(_service(rank, world), job=f"decoupled-{quorum}", **place)
    model, (inputs, targets) = tasks.linear_model(seed=rank + 1), tasks.rows(rank)
    options = {"sync_every": EVERY, "outer_rate": OUTER, "outer_momentum": MOMENTUM, "rounds": 12}
    with membership, membership.communicator(timeout_s=DEADLINE_S) as comm:
        optimizer = torch.optim.SGD(model.parameters(), RATE)
        s: Any = netsum.strategy("decoupled-diloco", model, optimizer, communicator=comm, **options)
        with s:
            for _ in s.training():
                with s.step():
                    tasks.mean_square(model, inputs, targets).backward()
        dist.barrier()
        return s.vector().tolist(), s.contributed, s.steps // EVERY - s.contributed - s.late


@pytest.mark.parametrize("quorum", [3, 4])
def test_over_sockets_all_learners_have_one_model(gloo_ranks: Ranks, quorum: int) -> None:
    models, contributed, uncounted = zip(*gloo_ranks.run(_over_sockets, quorum), strict=True)
    assert list(models) == [models[0]] * WORKERS
    assert sum(contributed) == quorum * 12
    assert uncounted == (0,) * WORKERS
    if quorum == WORKERS:
        assert np.abs(np.array(models[0]) - oracle(WORKERS, EVEN, 12)).max() <= 1e-5
