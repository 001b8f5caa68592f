"""Random runs: nothing is violated, and a seed repeats them."""

import numpy as np

from netsum.programs import compiled_program
from sim.explore.random_runs import SYSTEMS, RandomRuns

PROGRAM = compiled_program(64).json


def once(seed: int, system: int) -> RandomRuns:
    runs = RandomRuns(SYSTEMS[system], PROGRAM, seed)
    calls = iter([False, True])
    assert runs.run(lambda: next(calls)) == 0
    return runs


def test_every_system_runs_and_repeats() -> None:
    for system in range(len(SYSTEMS)):
        first, second = once(7, system).tally, once(7, system).tally
        assert (first.runs, first.rounds, first.steps) == (second.runs, second.rounds, second.steps)
        assert np.array_equal(first.pairs, second.pairs)
        assert first.steps > 50_000
        assert first.rounds > 0
