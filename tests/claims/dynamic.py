"""Dynamic model averaging: bytes and cumulative loss beside periodic averaging, before and after a drift."""

from typing import Any, Final

import torch
from torch import nn

import netsum
from tests.claims.claim import Claim, ClaimResult, Echo
from tests.virtual.group import run_workers

WORKERS: Final = 4
FEATURES: Final = 200
STEPS: Final = 1200
EVERY: Final = 4
THRESHOLD: Final = 1.0
FEWER: Final = 5
WITHIN: Final = 0.02
_BATCH, _RATE, _NOISE = 10, 0.01, 0.3


def halves(name: str, options: dict[str, Any], seed: int = 0, steps: int = STEPS) -> list[tuple[float, int]]:
    """Predict and learn a linear function that changes in the middle of a stream.

    The result: for each half, the cumulative loss of all workers, each before its step, and the bytes that all sent and
    received.
    """
    solutions = [torch.linspace(-1, 1, FEATURES), torch.linspace(1, -1, FEATURES)]

    def worker(rank: int, group: Any, world: Any) -> list[tuple[float, int]]:
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(1000 * seed + rank)
        model = nn.Linear(FEATURES, 1)
        optimizer = torch.optim.SGD(model.parameters(), _RATE)
        found = []
        before = 0
        with netsum.strategy(name, model, optimizer, group=group, **options) as s:
            for solution in solutions:
                total = 0.0
                for _ in range(steps // len(solutions)):
                    inputs = torch.randn(_BATCH, FEATURES, generator=generator)
                    targets = inputs @ solution + _NOISE * torch.randn(_BATCH, generator=generator)
                    with s.step():
                        loss = nn.functional.mse_loss(model(inputs)[:, 0], targets)
                        loss.backward()
                    total += loss.item()
                now = s.traffic.bytes_sent + s.traffic.bytes_received
                found.append((total, now - before))
                before = now
        return found

    results, _ = run_workers(WORKERS, worker)
    return [
        (sum(loss for loss, _ in each), sum(sent for _, sent in each)) for each in zip(*results, strict=True)
    ]


def _run(echo: Echo) -> ClaimResult:
    echo("periodic averaging")
    periodic = halves("local-sgd", {"sync_every": EVERY})
    echo("dynamic averaging")
    dynamic = halves("dynamic-averaging", {"threshold": THRESHOLD, "every": EVERY})
    rows, findings = [], []
    for when, (loss, sent), (ours, less) in zip(("before", "after"), periodic, dynamic, strict=True):
        rows.append(
            (
                when, f"{sent / 1e3:,.0f}", f"{less / 1e3:,.0f}", f"{sent / less:.1f}", f"{loss:,.1f}", f"{ours:,.1f}",
                f"{ours / loss - 1:+.2%}",
            )
        )  # fmt: skip
        findings.append(
            (f"{when} the drift, {sent / less:.1f} times fewer bytes; {FEWER} claimed", sent >= FEWER * less)
        )
        findings.append(
            (
                f"{when} the drift, cumulative loss {ours / loss - 1:+.2%}; within {WITHIN:.0%} claimed",
                ours <= (1 + WITHIN) * loss,
            )
        )
    return ClaimResult(
        ("drift", ">periodic kB", ">dynamic kB", ">fewer", ">periodic loss", ">dynamic loss", ">more"),
        rows,
        findings,
        f"{WORKERS} workers, linear regression on {FEATURES} features, {STEPS} steps, the solution changes after half of them; "
        f"both look every {EVERY} steps, threshold {THRESHOLD:g}",
    )


DYNAMIC: Final = Claim(
    "dynamic",
    f"at least {FEWER} times fewer bytes than periodic averaging at a loss within {WITHIN:.0%}, before and after a drift",
    "Kamp et al. 2018, arXiv:1807.03210",
    _run,
)
