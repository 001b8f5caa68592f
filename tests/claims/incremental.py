"""Incremental training: time to accuracy beside training at full resolution and depth from the start."""

from typing import Any, Final

from tests.claims import incremental_training as incremental
from tests.claims.claim import Claim, ClaimResult, Echo
from tests.virtual.group import run_workers

_STEPS: Final = 200
_WORKERS: Final = 2
_TARGETS: Final = (0.8, 0.9, 0.95)


def _run(echo: Echo) -> ClaimResult:
    found = {}
    for name, stages in (("incremental", incremental.INCREMENTAL), ("full", incremental.FULL)):
        echo(name)

        def worker(rank: int, group: Any, world: Any, stages: Any = stages) -> Any:
            return incremental.train(stages, _STEPS, rank, 0, group)

        found[name] = run_workers(_WORKERS, worker)[0][0]
    rows: list[tuple[str, ...]] = []
    reached = []
    less = True
    for target in _TARGETS:
        ours, theirs = (_seconds_to(found[name], target) for name in ("incremental", "full"))
        ratio = f"{theirs / ours:.2f}" if ours and theirs else "-"
        # An accuracy that full size does not reach in as many steps, it has not reached sooner.
        less = less and ours is not None and (theirs is None or ours < theirs)
        rows.append((f"{target:.0%}", _text(ours), _text(theirs), ratio))
        reached.append(f"{target:.0%} after {_text(ours)} and {_text(theirs)}")
    ends = {name: looks[-1] for name, looks in found.items()}
    rows.append(
        ("end", *(f"{ends[n].seconds:.1f} s, {ends[n].accuracy:.1%}" for n in ("incremental", "full")), "")
    )
    return ClaimResult(
        ("accuracy", ">incremental", ">full size", ">ratio"),
        rows,
        [
            (f"incremental and full size reach {', '.join(reached)} of processor time", less),
            (
                f"at the end {ends['incremental'].accuracy:.1%} and {ends['full'].accuracy:.1%}, within a point",
                ends["incremental"].accuracy >= ends["full"].accuracy - 0.01,
            ),
        ],
        f"incremental_training.py: {_WORKERS} workers, {_STEPS} steps, processor time of the first; stages of 8, 16 and 32 "
        "pixels with 1, 2 and 3 blocks",
    )


def _seconds_to(looks: list[Any], accuracy: float) -> float | None:
    return next((look.seconds for look in looks if look.accuracy >= accuracy), None)


def _text(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"


INCREMENTAL: Final = Claim(
    "incremental",
    "resolution and depth that grow take less time to an accuracy than full size from the start",
    "Istrate et al. 2018, arXiv:1803.10232",
    _run,
)
