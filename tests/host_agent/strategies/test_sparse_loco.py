"""SparseLoCo beside a NumPy oracle, gathered and added; bytes."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch

import netsum
from host_agent.compression import Reducer, make_compressor, make_memory, reduce_in_process
from tests.virtual.group import run_workers

pytestmark = pytest.mark.torch

WORKERS, SIDE, RATE = 4, 24, 0.05


def problem(worker: int) -> tuple[np.ndarray, np.ndarray]:
    inputs = np.random.default_rng(worker).normal(size=(16, SIDE))
    goal = np.random.default_rng(99).normal(size=(SIDE, SIDE))
    return inputs, inputs @ goal.T


def bfloat16(values: np.ndarray) -> np.ndarray:
    """Round to 8 significant bits, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def largest(chunk: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-np.abs(chunk))[:count]


def two_magnitudes(chunks: list[np.ndarray], count: int, leader: int) -> list[np.ndarray]:
    """The largest of each worker's chunk, as the means of those above and of those below their mean."""
    found = []
    for chunk in chunks:
        places = largest(chunk, count)
        sizes = np.abs(chunk[places])
        high = sizes > sizes.mean(dtype=np.float32)
        out = np.zeros_like(chunk)
        for part in (high, ~high):
            if part.any():
                mean = bfloat16(sizes[part].mean(dtype=np.float32, keepdims=True))
                out[places[part]] = np.sign(chunk[places[part]]) * mean
        found.append(out)
    return found


def signs_at_the_leaders_places(chunks: list[np.ndarray], count: int, leader: int) -> list[np.ndarray]:
    """Minus one, nothing or one times the mean of the leader's largest, where the leader's chunk has these."""
    places = largest(chunks[leader], count)
    scale = np.abs(chunks[leader][places]).mean(dtype=np.float32)
    found = [np.zeros_like(chunk) for chunk in chunks]
    for out, chunk in zip(found, chunks, strict=True):
        out[places] = np.rint(chunk[places] / scale).clip(-1, 1) * scale
    return found


def oracle(sent_of: Any, rounds: int, steps: int, chunk: int, fraction: float, decay: float) -> np.ndarray:
    """Algorithm 1 of the paper on a linear model, in NumPy; inner steps are plain gradient descent."""
    outer = np.zeros(SIDE * SIDE)
    errors = np.zeros((WORKERS, outer.size))
    for number in range(rounds):
        for worker in range(WORKERS):
            inputs, targets = problem(worker)
            weights = outer.reshape(SIDE, SIDE).copy()
            for _ in range(steps):
                weights -= RATE * 2 / targets.size * (inputs @ weights.T - targets).T @ inputs
            errors[worker] = decay * errors[worker] + (outer - weights.ravel())
        narrow = errors.astype(np.float32)
        parts = [
            sent_of(list(narrow[:, at : at + chunk]), round(chunk * fraction), number % WORKERS)
            for at in range(0, outer.size, chunk)
        ]
        sent = np.concatenate([np.array(part) for part in parts], axis=1)
        errors -= sent
        outer = outer - np.add.reduce(sent) / np.float32(WORKERS)
    return outer


def made(group: Any, compression: Any, **options: Any) -> Any:
    model = torch.nn.Linear(SIDE, SIDE, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    options |= {"sync_every": 5, "compression": compression, "group": group}
    return netsum.strategy("sparse-loco", model, optimizer, **options)


def run(s: Any, rank: int, steps: int) -> None:
    inputs, targets = map(torch.from_numpy, problem(rank))
    for _ in range(steps):
        with s.step():
            torch.nn.functional.mse_loss(s.model(inputs), targets).backward()


def trained(rank: int, group: Any, rounds: int, compression: Any, **options: Any) -> Any:
    with made(group, compression, **options) as s:
        run(s, rank, 5 * rounds)
    return s


@pytest.mark.parametrize(
    ("compressor", "sent_of"),
    [("chunk-top-k", two_magnitudes), ("agreed-chunk-top-k", signs_at_the_leaders_places)],
)
def test_each_variant_is_its_oracle(compressor: str, sent_of: Any) -> None:
    def body(rank: int, group: Any, world: Any) -> np.ndarray:
        made = make_compressor(compressor, fraction=1 / 8, chunk=64)
        return np.asarray(trained(rank, group, 20, made, decay=0.9).vector())

    results, _ = run_workers(WORKERS, body)
    expected = oracle(sent_of, 20, 5, 64, 1 / 8, 0.9)
    assert all((each == results[0]).all() for each in results)
    assert np.abs(results[0] - expected).max() <= 1e-7


@pytest.mark.parametrize("compressor", ["chunk-top-k", "agreed-chunk-top-k"])
def test_both_variants_learn_what_synchronous_steps_learn(compressor: str) -> None:
    goal = problem(0)

    def body(rank: int, group: Any, world: Any) -> tuple[float, list[float]]:
        made = make_compressor(compressor, fraction=1 / 8, chunk=64)
        s = trained(rank, group, 400, made, outer_rate=0.7)
        inputs, targets = map(torch.from_numpy, goal)
        loss = float(torch.nn.functional.mse_loss(s.model(inputs), targets).detach())
        return loss, s.vector().tolist()

    results, _ = run_workers(WORKERS, body)
    before = float((goal[1] ** 2).mean())
    assert [each[1] for each in results] == [results[0][1]] * WORKERS
    assert all(loss < 0.02 * before for loss, _ in results)


@pytest.mark.parametrize("workers", [4, 16])
def test_bytes_of_both_variants(workers: int) -> None:
    """At the defaults a chunk of 4,096 has 64 values. Gathered: 12 + 2 bits each and two magnitudes of every worker. Added:
    the places and a scale once, and a field of 4 bits (four workers) or 6 bits (16) for the sum."""
    chunks = 16
    tensors = [
        torch.randn(4096 * chunks, generator=torch.Generator().manual_seed(rank)) for rank in range(workers)
    ]
    received = {}
    for name in ("chunk-top-k", "agreed-chunk-top-k"):
        reducers = [
            Reducer(make_compressor(name), make_memory("residual"), r, workers) for r in range(workers)
        ]
        reduce_in_process(reducers, "x", tensors)
        total = reducers[1].total()
        received[name] = (
            total.bytes_agreed + total.bytes_payload
            if name.startswith("agreed")
            else workers * total.bytes_payload
        )
    assert received["chunk-top-k"] == workers * chunks * (96 + 16 + 4)
    fields = {4: 7, 16: 5}[workers]
    assert received["agreed-chunk-top-k"] == chunks * (96 + 4) + 4 * -(-64 * chunks // fields)
    assert received["agreed-chunk-top-k"] < received["chunk-top-k"] / (workers / 1.5)


@pytest.mark.parametrize("compressor", ["chunk-top-k", "agreed-chunk-top-k"])
def test_a_checkpoint_continues_bit_by_bit(compressor: str) -> None:
    def body(rank: int, group: Any, world: Any) -> bool:
        with made(group, compressor) as s:
            run(s, rank, 12)
            state, weights = s.state_dict(), {key: each.clone() for key, each in s.model.state_dict().items()}
            run(s, rank, 12)
        again = made(group, compressor)
        again.model.load_state_dict(weights)
        again.load_state_dict(state)
        with again:
            run(again, rank, 12)
        return bool(torch.equal(s.vector(), again.vector()) and s.steps == again.steps)

    assert all(run_workers(WORKERS, body)[0])
