"""Codistillation: groups that are synchronous within, and agree more with one another than groups trained apart."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch

import netsum
from host_agent.errors import MisuseError
from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("share", ["checkpoints", "predictions"])
def test_churn_between_the_groups_is_less_than_between_groups_trained_apart(
    gloo_ranks: Ranks, share: str
) -> None:
    apart, together = (
        gloo_ranks.run(_train, {"share": share, "every": 5, "weight": weight}) for weight in (0.0, 1.0)
    )
    for results in (apart, together):
        # Two groups of two ranks: one model each.
        assert results[0][0] == results[1][0] != results[2][0] == results[3][0]
    assert _churn(together) < _churn(apart)
    assert sum(right for _, _, right in together) >= sum(right for _, _, right in apart) - 0.04


def _churn(results: list[Any]) -> float:
    """Return the mean distance of what two groups predict."""
    return float((torch.tensor(results[0][1]) - torch.tensor(results[2][1])).abs().sum(1).mean())


def _train(rank: int, world: int, options: dict[str, Any]) -> tuple[list[float], list[list[float]], float]:
    from netsum.digits.dataset import load_digits, shard

    torch.set_num_threads(1)
    torch.manual_seed(rank)
    train, test = load_digits(0)
    # With predictions, worker i of each group has the same batches; it may be so with checkpoints.
    own = shard(train, rank % 2, 2)
    inputs, targets = torch.from_numpy(own.pixels), torch.from_numpy(own.digits)
    model = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    with netsum.strategy("codistillation", model, optimizer, **options) as s:
        for step in range(40):
            batch = slice(step % 20 * 32, step % 20 * 32 + 32)
            with s.step():
                outputs = model(inputs[batch])
                loss = torch.nn.functional.cross_entropy(outputs, targets[batch])
                s.loss(loss, inputs[batch], outputs).backward()
    with torch.no_grad():
        outputs = model(torch.from_numpy(test.pixels))
    right = (outputs.argmax(1) == torch.from_numpy(test.digits)).float().mean().item()
    return s.vector().tolist(), outputs.softmax(1).tolist(), right


def test_a_teacher_predicts_as_the_other_groups_model_does_when_it_is_not_trained(gloo_ranks: Ranks) -> None:
    results = gloo_ranks.run(_taught)
    for place in range(2):
        for own, other in ((place, place + 2), (place + 2, place)):
            assert results[own][0] == pytest.approx(results[other][1], rel=1e-5)


def _taught(rank: int, world: int) -> tuple[float, float]:
    """Return the loss by the teacher's predictions, and the loss by this worker's own, of the same outputs."""
    torch.manual_seed(rank)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3)
    )
    inputs, targets = torch.randn(12, 4) + rank, torch.arange(12) % 3
    probe, outputs = torch.linspace(-1, 1, 20).view(5, 4), torch.arange(15.0).view(5, 3).sin()
    with netsum.strategy("codistillation", model, torch.optim.SGD(model.parameters(), 0.5), every=1) as s:
        for _ in range(3):
            with s.step():
                torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        taught = s.loss(torch.zeros(()), probe, outputs).item()
        model.eval()
        with torch.no_grad():
            own = torch.nn.functional.cross_entropy(outputs, model(probe).softmax(1)).item()
    return taught, own


def test_workers_that_do_not_divide_are_refused(gloo_ranks: Ranks) -> None:
    assert gloo_ranks.run(_uneven)[0] == "strategy codistillation: 4 workers cannot be divided into 3 groups"


def _uneven(rank: int, world: int) -> str:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(MisuseError) as refusal:
        netsum.strategy("codistillation", model, torch.optim.SGD(model.parameters(), 0.1), groups=3)
    return str(refusal.value)
