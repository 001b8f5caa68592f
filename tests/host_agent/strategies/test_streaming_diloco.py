"""Streaming DiLoCo: fragments, overlap and mixing beside a NumPy oracle; 4-bit outer gradients; checkpoints."""

from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch

import netsum
from host_agent.errors import MisuseError
from tests.host_agent.strategies import tasks
from tests.integration.torch_ranks import Ranks
from tests.virtual.group import run_workers
from tests.virtual.network import UniformLinks
from tests.virtual.timeline import replay

pytestmark = pytest.mark.torch

RATE, WORKERS = 0.05, 4
STREAMING: dict[str, Any] = {
    "sync_every": 9, "fragments": 3, "fragment_sync_delay": 2, "fragment_update_alpha": 0.25, "outer_momentum": 0.6
}  # fmt: skip


def oracle(
    steps: int,
    *,
    sync_every: int,
    fragments: int = 1,
    fragment_sync_delay: int = 0,
    fragment_update_alpha: float = 0.0,
    outer_rate: float = 0.7,
    outer_momentum: float = 0.9,
) -> list[np.ndarray]:
    """Algorithm 2 of the paper on the linear task, in NumPy; return each worker's model after every step of its own."""
    data = [tuple(each.numpy() for each in tasks.rows(worker)) for worker in range(WORKERS)]
    first = np.concatenate(
        [each.detach().numpy().ravel() for each in tasks.linear_model(seed=1).parameters()]
    )
    outer, momentum = first.copy(), np.zeros_like(first)
    models = [first.copy() for _ in range(WORKERS)]
    edges = [number * first.size // fragments for number in range(fragments + 1)]
    sent: dict[int, tuple[int, np.ndarray]] = {}  # By the step at which the average is due.
    history = []
    for step in range(1, steps + 1):
        for model, (inputs, targets) in zip(models, data, strict=True):
            error = inputs @ model[:-1] + model[-1] - targets[:, 0]
            model -= RATE * 2 / len(error) * np.append(inputs.T @ error, error.sum())
        for offset in range(fragments):
            own = slice(edges[offset], edges[offset + 1])
            if step % sync_every == (offset + 1) * (sync_every // fragments) % sync_every:
                sent[step + fragment_sync_delay] = (
                    offset,
                    np.mean([outer[own] - model[own] for model in models], axis=0),
                )
        if step in sent:
            offset, gradient = sent.pop(step)
            own = slice(edges[offset], edges[offset + 1])
            momentum[own] = outer_momentum * momentum[own] + gradient
            outer[own] -= outer_rate * (gradient + outer_momentum * momentum[own])
            for model in models:
                model[own] = fragment_update_alpha * model[own] + (1 - fragment_update_alpha) * outer[own]
        history.append(np.array(models))
    return history


def _trace(rank: int, steps: int, options: dict[str, Any], world: Any = None, **common: Any) -> Any:
    """Train the linear task; return the strategy, and its models after every step."""
    model = tasks.linear_model(seed=rank + 1)
    inputs, targets = tasks.rows(rank)
    models = []
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    with netsum.strategy("diloco", model, optimizer, **options, **common) as s:
        for _ in range(steps):
            with s.step():
                if world is not None:
                    world.compute(1.0)
                tasks.mean_square(model, inputs, targets).backward()
            models.append(s.vector().numpy().copy())
    return s, models


def _over_gloo(rank: int, world: int, steps: int, options: dict[str, Any]) -> tuple[Any, Any]:
    torch.set_num_threads(1)
    s, models = _trace(rank, steps, options)
    return s.vector().tolist(), models


@pytest.mark.parametrize(
    "options",
    [
        {"sync_every": 4},
        {"sync_every": 6, "fragments": 3},
        {"sync_every": 8, "fragments": 2, "fragment_sync_delay": 3},
        STREAMING,
    ],
)
def test_each_step_of_each_worker_is_that_of_the_oracle(options: dict[str, Any]) -> None:
    results, _ = run_workers(WORKERS, lambda rank, group, world: _trace(rank, 25, options, group=group)[1])
    expected = oracle(25, **options)
    for rank, models in enumerate(results):
        assert np.abs(np.array(models) - np.array([each[rank] for each in expected])).max() <= 1e-7


def test_a_thread_averages_over_a_group_of_its_own_and_all_end_with_one_model(gloo_ranks: Ranks) -> None:
    results = gloo_ranks.run(_over_gloo, 25, STREAMING)
    expected = oracle(25, **STREAMING)
    for rank, (_, models) in enumerate(results):
        assert np.abs(np.array(models) - np.array([each[rank] for each in expected])).max() <= 1e-7
    assert [end for end, _ in results] == [results[0][0]] * WORKERS


def test_a_worker_computes_on_while_a_fragment_is_averaged() -> None:
    def time(**options: Any) -> float:
        def body(rank: int, group: Any, world: Any) -> float:
            _trace(rank, 24, {"sync_every": 8, **options}, world, group=group)
            return float(world.now)

        return max(run_workers(WORKERS, body, UniformLinks(1.5))[0])

    start = 24 + 1.5  # Steps, and the model of rank 0.
    assert time() == start + 3 * 1.5
    assert time(fragments=2) == start + 6 * 1.5 + 1.5
    # Averages of two fragments each in three rounds are hidden, but for those at the end.
    assert time(fragments=2, fragment_sync_delay=2) <= start + 3 * 1.5


def _traced(options: dict[str, Any], rank: int, group: Any, world: Any) -> None:
    _trace(rank, 8, options, group=group)


def test_no_more_than_a_fragment_is_sent_at_a_time() -> None:
    for fragments in (1, 2, 4):
        body = partial(_traced, {"sync_every": 8, "fragments": fragments})
        _, world = run_workers(WORKERS, body)
        sizes = [each[3] for each in world.events[0] if each[0] == "meet"][1:]
        assert max(sizes) == -(-7 // fragments) * 8
        assert replay(world.events, WORKERS, UniformLinks()) == {}


def _wide(options: dict[str, Any], rank: int, group: Any, world: Any) -> tuple[float, int]:
    """Fit a matrix; return the distance from it relative to the start, and the bytes that this worker sent."""
    torch.manual_seed(0)
    model, goal = torch.nn.Linear(64, 64, bias=False), torch.randn(64, 64)
    before = float((model.weight - goal).detach().norm())
    inputs = torch.randn(120, 32, 64, generator=torch.Generator().manual_seed(rank))
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    with netsum.strategy("diloco", model, optimizer, group=group, **options) as s:
        for each in inputs:
            with s.step():
                torch.nn.functional.mse_loss(model(each), each @ goal.T).backward()
    return float((model.weight - goal).detach().norm()) / before, int(s.traffic.bytes_sent)


@pytest.mark.parametrize(("workers", "fields"), [(4, 5), (8, 4)])
def test_outer_gradients_of_4_bits_are_a_fifth_or_a_quarter_of_the_bytes(workers: int, fields: int) -> None:
    options = {"sync_every": 12, "fragments": 4, "fragment_sync_delay": 2, "outer_momentum": 0.5}
    whole, small = (
        run_workers(workers, partial(_wide, chosen))[0]
        for chosen in (options, {**options, "should_quantize": True})
    )
    start = 64 * 64 * 4  # The model of rank 0.
    ratio = (small[1][1]) / (whole[1][1])
    # A lane of 32 bits for so many fields, and a scale of 4 bytes for every block of 256 elements.
    assert 1 / fields + 1 / 256 <= ratio <= 1 / fields + 1 / 256 + 0.01
    assert whole[0][1] - start == whole[1][1]
    assert small[0][0] <= 1.1 * whole[0][0] + 0.01


def test_a_checkpoint_while_a_fragment_is_under_way_continues_bit_by_bit(gloo_ranks: Ranks) -> None:
    for quantized in (False, True):
        options = {**STREAMING, "should_quantize": quantized}
        for whole, continued in gloo_ranks.run(_checkpoint, options):
            assert (whole["model"], whole["steps"]) == (continued["model"], continued["steps"])


def _checkpoint(rank: int, world: int, options: dict[str, Any]) -> tuple[Any, Any]:
    torch.set_num_threads(1)
    inputs, targets = tasks.rows(rank)

    def run(s: Any, steps: int) -> None:
        for _ in range(steps):
            with s.step():
                tasks.mean_square(s.model, inputs, targets).backward()

    model = tasks.linear_model()
    with netsum.strategy("diloco", model, torch.optim.SGD(model.parameters(), RATE), **options) as s:
        run(s, 10)  # The third fragment is under way.
        state, weights = s.state_dict(), {name: each.clone() for name, each in model.state_dict().items()}
        assert state["_arrived"] is not None
        run(s, 8)
    whole = tasks.summary(s)
    other = tasks.linear_model(seed=5)
    other.load_state_dict(weights)
    again = netsum.strategy("diloco", other, torch.optim.SGD(other.parameters(), RATE), **options)
    again.load_state_dict(state)
    with again:
        run(again, 8)
    return whole, tasks.summary(again)


@pytest.mark.parametrize("wrong", [{"fragments": 4}, {"fragments": 3, "fragment_sync_delay": 3}])
def test_a_schedule_that_does_not_fit_is_refused(wrong: dict[str, Any]) -> None:
    def body(rank: int, group: Any, world: Any) -> str:
        with pytest.raises(MisuseError) as refusal:
            _trace(rank, 0, {"sync_every": 9, **wrong}, group=group)
        return str(refusal.value)

    assert "strategy diloco: expected fragments that divide sync_every" in run_workers(1, body)[0][0]
