"""The shipped experiments have the results that they had when their hashes were written, on every machine."""

import json

import pytest

from sim.experiments.experiment import load_experiment
from tests.sim.experiments.hashes import FILE, NAMES, hash_of


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_experiment_repeats(name: str) -> None:
    expected = json.loads(FILE.read_text())
    assert hash_of(load_experiment(name)) == expected.get(name), (
        f"the virtual times of {name} are not those that were committed. If a change of the worker's core, the P4 program, the "
        f"simulator or the experiment is meant to change them: python tests/sim/experiments/hashes.py {name} writes its hash "
        "anew (without a name, all of them), and git diff shows which have changed"
    )
