"""Every pairing of compressor and memory converges where the workers' gradients differ, or is refused before the first step.

``python -m tests.host_agent.compression.test_pairings`` prints the table of docs/compression.md.
"""

import re
from typing import Any, Final

import pytest

pytest.importorskip("torch", exc_type=ImportError)

import torch

from host_agent.compression import (
    COMPRESSORS,
    MEMORIES,
    IncompatibleError,
    Reducer,
    make_compressor,
    make_memory,
    reduce_in_process,
)

WORKERS = 3
SHAPE = (4, 8)
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "qsgd": {"levels": 1},
    "powersgd": {"rank": 1},
    **{
        name: {"fraction": 0.25}
        for name in (
            *("random-k", "random-k-independent", "random-block-float", "top-k", "dgc", "agreed-top-k"),
            *("chunk-top-k", "agreed-chunk-top-k"),
        )
    },
}
"""So that the errors of quantizers are large, and those of sparsifiers such that some hundred steps suffice."""


def distance_with(
    compressor: str, memory: str, step: float | None = None, options: dict[str, Any] | None = None
) -> float:
    """Minimize the mean of quadratics of condition number 4 with different optima; return the last distance over the first.

    The step is half of what the error allows, unless one is given: δ / 2 of a contraction, 1 / (2 + 2ω) of an unbiased
    compressor; with momentum 0.9 a fourth of that. There are 16 divided by it steps.
    """
    generator = torch.Generator().manual_seed(1)
    curvature = torch.logspace(-0.6, 0, 32).view(SHAPE)
    centres = torch.randn(SHAPE, generator=generator) + torch.randn(WORKERS, *SHAPE, generator=generator)
    optimum = centres.mean(dim=0)
    options = options or OPTIONS.get(compressor, {})
    reducers = [
        Reducer(make_compressor(compressor, **options), make_memory(memory), rank, WORKERS)
        for rank in range(WORKERS)
    ]
    delta, omega = (
        bound(32, WORKERS) for bound in (reducers[0].compressor.delta, reducers[0].compressor.omega)
    )
    step = step or (1 / (1 + omega) if omega is not None else max(delta or 0.25, 0.1)) / 2
    step, steps = (step / 4, round(32 / step)) if memory == "momentum" else (step, round(16 / step))
    point = torch.zeros(SHAPE)
    for _ in range(steps):
        gradients = [curvature * (point - centre) for centre in centres]
        point = point - step * reduce_in_process(reducers, "x", gradients)[0]
    return float((point - optimum).norm() / optimum.norm())


REFUSED: Final = {
    "ef21": "needs a contractive compressor",
    "diana": "needs an unbiased compressor|declares no omega",
    "residual": "a worker cannot know what was lost",
    "momentum": "a worker cannot know what was lost",
}


def outcome(compressor: str, memory: str) -> float | str:
    """Return the distance, or why the pairing is refused."""
    try:
        return distance_with(compressor, memory)
    except IncompatibleError as error:
        return str(error)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_a_pairing_converges_or_is_refused(compressor: str, memory: str) -> None:
    found = outcome(compressor, memory)
    if isinstance(found, str):
        assert re.search(REFUSED[memory], found)
    else:
        # Without a memory the error of a biased compressor stays; a memory corrects it.
        assert found < (0.8 if memory in ("none", "average") else 0.4)


OMEGA: Final = 15.0  # random-k's with 2 of 32 elements


@pytest.mark.parametrize(("memory", "bound"), [("none", 1 / (1 + OMEGA)), ("diana", 1 / (1 + 6 * OMEGA))])
def test_random_k_converges_with_the_theorems_step_and_not_with_that_of_dense_training(
    memory: str, bound: float
) -> None:
    options = {"fraction": 2 / 32}
    assert make_compressor("random-k", **options).omega(32, WORKERS) == OMEGA
    assert distance_with("random-k", memory, bound, options) < 0.1
    assert distance_with("identity", memory, 0.3) < 0.1
    assert not distance_with("random-k", memory, 0.3, options) < 1.0


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("| compressor |", " | ".join(MEMORIES), "|")
    for each in COMPRESSORS:
        row = (outcome(each, memory) for memory in MEMORIES)
        print(
            f"| {each} |",
            " | ".join("refused" if isinstance(x, str) else f"{x:.2g}" for x in row),
            "|",
            flush=True,
        )
