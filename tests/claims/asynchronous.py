"""Asynchronous SGD: time to accuracy when one worker is slow, and where staleness breaks it."""

import statistics
from typing import Any, Final

import torch
from torch import nn

import netsum
from tests.claims.claim import Claim, ClaimResult, Echo
from tests.strategies.training import BATCH, accuracy, mlp, shards
from tests.virtual.group import run_workers
from tests.virtual.network import UniformLinks

WORKERS: Final = 4
TARGET: Final = 0.93
_STEP_S: Final = 0.01
_LINK_S: Final = 0.001
_SLOWER: Final = 5
_BROKEN: Final = 0.5  # An accuracy below which a training has failed.
Run = tuple[float | None, float, float]
"""Virtual seconds to the target, the last accuracy, and the mean staleness."""


def train(
    name: str,
    options: dict[str, Any],
    steps: int,
    *,
    workers: int = WORKERS,
    slower: float = 1.0,
    rate: float = 0.1,
) -> Run:
    """Train on the digits in virtual time, the last worker slower than the others.

    With a parameter server, workers take as many steps as they can in the time that the slow one needs for its own share.
    """
    data = shards(workers, 0, skewed=False)
    served = int(name != "synchronous")
    strategies: dict[int, Any] = {}
    looks: list[tuple[float, float]] = []
    torch.manual_seed(0)
    scratch = mlp(64)
    ends = steps * _STEP_S

    def evaluate(world: Any) -> None:
        torch.nn.utils.vector_to_parameters(strategies[0].vector(), scratch.parameters())
        looks.append((world.now, accuracy(scratch, data.test)))

    def worker(rank: int, group: Any, world: Any) -> list[int]:
        torch.manual_seed(0)
        model = mlp(64)
        s: Any = netsum.strategy(
            name, model, torch.optim.SGD(model.parameters(), rate), group=group, **options
        )
        strategies[rank] = s
        with s:
            if served and s.serves:
                s.serve()
                return list(s.staleness)
            inputs, targets = data.parts[rank - served]
            generator = torch.Generator().manual_seed(rank)
            duration = _STEP_S * (slower if rank == workers - 1 + served else 1)
            step = 0
            # Synchronous workers take the same number of steps; the others stop by the clock.
            while step < steps if not served else world.now < ends:
                if rank == served and step % 5 == 0:
                    evaluate(world)
                chosen = torch.randint(len(targets), (BATCH,), generator=generator)
                with s.step():
                    world.compute(duration)
                    nn.functional.cross_entropy(model(inputs[chosen]), targets[chosen]).backward()
                step += 1
        if rank == served:
            evaluate(world)
        return []

    results, _ = run_workers(workers + served, worker, UniformLinks(_LINK_S))
    reached = next((when for when, each in looks if each >= TARGET), None)
    return reached, looks[-1][1], statistics.fmean(results[0]) if results[0] else 0.0


def _run(echo: Echo) -> ClaimResult:
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("synchronous", {"scale_rate": True, "warmup_steps": 20}),
        ("downpour", {}),
        ("stale-synchronous", {"bound": 3}),
        ("stale-synchronous", {"bound": 20}),
        ("easgd", {"every": 2, "elasticity": 0.2}),
    ]
    rows = []
    times: dict[tuple[str, float], float | None] = {}
    for name, options in kinds:
        label = f"{name} {options['bound']}" if "bound" in options else name
        for slower in (1, _SLOWER):
            echo(f"{label}, a worker {slower} times slower")
            reached, last, stale = train(name, options, 160, slower=slower)
            times[label, slower] = reached
            rows.append(
                (label, str(WORKERS), f"{slower}x", "1", _time(reached), f"{last:.1%}", f"{stale:.1f}")
            )
    broken = {}
    for workers, push_every in ((4, 16), (4, 64), (16, 16)):
        echo(f"downpour, {workers} workers, pushes of {push_every} steps")
        options = {"push_every": push_every, "fetch": push_every}
        reached, last, stale = train("downpour", options, 160, workers=workers)
        broken[workers, push_every] = last
        rows.append(
            ("downpour", str(workers), "1x", str(push_every), _time(reached), f"{last:.1%}", f"{stale:.1f}")
        )
    synchronous, downpour = times["synchronous", _SLOWER], times["downpour", _SLOWER]
    worst = min(broken, key=lambda each: broken[each])
    return ClaimResult(
        ("strategy", ">workers", ">slowest", ">push", f">s to {TARGET:.0%}", ">accuracy", ">staleness"),
        rows,
        [
            (
                f"with a worker {_SLOWER} times slower, {_time(downpour)} s with Downpour and {_time(synchronous)} s synchronous",
                downpour is not None and (synchronous is None or downpour < synchronous),
            ),
            (
                f"staleness breaks it: {broken[worst]:.1%} with {worst[0]} workers that push and pull every {worst[1]} steps",
                broken[worst] < _BROKEN,
            ),
        ],
        f"digits, MLP of 64 hidden units, a step computes for {1e3 * _STEP_S:g} ms, a collective or message takes "
        f"{1e3 * _LINK_S:g} ms; synchronous with the rate scaled by the workers",
        key=4,
    )  # fmt: skip


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"


ASYNCHRONOUS: Final = Claim(
    "asynchronous",
    "with heterogeneous workers asynchronous SGD takes less time to an accuracy than synchronous; too much staleness breaks it",
    "Dean et al. 2012; Ho et al. 2013; Zhang et al. 2015",
    _run,
)
