"""Planted faults of the P4 program, with losses and repetitions: ``python -m tests.verification.faulty_programs``.

Of each fault of the explorer's catalogue that can make a wrong sum: how often workers returned a wrong result without a check,
and with one. With one, that must never be.
"""

import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np

from host_agent.errors import VerificationError
from sim.network.programming import ProgrammedSwitch
from tests.integration.simulated.star import StarSwitch, program_file
from tests.sim.explore.faults.fault import Fault
from tests.sim.explore.faults.program import changed_program
from tests.sim.explore.faults.program_faults import PROGRAM_FAULTS
from tests.verification import campaign
from tests.verification.corruptions import REQUESTS
from tests.verification.hostile import Datagrams, HostileStar

LANES: Final = 64
NAMES: Final = ("float32 sum", "sparse", "exact", "all-gather", "broadcast", "reduce-scatter")


class FaultySwitch(StarSwitch):
    """A switch whose program has a fault."""

    def __init__(self, fault: Fault, folder: Path) -> None:
        assert fault.program is not None
        original = program_file(LANES)
        target = folder / f"{fault.name}.json"
        changed_program(original, fault.program, target)
        for suffix in (".capabilities.toml", ".p4info.txtpb"):
            shutil.copy(original.with_suffix(suffix), target.with_suffix(suffix))
        ProgrammedSwitch.__init__(self, target)


class Faults:
    """Losses, and packets that come again later, for seeded runs."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._kept: list[tuple[np.ndarray, int, int]] = []

    def __call__(self, datagrams: Datagrams, way: str) -> None:
        for row in range(datagrams.lengths.size):
            luck = self._chance.random()
            if way == "up" and luck < 0.2:  # An earlier packet in its place.
                if self._kept and luck < 0.1:
                    words, length, worker = self._chance.choice(self._kept)
                    if worker == datagrams.workers[row]:
                        datagrams.words[row], datagrams.lengths[row] = words, length
            elif luck > 0.9:
                datagrams.lengths[row] = 0
            if way == "up" and datagrams.lengths[row]:
                kept = datagrams.words[row].copy(), int(datagrams.lengths[row]), int(datagrams.workers[row])
                self._kept.append(kept)


def results(switch: StarSwitch, seeds: int, checked: bool) -> Counter[str]:
    """Run requests on a switch, and count results that are right, wrong, refused by a check, and other errors."""
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        name = NAMES[seed % len(NAMES)]
        right, _ = campaign.clean(name, seed)
        outcomes = campaign.run(
            name, seed, Faults(seed), checked=checked, network=HostileStar(switch, campaign.WORKERS, 2)
        )
        for outcome, expected in zip(outcomes, right, strict=True):
            if outcome.error is None:
                counts["right" if campaign.same(outcome.result, expected) else "wrong"] += 1
            else:
                counts["refused" if isinstance(outcome.error, VerificationError) else "failed"] += 1
    return counts


def main() -> None:
    """Print a line for each fault; the command line may name some."""
    assert set(NAMES) <= set(REQUESTS)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for fault in PROGRAM_FAULTS:
            if fault.program is None or (sys.argv[1:] and fault.name not in sys.argv[1:]):
                continue
            switch = FaultySwitch(fault, Path(folder))
            plain, checked = results(switch, 18, False), results(switch, 18, True)
            wrong += checked["wrong"]
            print(f"{fault.name}: {dict(plain)}; with a check {dict(checked)}", flush=True)
    print(f"wrong results with a check: {wrong}")


if __name__ == "__main__":
    main()
