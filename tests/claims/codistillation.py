"""Codistillation: steps to a loss beside one group of twice the size, and how far two trainings' predictions differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

import netsum
from netsum.digits.dataset import load_digits
from tests.claims.claim import Claim, ClaimResult, Echo
from tests.strategies.training import mlp
from tests.virtual.group import run_workers

IMAGES: Final = 512  # For training; all others are for validation.
NOISE: Final = 0.2  # Part of the images whose label is drawn at random, in training and in validation.
BATCH: Final = 128  # Batch of a worker: so large that the noise of the gradient hardly matters.
STEPS: Final = 500
SEEDS: Final = range(3)
RATES: Final = tuple(
    round(10 ** (third / 3), 5) for third in range(-10, -6)
)  # Learning rates of Adam; the same for all.
SCALING, NEAR, END = 1.02, 1.01, 1.001
"""Times the least loss of one group of 4: the losses to reach. The first is for the question whether more workers save steps."""
_LOOK: Final = 5  # Steps between two looks at the loss.
_OPTIONS: Final = {"every": 10, "burn_in": 20, "weight": 1.0}


@dataclass(frozen=True)
class Kind:
    """How the workers are arranged: the strategy, how many there are, and whether each group has half of the images."""

    strategy: str
    workers: int
    halves: bool = False


SMALL, LARGE, TWO = "one group of 2", "one group of 4", "two groups of 2"
KINDS: Final[Mapping[str, Kind]] = {
    SMALL: Kind("synchronous", 2),
    LARGE: Kind("synchronous", 4),
    TWO: Kind("codistillation", 4),
    "half the images each": Kind("codistillation", 4, halves=True),
}


@dataclass(frozen=True)
class Training:
    """Result of a training."""

    losses: list[float]  # On the validation images, of the first worker's model, every 5 steps.
    predicted: Tensor  # The probabilities at the end, float32 (images, 10).


def noisy_digits(division: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return training and validation images, float32 (n, 64), with labels (n,) of which some are drawn at random."""
    parts = load_digits(division)
    labels = np.concatenate([each.digits for each in parts])
    generator = np.random.default_rng(division)
    labels = np.where(generator.random(len(labels)) < NOISE, generator.integers(0, 10, len(labels)), labels)
    images, digits = (
        torch.from_numpy(np.concatenate([each.pixels for each in parts])),
        torch.from_numpy(labels),
    )
    return (images[:IMAGES], digits[:IMAGES]), (images[IMAGES:], digits[IMAGES:])


