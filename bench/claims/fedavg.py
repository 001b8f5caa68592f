"""FedAvg: rounds to an accuracy on data that is not alike at the clients, by the number of local epochs."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn

import netsum
from bench.claims.claim import Claim, Outcome, Say
from bench.strategies_training import accuracy, mlp, shards
from netsum.virtual.group import run_workers

__all__ = ["FEDAVG", "rounds_to"]

CLIENTS: Final = 10
TARGET: Final = 0.95
BATCH: Final = 10
_LIMIT: Final = 600
_SETTINGS: Final = (
    ("FedSGD", 1, 0, 0.4),
    ("E = 1", 1, BATCH, 0.1),
    ("E = 5", 5, BATCH, 0.1),
    ("E = 20", 20, BATCH, 0.1),
)
"""Local epochs, batch (0: all of a client's images), and the rate that took fewest rounds of 0.05, 0.1, 0.2, 0.4 and 0.8."""
_PAPER: Final = {"FedSGD": 483, "E = 1": 350, "E = 5": 229, "E = 20": 173}
"""McMahan et al., table 2: a CNN on non-IID MNIST, batches of 10, rounds to 99 %."""


def rounds_to(
    target: float, epochs: int, batch: int, rate: float, *, seed: int = 0, limit: int = _LIMIT
) -> int | None:
    """Return after how many rounds of FedAvg all clients' common model reaches an accuracy.

    Parameters
    ----------
    target : float
        Share of right answers on images that no client has.
    epochs : int
        Of each client in a round.
    batch : int
        Images of a step; 0: all of a client's.
    rate : float
        Of SGD.

    Returns
    -------
    int or None
        None: not within `limit`.
    """
    data = shards(CLIENTS, seed, skewed=True)

    def client(rank: int, group: Any, world: Any) -> int | None:
        inputs, targets = data.parts[rank]
        torch.manual_seed(seed)
        model = mlp(64)
        optimizer = torch.optim.SGD(model.parameters(), rate)
        generator = torch.Generator().manual_seed(1000 * seed + rank)
        s: Any = netsum.strategy("fedavg", model, optimizer, group=group, samples=len(targets))
        with s:
            for _ in s.rounds(limit):
                if accuracy(model, data.test) >= target:  # Alike at all clients, so that all leave.
                    return int(s.round)
                for _ in range(epochs):
                    for chosen in torch.randperm(len(targets), generator=generator).split(
                        batch or len(targets)
                    ):
                        with s.step():
                            nn.functional.cross_entropy(model(inputs[chosen]), targets[chosen]).backward()
        return None

    return run_workers(CLIENTS, client)[0][0]


def _run(say: Say) -> Outcome:
    rounds: dict[str, int | None] = {}
    for name, epochs, batch, rate in _SETTINGS:
        say(name)
        rounds[name] = rounds_to(TARGET, epochs, batch, rate)
    baseline = rounds["FedSGD"] or _LIMIT
    rows = [
        (
            name,
            str(epochs),
            str(batch or "all"),
            f"{rate:g}",
            f"> {_LIMIT}" if rounds[name] is None else str(rounds[name]),
            f"{baseline / (rounds[name] or _LIMIT):.1f}",
            f"{_PAPER['FedSGD'] / _PAPER[name]:.1f}",
        )
        for name, epochs, batch, rate in _SETTINGS
    ]
    order = [_LIMIT + 1 if (count := rounds[name]) is None else count for name, *_ in _SETTINGS]
    return Outcome(
        ("algorithm", ">epochs", ">batch", ">rate", ">rounds", ">speed-up", ">paper's"),
        rows,
        [("rounds fall from FedSGD to E = 1, 5 and 20", order == sorted(order, reverse=True) and len(set(order)) == len(order))],
        f"{CLIENTS} clients with two shards each of the digits in order, all in every round; MLP of 64 hidden units",
    )  # fmt: skip


FEDAVG: Final = Claim(
    "fedavg",
    f"on non-IID digits, rounds to {TARGET:.0%} fall with the local epochs, and FedSGD takes most",
    "McMahan et al. 2017, table 2",
    _run,
)
