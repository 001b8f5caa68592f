"""FedAvg: rounds to an accuracy on data that is not alike at the clients, by the number of local epochs."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

import netsum
from tests.claims.claim import Claim, ClaimResult, Echo
from tests.strategies.training import mlp, shards
from tests.virtual.group import run_workers

CLIENTS: Final = 100
FRACTION: Final = 0.1  # Share of the clients in a round.
TARGET: Final = 0.95
BATCH: Final = 10
SEEDS: Final = range(5)
RATES: Final = tuple(round(10 ** (third / 3), 4) for third in range(-6, 3))
"""Learning rates, the same for every row: spaced by 10^(1/3), as in the paper."""
_LIMIT: Final = 1000
_LONGER: Final = 1.5  # A training ends after this multiple of the rounds that its fastest rate needs.
_SETTINGS: Final = (("FedSGD", 1, 0), ("E = 1", 1, BATCH), ("E = 5", 5, BATCH), ("E = 20", 20, BATCH))
"""Local epochs and batch; 0: all of a client's images."""
_PAPER: Final = {"FedSGD": 483, "E = 1": 350, "E = 5": 229, "E = 20": 173}
"""McMahan et al., table 2: a CNN on non-IID MNIST, batches of 10, rounds to 99 %."""


class Networks(nn.Module):
    """A network for each learning rate, with one hidden layer of 64 units; all begin alike.

    With the loss that `loss` returns, a step of SGD with rate 1 is a step of each network with its own rate. So one training
    gives the curves of all rates.
    """

    rates: Tensor

    def __init__(self, rates: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("rates", torch.tensor(rates))
        one: Any = mlp(64)
        self.layers = nn.ParameterList(
            each.expand(len(rates), *each.shape).clone()
            for layer in (one[0], one[2])
            for each in (layer.weight.detach().T, layer.bias.detach()[None])
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits, float32 (rates, images, 10), of images, float32 (images, 64)."""
        first, first_bias, second, second_bias = self.layers
        hidden = torch.relu(inputs @ first + first_bias)
        return hidden @ second + second_bias

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the sum of the networks' cross-entropies, each times its rate."""
        outputs = self(inputs).movedim(0, 2)
        each = nn.functional.cross_entropy(
            outputs, targets[:, None].expand(-1, len(self.rates)), reduction="none"
        )
        return each.mean(0) @ self.rates

    @torch.no_grad()
    def accuracies(self, test: tuple[Tensor, Tensor]) -> list[float]:
        """Return the share of right answers of each network."""
        right: list[float] = (self(test[0]).argmax(2) == test[1]).float().mean(1).tolist()
        return right


def curves(
    epochs: int,
    batch: int,
    seed: int,
    *,
    rates: Sequence[float] = RATES,
    clients: int = CLIENTS,
    fraction: float = FRACTION,
    limit: int = _LIMIT,
) -> list[list[float]]:
    """Train with FedAvg, with several learning rates apart from one another.

    `epochs`: of each client in a round. `batch`: images of a step; 0: all of a client's. `seed`: of the division of the
    images, the models, the sampling of clients and the order of images. `clients`, `fraction`: how many, and which part of
    them trains in a round. The result: for each rate the accuracy on images that no client has, before the first round and
    after each.
    """
    data = shards(clients, seed, skewed=True)
    looks: list[list[float]] = []
    last = [limit]

    def client(rank: int, group: Any, world: Any) -> None:
        inputs, targets = data.parts[rank]
        torch.manual_seed(seed)
        model = Networks(rates)
        generator = torch.Generator().manual_seed(1000 * seed + rank)
        s: Any = netsum.strategy(
            "fedavg",
            model,
            torch.optim.SGD(model.parameters(), 1.0),
            group=group,
            samples=len(targets),
            fraction=fraction,
            seed=seed,
        )
        with s:
            for chosen in s.rounds(limit + 1):
                if rank == 0:
                    looks.append(model.accuracies(data.test))
                    if last[0] == limit and max(looks[-1]) >= TARGET:
                        # The next round, as other clients may be in this one already.
                        last[0] = min(limit, max(s.round + 1, int(_LONGER * s.round)))
                if s.round >= last[0]:
                    return
                for _ in range(epochs if chosen else 0):
                    order = torch.randperm(len(targets), generator=generator)
                    for part in order.split(batch or len(targets)):
                        with s.step():
                            model.loss(inputs[part], targets[part]).backward()

    run_workers(clients, client)
    return [list(curve) for curve in zip(*looks, strict=True)]


def crossings(curve: Sequence[float], target: float) -> float | None:
    """Return where a curve reaches a value, in rounds; None: nowhere.

    As in the paper, the best value so far counts, and is interpolated linearly between rounds.
    """
    best = np.maximum.accumulate(curve)
    at = int(np.searchsorted(best, target))
    if at == len(best):
        return None
    if at == 0:
        return 0.0
    return at - 1 + float((target - best[at - 1]) / (best[at] - best[at - 1]))


def _run(echo: Echo) -> ClaimResult:
    rows: list[tuple[str, ...]] = []
    fastest: list[float] = []
    for name, epochs, batch in _SETTINGS:
        rounds: list[list[float | None]] = []
        for seed in SEEDS:
            echo(f"{name}, seed {seed}")
            rounds.append([crossings(curve, TARGET) for curve in curves(epochs, batch, seed)])
        by_rate = [[each for each in of_rate if each is not None] for of_rate in zip(*rounds, strict=True)]
        means = [sum(each) / len(each) if len(each) == len(SEEDS) else np.inf for each in by_rate]
        best = int(np.argmin(means))
        fastest.append(means[best])
        rows.append(
            (
                name,
                str(batch or "all"),
                *("-" if mean == np.inf else f"{mean:.0f}" for mean in means),
                f"{RATES[best]:.2g}",
                f"{means[best]:.0f} ± {np.std(by_rate[best], ddof=1):.0f}",
                f"{fastest[0] / means[best]:.1f}",
                f"{_PAPER['FedSGD'] / _PAPER[name]:.1f}",
            )
        )
    found = ", ".join(f"{name} {mean:.0f}" for (name, *_), mean in zip(_SETTINGS, fastest, strict=True))
    return ClaimResult(
        (
            "algorithm",
            ">batch",
            *(f">{rate:.2g}" for rate in RATES),
            ">best rate",
            ">rounds",
            ">speed-up",
            ">paper's",
        ),
        rows,
        [
            (
                f"rounds fall from FedSGD to E = 1, 5 and 20: {found}",
                all(more > less for more, less in pairwise(fastest)),
            )
        ],
        f"{CLIENTS} clients with two shards each of the digits in order, {FRACTION:.0%} of them in a round; MLP of 64 hidden "
        f"units; mean rounds to {TARGET:.0%} of {len(SEEDS)} seeds by learning rate (-: not in all seeds within {_LONGER:g} "
        "times the rounds of the fastest), then those with the best rate ± standard deviation",
    )


FEDAVG: Final = Claim(
    "fedavg",
    f"on non-IID digits, rounds to {TARGET:.0%} fall with the local epochs, and FedSGD takes most",
    "McMahan et al. 2017, table 2",
    _run,
)