def train(kind: Kind, rate: float, seed: int, *, steps: int = STEPS, division: int = 0) -> Training:
    """Train on the digits; the seed gives the models and the batches, the division which images are for training."""
    training, (images, digits) = noisy_digits(division)
    losses: list[float] = []

    def worker(rank: int, group: Any, world: Any) -> Tensor:
        inputs, targets = (each[2 * rank // kind.workers :: 2] if kind.halves else each for each in training)
        torch.manual_seed(1000 * seed + rank)
        model = mlp(64)
        generator = torch.Generator().manual_seed(1000 * seed + rank)
        options: dict[str, Any] = _OPTIONS if kind.strategy == "codistillation" else {}
        s: Any = netsum.strategy(
            kind.strategy, model, torch.optim.Adam(model.parameters(), rate), group=group, **options
        )
        with s:
            for step in range(1, steps + 1):
                chosen = torch.randperm(len(targets), generator=generator)[:BATCH]
                with s.step():
                    outputs = model(inputs[chosen])
                    loss = nn.functional.cross_entropy(outputs, targets[chosen])
                    s.loss(loss, inputs[chosen], outputs).backward()
                if rank == 0 and step % _LOOK == 0:
                    with torch.no_grad():
                        losses.append(float(nn.functional.cross_entropy(model(images), digits)))
        with torch.no_grad():
            predicted: Tensor = model(images).softmax(1)
        return predicted

    results, _ = run_workers(kind.workers, worker)
    return Training(losses, results[0])


def steps_to(losses: Sequence[float], target: float) -> int | None:
    """Return after how many steps a loss was reached; None: it was not."""
    return next((_LOOK * at for at, each in enumerate(losses, 1) if each <= target), None)


def churn(trainings: Sequence[Training]) -> tuple[list[float], list[float]]:
    """Return how far the predictions of each two trainings differ.

    The result: for each pair, the mean absolute difference of probabilities, as Anil et al. measure it, and the share of
    images for which another digit is predicted.
    """
    pairs = [(one.predicted, other.predicted) for one, other in combinations(trainings, 2)]
    return (
        [float((one - other).abs().mean()) for one, other in pairs],
        [float((one.argmax(1) != other.argmax(1)).float().mean()) for one, other in pairs],
    )


def mean_losses(trainings: Sequence[Training]) -> list[float]:
    """Return the mean over trainings of the loss at every look."""
    means: list[float] = np.mean([each.losses for each in trainings], axis=0).tolist()
    return means


def outcome(trainings: Mapping[str, Mapping[float, Sequence[Training]]]) -> ClaimResult:
    """Return what trainings show, given by arrangement and rate; several seeds of each."""
    means = {
        name: {rate: mean_losses(each) for rate, each in by_rate.items()}
        for name, by_rate in trainings.items()
    }
    least = min(min(losses) for losses in means[LARGE].values())
    rows = [
        ("least loss", name, *(f"{min(losses):.3f}" for losses in by_rate.values()))
        for name, by_rate in means.items()
    ]
    fewest: dict[float, dict[str, float]] = {}
    for factor in (SCALING, NEAR, END):
        steps = {
            name: [steps_to(losses, factor * least) for losses in by_rate.values()]
            for name, by_rate in means.items()
        }
        for name, counts in steps.items():
            rows.append((f"steps to {factor * least:.3f}", name, *(_or_dash(each) for each in counts)))
        fewest[factor] = {name: min(each or np.inf for each in counts) for name, counts in steps.items()}
    apart: dict[str, list[float]] = {}
    shares: list[tuple[str, ...]] = []
    for name, by_rate in trainings.items():
        pairs = [churn(each) for each in by_rate.values()]
        apart[name] = [float(np.mean(each)) for each, _ in pairs]
        rows.append(("churn", name, *(f"{np.mean(each):.4f} ± {np.std(each):.4f}" for each, _ in pairs)))
        shares.append(
            ("other digit", name, *(f"{np.mean(each):.1%} ± {np.std(each):.1%}" for _, each in pairs))
        )
    less = sum(two < min(one) for two, *one in zip(apart[TWO], apart[SMALL], apart[LARGE], strict=True))
    ratios = [np.mean(np.divide(apart[TWO], apart[name])) for name in (SMALL, LARGE)]
    return ClaimResult(
        ("", "workers", *(f">{rate:.2g}" for rate in trainings[LARGE])),
        rows + shares,
        [
            (
                f"twice the workers no longer halve the steps to {SCALING:g} times the least loss: "
                f"{fewest[SCALING][SMALL]:g} with 2, {fewest[SCALING][LARGE]:g} with 4",
                fewest[SCALING][SMALL] < 2 * fewest[SCALING][LARGE],
            ),
            *(
                (
                    f"steps to {factor:g} times the least loss of one group of 4: {fewest[factor][LARGE]:g}; two groups: "
                    f"{fewest[factor][TWO]:g}",
                    fewest[factor][TWO] < fewest[factor][LARGE],
                )
                for factor in (NEAR, END)
            ),
            (
                f"churn with the same rate is less with {less} of {len(apart[TWO])} rates, and {1 - ratios[0]:.0%} less than "
                f"that of one group of 2, {1 - ratios[1]:.0%} less than that of one of 4",
                less == len(apart[TWO]),
            ),
        ],
        f"{IMAGES} digits, {NOISE:.0%} of the labels drawn at random; MLP of 64 hidden units, Adam, batches of {BATCH} a worker, "
        f"{STEPS} steps, checkpoints every {_OPTIONS['every']}, burn-in of {_OPTIONS['burn_in']}. By learning rate: of the mean "
        f"of {len(SEEDS)} seeds' losses, the least, and the steps to {SCALING:g}, {NEAR:g} and {END:g} times the least of one "
        "group of 4; between two trainings at the end, the mean difference of probabilities, and the images with another digit",
        key=2,
    )


def _or_dash(steps: int | None) -> str:
    return "-" if steps is None else str(steps)


def _run(echo: Echo) -> ClaimResult:
    trainings: dict[str, dict[float, list[Training]]] = {}
    for name, kind in KINDS.items():
        trainings[name] = {}
        for rate in RATES:
            echo(f"{name}, rate {rate:.2g}")
            trainings[name][rate] = [train(kind, rate, seed) for seed in SEEDS]
    return outcome(trainings)


CODISTILLATION: Final = Claim(
    "codistillation",
    "two groups reach a loss in fewer steps than one group of twice the size, and two trainings differ less",
    "Anil et al. 2018, arXiv:1804.03235, sections 3.2 and 3.5",
    _run,
)
