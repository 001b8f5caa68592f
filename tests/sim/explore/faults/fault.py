"""A fault, and the scenarios that faults are looked for in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sim.explore.scenario import BlockPass, ExplorerScenario
from tests.sim.explore.faults.program import Program

ONE: Final = (BlockPass(),)
TWO: Final = (BlockPass(), BlockPass())
THREE: Final = (BlockPass(), BlockPass(), BlockPass())
SUMS: Final = ExplorerScenario("three sums", rounds=THREE, batches=False)
FIVE: Final = ExplorerScenario("five sums", rounds=THREE + TWO, batches=False)
UNEQUAL: Final = ExplorerScenario("exponents that differ", rounds=(BlockPass("float32"),))
UNEQUAL_TWICE: Final = ExplorerScenario(
    "exponents that differ twice", rounds=(BlockPass("float32"), BlockPass("float32")), batches=False
)
HEADERS: Final = ExplorerScenario(
    "header-only", rounds=(BlockPass("broadcast"), BlockPass("barrier"), BlockPass("sum")), batches=False
)
HEADER_ONLY: Final = ExplorerScenario("header-only", rounds=(BlockPass("reduce"), BlockPass("gather")))
EPOCHS: Final = ExplorerScenario("a new epoch", rounds=ONE, epochs=2)
LOWER_EPOCH: Final = ExplorerScenario("a new epoch with a lower number", rounds=TWO, epochs=2, falls=True)
NO_GROWTH: Final = ExplorerScenario(
    "packets that cannot grow", rounds=(BlockPass("gather"),) * 3, grows=False, batches=False
)
QUORUMS: Final = ExplorerScenario(
    "two quorum chunks",
    slots=2,
    rounds=(BlockPass("quorum"), BlockPass("contributors")) * 2,
    quorum=1,
    batches=False,
)
WRAP: Final = ExplorerScenario("chunk numbers wrap", rounds=THREE, first_chunk=(1 << 32) - 1, batches=False)
DISAGREEMENT: Final = ExplorerScenario("disagreement", rounds=(BlockPass(agreed=False),))
DEATH: Final = ExplorerScenario("a dead worker", rounds=TWO, kills=1)
TWO_SLOTS: Final = ExplorerScenario("two slots", slots=2, rounds=TWO, batches=False)
ONE_SUM: Final = ExplorerScenario("a sum", rounds=ONE)
VERSIONS: Final = ExplorerScenario("four sums", rounds=TWO + TWO, batches=False)


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes
    ----------
    name, what
        For people.
    scenarios
        Where it is looked for, in order.
    program
        Changes the P4 program.
    source
        Or: a program of `sim/explore/programs` that takes its place.
    module, changes
        Or: changes the text of a module of the worker core: (as it stands, in its place).
    harmless
        Why no schedule of the scenarios violates a guarantee; empty if one must be found.
    """

    name: str
    what: str
    scenarios: tuple[ExplorerScenario, ...]
    program: Callable[[Program], None] | None = None
    source: str = ""
    module: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    harmless: str = ""
