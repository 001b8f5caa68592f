"""The configurations; docs/explorer.md has their numbers, and says which of them were explored in full."""

from functools import partial
from typing import Final

from sim.explore.scenario import BlockPass, ExplorerScenario, passes_of

_leaves: Final = partial(ExplorerScenario, parents=(0, 0), leaves=(1, 2))
"""Scenarios of a root and two leaves with a worker each."""


ALL: Final = (
    ExplorerScenario("smallest", rounds=passes_of("sum", "sum", "sum")),
    ExplorerScenario("five-rounds", rounds=passes_of("sum", "sum", "sum", "sum", "sum")),
    ExplorerScenario("copies", workers=1, rounds=passes_of("sum", "sum"), copies=2, batches=False),
    ExplorerScenario("three-workers", workers=3, rounds=passes_of("sum", "sum")),
    ExplorerScenario("three-workers-three-rounds", workers=3, rounds=passes_of("sum", "sum", "sum")),
    ExplorerScenario("four-workers", workers=4, rounds=passes_of("sum", "sum")),
    ExplorerScenario("exponents", rounds=passes_of("int32", "float32")),
    ExplorerScenario("header-only", rounds=passes_of("broadcast", "barrier", "max")),
    ExplorerScenario("no-growth", rounds=passes_of("broadcast", "barrier", "max"), grows=False),
    ExplorerScenario("no-growth-results", rounds=passes_of("reduce", "gather", "reduce"), grows=False),
    ExplorerScenario("dead-worker", workers=3, rounds=passes_of("sum"), kills=1),
    ExplorerScenario("dead-worker-of-two", rounds=passes_of("sum", "sum"), kills=1),
    ExplorerScenario("new-epoch", rounds=passes_of("sum", "sum"), epochs=2),
    ExplorerScenario("switch-restart", rounds=passes_of("sum", "sum"), epochs=2, switch_restarts=1),
    ExplorerScenario("everything-dies", rounds=passes_of("sum"), epochs=2, switch_restarts=1, kills=1),
    ExplorerScenario("lower-epoch", rounds=passes_of("sum", "sum"), epochs=2, falls=True, switch_restarts=1),
    ExplorerScenario("move", rounds=passes_of("sum", "sum"), epochs=2, moves=True),
    ExplorerScenario("two-jobs", rounds=passes_of("sum"), jobs=2, batches=False),
    ExplorerScenario("two-jobs-two-rounds", rounds=passes_of("sum", "sum"), jobs=2, batches=False),
    ExplorerScenario("two-slots", slots=2, rounds=passes_of("sum", "sum"), batches=False),
    ExplorerScenario("two-slots-three-rounds", slots=2, rounds=passes_of("sum", "sum", "sum"), batches=False),
    ExplorerScenario("wrap", rounds=passes_of("sum", "sum", "sum"), first_chunk=(1 << 32) - 2),
    ExplorerScenario("disagreement", rounds=(BlockPass("sum"), BlockPass("sum", agreed=False))),
    ExplorerScenario("quorum", slots=2, rounds=passes_of("quorum", "contributors"), quorum=1),
    ExplorerScenario(
        "quorum-twice", slots=2, rounds=passes_of("quorum", "contributors") * 2, quorum=1, batches=False
    ),
    ExplorerScenario(
        "quorum-reuse",
        slots=2,
        rounds=passes_of("barrier", "barrier", "quorum", "contributors", "barrier"),
        quorum=1,
        batches=False,
    ),
    ExplorerScenario(
        "quorum-two-of-three",
        workers=3,
        slots=2,
        rounds=passes_of("quorum", "contributors"),
        quorum=2,
        batches=False,
    ),
    ExplorerScenario("deadline", workers=3, rounds=passes_of("sum"), deadlines=1),
    ExplorerScenario("two-rows", workers=1, slots=2, rounds=passes_of("sum", "sum", "sum"), rows=2),
    ExplorerScenario("values", rounds=passes_of("saturating", "min", "max", "sparse")),
    ExplorerScenario("header-only-results", rounds=passes_of("reduce", "gather", "reduce")),
    ExplorerScenario("header-only-results-of-three", workers=3, rounds=passes_of("reduce", "gather")),
    ExplorerScenario("unknown-sources", rounds=passes_of("sum", "sum"), unknown_sources=True),
    _leaves("tree-two-leaves", rounds=passes_of("sum", "sum")),
    _leaves("tree-three-rounds", rounds=passes_of("sum", "sum", "sum")),
    _leaves("tree-exponents", rounds=passes_of("int32", "float32")),
    _leaves("tree-header-only", rounds=passes_of("broadcast", "barrier", "max")),
    _leaves("tree-header-only-results", rounds=passes_of("reduce", "gather", "reduce")),
    _leaves("tree-no-growth", rounds=passes_of("broadcast", "barrier", "max"), grows=False),
    _leaves("tree-no-growth-results", rounds=passes_of("reduce", "gather", "reduce"), grows=False),
    _leaves("tree-disagreement", rounds=(BlockPass("sum"), BlockPass("sum", agreed=False))),
    _leaves("tree-new-epoch", rounds=passes_of("sum"), epochs=2),
    _leaves("tree-switch-restart", rounds=passes_of("sum"), epochs=2, switch_restarts=1),
    _leaves("tree-leaf-restarts", rounds=passes_of("sum", "sum"), epochs=2, switch_restarts=1),
    _leaves("tree-unknown-sources", rounds=passes_of("sum"), unknown_sources=True),
    ExplorerScenario(
        "tree-worker-on-root", rounds=passes_of("sum", "sum", "sum"), parents=(0,), leaves=(0, 1)
    ),
    ExplorerScenario("tree-leaf-of-two", workers=3, rounds=passes_of("sum"), parents=(0,), leaves=(0, 1, 1)),
    # The leaf's workers both need the header alone of the first RESULT.
    ExplorerScenario(
        "tree-header-only-results-of-two",
        workers=3,
        rounds=passes_of("reduce"),
        parents=(0,),
        leaves=(0, 1, 1),
    ),
    ExplorerScenario(
        "tree-two-leaves-of-two",
        workers=4,
        rounds=passes_of("sum"),
        batches=False,
        parents=(0, 0),
        leaves=(1, 1, 2, 2),
    ),
    ExplorerScenario(
        "tree-three-levels",
        workers=3,
        rounds=passes_of("sum"),
        batches=False,
        parents=(0, 1),
        leaves=(0, 1, 2),
    ),
)

CONFIGURATIONS: Final = {each.name: each for each in ALL}  # By name.
