"""DiLoCo: bytes and perplexity of a character model beside synchronous training."""

import math
from typing import Any, Final

import torch

import netsum
from netsum.bench.machine import example
from tests.claims.claim import Claim, ClaimResult, Echo
from tests.virtual.group import run_workers

WORKERS: Final = 4
EVERY: Final = 50
STEPS: Final = 800
FEWER: Final = 40
WITHIN: Final = 0.05
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "synchronous": {},
    "diloco": {"sync_every": EVERY, "outer_rate": 0.7, "outer_momentum": 0.6},
}


def train(name: str, options: dict[str, Any], steps: int, seed: int = 0) -> tuple[float, int]:
    """Train the LSTM of `examples/char_lstm.py`; return its perplexity on the test passage and the bytes a worker sent."""
    char_lstm: Any = example("char_lstm")

    def worker(rank: int, group: Any, world: Any) -> tuple[float, int]:
        torch.manual_seed(seed)
        model = char_lstm.CharacterModel()
        optimizer = torch.optim.AdamW(model.parameters(), char_lstm.task.rate)
        with netsum.strategy(name, model, optimizer, group=group, **options) as s:
            for step in range(steps):
                inputs, targets = char_lstm.batch(1_000_003 * seed + step, rank, WORKERS)
                with s.step():
                    char_lstm.loss(model(inputs), targets).backward()
        if rank != 1:
            return 0.0, 0
        model.eval()
        with torch.no_grad():
            scores = model(char_lstm.test[None, :-1])
        return math.exp(char_lstm.loss(scores, char_lstm.test[None, 1:])), int(s.traffic.bytes_sent)

    return run_workers(WORKERS, worker)[0][1]


def _run(echo: Echo) -> ClaimResult:
    found = {}
    for name, options in _OPTIONS.items():
        echo(name)
        found[name] = train(name, options, STEPS)
    (plain, sent), (perplexity, less) = found["synchronous"], found["diloco"]
    rows = [
        (name, f"{found[name][0]:.3f}", f"{found[name][1] / 1e3:,.0f}", f"{sent / found[name][1]:.1f}")
        for name in _OPTIONS
    ]
    return ClaimResult(
        ("strategy", ">perplexity", ">sent kB", ">times fewer"),
        rows,
        [
            (f"{sent / less:.1f} times fewer bytes; at least {FEWER} claimed", sent >= FEWER * less),
            (
                f"perplexity {perplexity / plain - 1:+.1%}; within {WITHIN:.0%} claimed",
                perplexity <= (1 + WITHIN) * plain,
            ),
        ],
        f"character LSTM, {WORKERS} workers, {STEPS} steps, H = {EVERY}, AdamW; outer rate 0.7, outer momentum 0.6",
    )


DILOCO: Final = Claim(
    "diloco",
    f"with H = {EVERY}, at least {FEWER} times fewer bytes than synchronous, and perplexity within {WITHIN:.0%}",
    "Douillard et al. 2023, arXiv:2311.08105",
    _run,
)
