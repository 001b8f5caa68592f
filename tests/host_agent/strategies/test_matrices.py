"""Dion beside a NumPy oracle of one worker with all gradients, Muon beside torch.optim.Muon; bytes, checkpoints, refusals."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
from torch import Tensor, nn

import netsum
from host_agent.errors import MisuseError
from tests.integration.torch_ranks import Ranks
from tests.virtual.group import run_workers

pytestmark = pytest.mark.torch

WORKERS, RATE = 4, 0.1


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def data(worker: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(worker)
    inputs = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    return inputs, torch.randn(8, 3, generator=generator, dtype=torch.float64)


def made(name: str, model: nn.Sequential, **options: Any) -> Any:
    vectors = [each for each in model.parameters() if each.dim() == 1]
    return netsum.strategy(name, model, torch.optim.SGD(vectors, RATE), **options)


def trained(name: str, worker: int, steps: int, /, **options: Any) -> tuple[list[np.ndarray], Any]:
    """Train the network; return its parameters, and the strategy."""
    model = network()
    with made(name, model, **options) as s:
        run(s, worker, steps)
    return [each.detach().numpy().copy() for each in model.parameters()], s


def run(s: Any, rank: int, steps: int) -> None:
    inputs, targets = data(rank)
    for _ in range(steps):
        with s.step():
            nn.functional.mse_loss(s.model(inputs), targets).backward()


def gradients(parameters: list[np.ndarray], worker: int) -> list[np.ndarray]:
    first, bias, last, offset = parameters
    inputs, targets = (each.numpy() for each in data(worker))
    hidden = np.tanh(inputs @ first.T + bias)
    error = 2 * (hidden @ last.T + offset - targets) / targets.size
    inner = error @ last * (1 - hidden**2)
    return [inner.T @ inputs, inner.sum(0), error.T @ hidden, error.sum(0)]


def dion_with_all_gradients(steps: int, rank: int, rate: float, momentum: float) -> list[np.ndarray]:
    """Algorithm 1 of the paper at one worker, in NumPy."""
    parameters = [each.detach().numpy().copy() for each in network().parameters()]
    generator = torch.Generator().manual_seed(0)
    buffers = {place: np.zeros_like(parameters[place]) for place in (0, 2)}
    directions = {
        place: torch.randn(parameters[place].shape[1], rank, generator=generator).numpy() for place in (0, 2)
    }
    for _ in range(steps):
        every = [gradients(parameters, worker) for worker in range(WORKERS)]
        for place, mean in enumerate([np.mean(each, axis=0) for each in zip(*every, strict=True)]):
            if place not in buffers:
                parameters[place] -= RATE * mean
                continue
            whole = buffers[place] + mean
            basis = np.linalg.qr(whole @ directions[place])[0]
            factor = whole.T @ basis
            buffers[place] = whole - (1 - momentum) * basis @ factor.T
            directions[place] = factor / np.linalg.norm(factor, axis=0)
            rows, columns = whole.shape
            parameters[place] -= rate * np.sqrt(rows / columns) * basis @ directions[place].T
    return parameters


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_workers_that_average_factors_take_the_step_of_one_with_all_gradients(rank: int) -> None:
    options: dict[str, Any] = {"rank": rank, "rate": 0.03, "momentum": 0.9}
    results, _ = run_workers(
        WORKERS, lambda worker, group, _: trained("dion", worker, 12, group=group, **options)[0]
    )
    expected = dion_with_all_gradients(12, **options)
    for own in results:
        assert max(np.abs(a - b).max() for a, b in zip(own, expected, strict=True)) <= 1e-7
        assert all((a == b).all() for a, b in zip(own, results[0], strict=True))


def test_dion_sends_rank_times_rows_and_columns_of_a_matrix() -> None:
    def body(rank: int, group: Any, world: Any) -> int:
        return int(trained("dion", rank, 10, group=group, rank=2)[1].traffic.bytes_sent)

    sent = run_workers(WORKERS, body)[0][1]
    assert sent == 10 * 8 * (2 * (5 + 6) + 2 * (3 + 5) + 5 + 3)


def muon_with_all_gradients(steps: int) -> list[np.ndarray]:
    """torch.optim.Muon at one worker, on gradients that are added in the order of ranks."""
    model = network()
    matrices = [each for each in model.parameters() if each.dim() == 2]
    vectors = [each for each in model.parameters() if each.dim() == 1]
    optimizers = [torch.optim.Muon(matrices, lr=0.02, weight_decay=0.0), torch.optim.SGD(vectors, RATE)]
    for _ in range(steps):
        every = []
        for worker in range(WORKERS):
            model.zero_grad()
            inputs, targets = data(worker)
            nn.functional.mse_loss(model(inputs), targets).backward()
            every.append([each.grad.clone() for each in model.parameters() if each.grad is not None])
        for each, parts in zip(model.parameters(), zip(*every, strict=True), strict=True):
            each.grad = sum(parts[1:], parts[0]) / WORKERS
        for optimizer in optimizers:
            optimizer.step()
    return [each.detach().numpy() for each in model.parameters()]


@pytest.mark.parametrize("workers", [WORKERS])
def test_muon_with_a_matrix_at_each_worker_is_torch_muon(workers: int) -> None:
    results, _ = run_workers(workers, lambda rank, group, _: trained("muon", rank, 8, group=group)[0])
    expected = muon_with_all_gradients(8)
    for own in results:
        assert max(np.abs(a - b).max() for a, b in zip(own, expected, strict=True)) <= 1e-7


def _over_gloo(rank: int, world: int, name: str) -> list[list[float]]:
    torch.set_num_threads(1)
    return [each.ravel().tolist() for each in trained(name, rank, 8)[0]]


@pytest.mark.parametrize("name", ["dion", "muon"])
def test_collectives_of_torch_give_the_same(gloo_ranks: Ranks, name: str) -> None:
    results = gloo_ranks.run(_over_gloo, name)
    alone, _ = run_workers(WORKERS, lambda rank, group, _: trained(name, rank, 8, group=group)[0])
    assert results == [results[0]] * WORKERS
    for one, other in zip(results[0], alone[0], strict=True):
        assert np.abs(np.array(one) - other.ravel()).max() <= (1e-7 if name == "dion" else 1e-2)


@pytest.mark.parametrize("name", ["dion", "muon"])
def test_a_checkpoint_continues_bit_by_bit(name: str) -> None:
    def body(rank: int, group: Any, world: Any) -> bool:
        model = network()
        with made(name, model, group=group) as s:
            run(s, rank, 4)
            state, weights = s.state_dict(), {key: each.clone() for key, each in model.state_dict().items()}
            run(s, rank, 4)
        other = network()
        other.load_state_dict(weights)
        again = made(name, other, group=group)
        again.load_state_dict(state)
        with again:
            run(again, rank, 4)
        return bool(torch.equal(s.vector(), again.vector()) and s.steps == again.steps)

    assert all(run_workers(WORKERS, body)[0])


@pytest.mark.parametrize("name", ["dion", "muon"])
def test_a_state_of_a_group_of_another_size_goes_on_and_all_have_the_same_model(name: str) -> None:
    def body(rank: int, group: Any, world: Any) -> tuple[Any, dict[str, Tensor], list[float]]:
        model = network()
        s = made(name, model, group=group)
        if kept:
            s.load_state_dict(kept[0][0])
            model.load_state_dict(kept[0][1])
        with s:
            run(s, rank, 4)
        own = s.state_dict(), {key: each.clone() for key, each in model.state_dict().items()}
        return *own, s.vector().tolist()

    kept: list[Any] = []
    for workers in (WORKERS, WORKERS - 1, WORKERS):
        kept = run_workers(workers, body)[0]
        assert [each[2] for each in kept] == [kept[0][2]] * workers
        assert kept[0][0]["steps"] % 4 == 0


@pytest.mark.parametrize("name", ["dion", "muon"])
def test_an_optimizer_that_has_the_matrices_is_refused(name: str) -> None:
    def body(rank: int, group: Any, world: Any) -> str:
        model = network()
        with pytest.raises(MisuseError) as refusal:
            netsum.strategy(name, model, torch.optim.SGD(model.parameters(), RATE), group=group)
        return str(refusal.value)

    assert "expected an optimizer with all parameters but the matrices" in run_workers(1, body)[0][0]
