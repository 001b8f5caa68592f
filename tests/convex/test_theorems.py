"""Claims of the papers on compressed differences, reproduced on real data with workers that differ."""

from typing import Any, Literal

import pytest

pytest.importorskip("torch", exc_type=ImportError)

import torch

pytest.importorskip("sklearn.datasets", reason="needs scikit-learn")

from host_agent.compression import make_compressor, make_memory
from tests.convex import theory
from tests.convex.data import problem
from tests.convex.minimize import minimize
from tests.convex.problems import Ridge


@pytest.mark.parametrize("kind", ["ridge", "logistic"])
def test_the_optimum_is_one_and_the_workers_differ(kind: str) -> None:
    task = problem(kind)
    optimum = task.optimum()
    gradients = torch.stack([task.gradient(worker, optimum) for worker in range(task.workers)])
    assert float(gradients.mean(dim=0).norm()) < 1e-12
    assert float(gradients.norm(dim=1).min()) > 1e-2


@pytest.mark.parametrize(
    ("kind", "name", "options", "steps"),
    [
        ("ridge", "block-float", {"bits": 4}, 300),
        ("ridge", "terngrad", {}, 1300),
        ("logistic", "block-float", {"bits": 8}, 600),
    ],
)
def test_diana_reaches_the_optimum_within_the_theorems_steps(
    kind: str, name: str, options: dict[str, int], steps: int
) -> None:
    task = problem(kind)
    omega = make_compressor(name, **options).omega(task.dimension, task.workers)
    assert omega is not None
    step = theory.diana_step(task.smoothness(), omega, task.workers)
    run = minimize(
        task, lambda: make_compressor(name, **options), lambda: make_memory("diana"), step=step, steps=steps
    )
    reached = run.steps_to(1e-10)
    assert reached is not None
    assert reached <= theory.steps_to(theory.diana_rate(step, task.convexity(), omega), 1e-10)


@pytest.mark.parametrize(("name", "options"), [("qsgd", {"levels": 1}), ("terngrad", {})])
def test_without_memory_the_same_step_stalls(name: str, options: dict[str, int]) -> None:
    task = problem("ridge")
    omega = make_compressor(name, **options).omega(task.dimension, task.workers)
    assert omega is not None
    step = theory.diana_step(task.smoothness(), omega, task.workers)
    plain = minimize(
        task, lambda: make_compressor(name, **options), lambda: make_memory("none"), step=step, steps=300
    )
    assert min(plain.distances[100:]) > 1e-3


@pytest.mark.parametrize("estimator", ["l-svrg", "saga"])
def test_vr_diana_converges_with_stochastic_gradients(estimator: Literal["l-svrg", "saga"]) -> None:
    task = problem("ridge")
    settings: dict[str, Any] = {"step": 1.0 / (2 * task.row_smoothness()), "steps": 500, "batch": 8}
    quantized = lambda: make_compressor("block-float", bits=4)  # noqa: E731
    reduced = minimize(task, quantized, lambda: make_memory("diana"), estimator=estimator, **settings)
    sampled = minimize(task, quantized, lambda: make_memory("diana"), estimator="sampled", **settings)
    assert reduced.distances[-1] < 0.1 * min(sampled.distances[-100:])


def test_isega_with_one_coordinate_of_each_worker_keeps_to_the_theorys_factor() -> None:
    """`python -m tests.convex` shows it for a hundred workers and 1 % of a hundred coordinates."""
    workers = 20
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(workers, 12, 20, generator=generator, dtype=torch.float64)
    targets = torch.randn(workers, 12, generator=generator, dtype=torch.float64)
    task = Ridge(features, targets, 2.0)
    smoothness = task.smoothness()
    omega = make_compressor("random-k-independent", fraction=0.05).omega(task.dimension, task.workers)
    assert omega == 19
    full = minimize(
        task,
        lambda: make_compressor("identity"),
        lambda: make_memory("none"),
        step=theory.gradient_descent_step(smoothness),
        steps=40,
    ).steps_to(1e-2)
    isega = minimize(
        task,
        lambda: make_compressor("random-k-independent", fraction=0.05),
        lambda: make_memory("diana"),
        step=theory.diana_step(smoothness, omega, workers),
        steps=400,
        accuracy=1e-2,
    ).steps_to(1e-2)
    assert full is not None
    assert isega is not None
    # The step is 1 + 6 ω/n times smaller; the shifts need 2 (1 + ω) steps for each factor e.
    assert isega <= max((1 + 6 * omega / workers) * full, theory.steps_to(1 - 1 / 40, 1e-2))


def test_independent_blocks_converge_if_the_gradients_vanish_at_the_optimum() -> None:
    """ISGD's and IBGD's case: every worker agrees about the optimum, here 0."""
    workers = 20
    features = torch.randn(workers, 30, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    solution = torch.ones(40, dtype=torch.float64)
    task = Ridge(features, features @ solution, 1e-9)
    omega = make_compressor("random-k-independent", fraction=0.05).omega(task.dimension, task.workers)
    assert omega is not None
    for estimator, smoothness in (("full", task.smoothness()), ("sampled", task.row_smoothness())):
        run = minimize(
            task,
            lambda: make_compressor("random-k-independent", fraction=0.05),
            lambda: make_memory("none"),
            step=theory.compressed_descent_step(smoothness, omega, workers),
            steps=300,
            estimator=estimator,  # type: ignore[arg-type]
            batch=4,
        )
        assert run.distances[-1] < 0.2 * run.distances[0], estimator
        assert run.distances[-1] < run.distances[150]
