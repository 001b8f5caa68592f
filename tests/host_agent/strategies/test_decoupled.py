"""Decoupled DiLoCo in virtual time: beside a NumPy oracle, with a slow learner, and from a checkpoint."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch

import netsum
from netsum.virtual.group import run_workers
from tests.host_agent.strategies import tasks

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


def trained(quorum: int, slowest: float, rounds: int = 12) -> list[dict[str, Any]]:
    def body(rank: int, group: Any, world: Any) -> dict[str, Any]:
        s = made(group, rank, quorum, rounds)
        with s:
            run(s, rank, world, slowest if rank == WORKERS - 1 else 1.0)
        return {
            "model": s.vector().numpy(),
            "late": s.late,
            "in": s.contributed,
            "steps": s.steps,
            "at": world.now,
        }

    return run_workers(WORKERS, body)[0]


def oracle(rounds: int) -> np.ndarray:
    """Learners of equal speed with a quorum of all, in NumPy."""
    outer = np.concatenate(
        [each.detach().numpy().ravel() for each in tasks.linear_model(seed=1).parameters()]
    )
    momentum = np.zeros_like(outer)
    for _ in range(rounds):
        changes = []
        for worker in range(WORKERS):
            inputs, targets = (each.numpy() for each in tasks.rows(worker))
            model = outer.copy()
            for _ in range(EVERY):
                error = inputs @ model[:-1] + model[-1] - targets[:, 0]
                model -= RATE * 2 / len(error) * np.append(inputs.T @ error, error.sum())
            changes.append(outer - model)
        momentum = MOMENTUM * momentum + np.mean(changes, axis=0)
        outer = outer - OUTER * (np.mean(changes, axis=0) + MOMENTUM * momentum)
    return outer


def test_with_all_learners_each_outer_step_is_that_of_the_oracle() -> None:
    expected = oracle(12)
    for each in trained(WORKERS, 1.0):
        assert np.abs(each["model"] - expected).max() <= 1e-7
        assert (each["in"], each["late"]) == (12, 0)


def test_a_learner_ten_times_slower_delays_no_other_and_has_the_same_model() -> None:
    even, slow, waiting = trained(3, 1.0), trained(3, 10.0), trained(4, 10.0)
    assert all((each["model"] == slow[0]["model"]).all() for each in slow)
    assert slow[0]["at"] == even[0]["at"] == 12 * EVERY
    assert waiting[0]["at"] == 10 * slow[0]["at"]
    assert slow[3]["late"] > 0
    assert sum(each["in"] for each in slow) == 3 * 12


def test_a_late_change_goes_into_the_next_one() -> None:
    """A slow learner that is needed now and then keeps the result of its steps while the others went on."""
    inputs, targets = tasks.rows(WORKERS - 1)
    start = float(tasks.mean_square(tasks.linear_model(seed=1), inputs, targets).detach())
    for each in trained(3, 2.5, rounds=40):
        model = tasks.linear_model()
        torch.nn.utils.vector_to_parameters(torch.from_numpy(each["model"]), model.parameters())
        assert float(tasks.mean_square(model, inputs, targets).detach()) < 0.1 * start


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
