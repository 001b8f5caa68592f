"""Codistillation: steps to a loss beside one group of twice the size, and how far two trainings' predictions differ."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn

import netsum
from bench.claims.claim import Claim, Outcome, Say
from bench.strategies_training import BATCH, mlp, shards
from netsum.virtual.group import run_workers

__all__ = ["CODISTILLATION", "churn", "train"]

STEPS: Final = 200
IMAGES: Final = 200
"""For training: few, so that more workers soon gain nothing."""
_EVERY: Final = 10
_NEAR: Final = 1.02
"""Times the least loss of the larger group: what is to be reached."""
_RATES: Final = (0.2, 0.4)
_OPTIONS: Final = {"every": _EVERY, "burn_in": 20, "weight": 1.0}


def train(name: str, workers: int, rate: float, seed: int) -> tuple[list[float], Tensor]:
    """Train on the digits; return the first worker's loss on the test images every ten steps, and its predictions at the end."""
    data = shards(2, 0, skewed=False)
    inputs, targets = (torch.cat(each)[:IMAGES] for each in zip(*data.parts, strict=True))
    losses: list[float] = []

    def worker(rank: int, group: Any, world: Any) -> Tensor:
        torch.manual_seed(1000 * seed + rank)
        model = mlp(64)
        generator = torch.Generator().manual_seed(1000 * seed + rank)
        options = _OPTIONS if name == "codistillation" else {}
        with netsum.strategy(
            name, model, torch.optim.SGD(model.parameters(), rate), group=group, **options
        ) as s:
            for step in range(STEPS):
                chosen = torch.randint(len(targets), (BATCH,), generator=generator)
                with s.step():
                    outputs = model(inputs[chosen])
                    s.loss(
                        nn.functional.cross_entropy(outputs, targets[chosen]), inputs[chosen], outputs
                    ).backward()
                if rank == 0 and (step + 1) % _EVERY == 0:
                    with torch.no_grad():
                        losses.append(float(nn.functional.cross_entropy(model(data.test[0]), data.test[1])))
        with torch.no_grad():
            return nn.functional.softmax(model(data.test[0]), dim=1)

    results, _ = run_workers(workers, worker)
    return losses, results[0]


def churn(one: Tensor, other: Tensor) -> float:
    """Return the mean absolute difference of two models' probabilities, as Anil et al. measure it."""
    return float((one - other).abs().mean())


def _run(say: Say) -> Outcome:
    kinds = {
        "one group of 2": ("synchronous", 2),
        "one group of 4": ("synchronous", 4),
        "two groups of 2": ("codistillation", 4),
    }
    best: dict[str, tuple[float, list[float], Tensor]] = {}
    for kind, (name, workers) in kinds.items():
        for rate in _RATES:
            say(f"{kind}, rate {rate:g}")
            losses, predicted = train(name, workers, rate, 0)
            if kind not in best or min(losses) < min(best[kind][1]):
                best[kind] = (rate, losses, predicted)
    target = _NEAR * min(best["one group of 4"][1])
    steps = {kind: _steps_to(losses, target) for kind, (_, losses, _) in best.items()}
    differences = {}
    for kind, (name, workers) in kinds.items():
        say(f"{kind}, second training")
        differences[kind] = churn(best[kind][2], train(name, workers, best[kind][0], 1)[1])
    rows = [
        (
            kind,
            f"{best[kind][0]:g}",
            f"{min(best[kind][1]):.4f}",
            "-" if steps[kind] is None else str(steps[kind]),
            f"{differences[kind]:.4f}",
        )
        for kind in kinds
    ]
    small, large, two = (steps[kind] for kind in kinds)
    scaled = "not reached" if small is None else f"{small} steps"
    return Outcome(
        ("workers", ">rate", ">least loss", f">steps to {target:.4f}", ">churn"),
        rows,
        [
            (
                f"twice the workers no longer halve the steps: {scaled} with 2, {large} with 4",
                small is not None and large is not None and small < 2 * large,
            ),
            (
                f"two groups: {'not reached' if two is None else f'{two} steps'}; one group of 4: {large}",
                two is not None and large is not None and two < large,
            ),
            (
                f"churn {differences['two groups of 2']:.4f}, without codistillation {differences['one group of 4']:.4f}",
                differences["two groups of 2"] < differences["one group of 4"],
            ),
        ],
        f"{IMAGES} digits, MLP of 64 hidden units, batches of {BATCH} a worker, {STEPS} steps, the best of rates "
        f"{', '.join(f'{rate:g}' for rate in _RATES)} for each; checkpoints every {_EVERY} steps",
    )  # fmt: skip


def _steps_to(losses: list[float], target: float) -> int | None:
    return next((_EVERY * (at + 1) for at, each in enumerate(losses) if each <= target), None)


CODISTILLATION: Final = Claim(
    "codistillation",
    "two groups reach a loss in fewer steps than one group of twice the size, and two trainings differ less",
    "Anil et al. 2018, arXiv:1804.03235, sections 3.2 and 3.5",
    _run,
)
