"""The configurations; docs/explorer.md has their numbers, and says which of them were explored in full."""

from __future__ import annotations

from typing import Final

from sim.explore.scenario import Kind, Round, Scenario

__all__ = ["CONFIGURATIONS"]


def _rounds(*kinds: Kind) -> tuple[Round, ...]:
    return tuple(Round(kind) for kind in kinds)


_ALL: Final = (
    Scenario("smallest", rounds=_rounds("sum", "sum", "sum")),
    Scenario("five-rounds", rounds=_rounds("sum", "sum", "sum", "sum", "sum")),
    Scenario("copies", workers=1, rounds=_rounds("sum", "sum"), copies=2, batches=False),
    Scenario("three-workers", workers=3, rounds=_rounds("sum", "sum")),
    Scenario("three-workers-three-rounds", workers=3, rounds=_rounds("sum", "sum", "sum")),
    Scenario("four-workers", workers=4, rounds=_rounds("sum", "sum")),
    Scenario("exponents", rounds=_rounds("int32", "float32")),
    Scenario("header-only", rounds=_rounds("broadcast", "barrier", "max")),
    Scenario("dead-worker", workers=3, rounds=_rounds("sum"), kills=1),
    Scenario("dead-worker-of-two", rounds=_rounds("sum", "sum"), kills=1),
    Scenario("new-epoch", rounds=_rounds("sum", "sum"), epochs=2),
    Scenario("switch-restart", rounds=_rounds("sum", "sum"), epochs=2, switch_restarts=1),
    Scenario("everything-dies", rounds=_rounds("sum"), epochs=2, switch_restarts=1, kills=1),
    Scenario("two-jobs", rounds=_rounds("sum"), jobs=2, batches=False),
    Scenario("two-jobs-two-rounds", rounds=_rounds("sum", "sum"), jobs=2, batches=False),
    Scenario("two-slots", slots=2, rounds=_rounds("sum", "sum"), batches=False),
    Scenario("two-slots-three-rounds", slots=2, rounds=_rounds("sum", "sum", "sum"), batches=False),
    Scenario("wrap", rounds=_rounds("sum", "sum", "sum"), first_chunk=(1 << 32) - 2),
    Scenario("disagreement", rounds=(Round("sum"), Round("sum", agreed=False))),
    Scenario("unknown-sources", rounds=_rounds("sum", "sum"), unknown_sources=True),
)

CONFIGURATIONS: Final = {each.name: each for each in _ALL}
"""By name."""
