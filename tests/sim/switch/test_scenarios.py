"""The engine's answers to the packets of the scenarios, where BMv2 is not there to compare them with."""

import hashlib
import random

import pytest

from sim.switch import Packets, Switch, load_program
from tests.sim.switch.scenarios import PROGRAMS, SCENARIOS

HASHES = {
    "arithmetic": "d9fb390259553f56",
    "hashing": "fbc34585f65e97b9",
    "stacks": "7fe8dffb69230c16",
    "matching": "032551bb89294dcb",
    "traffic": "affaeb570922a376",
    "sets": "da3faf10542c6182",
}
"""Of the answers, by scenario but `externs`, which has random numbers. `test_differential.py` compares the packets with BMv2."""


@pytest.mark.parametrize("name", HASHES)
def test_answers_are_those_that_were_committed(name: str) -> None:
    (scenario,) = (each for each in SCENARIOS if each.name == name)
    switch = Switch(load_program(PROGRAMS / f"{name}.json"))
    scenario.set_up(switch)
    found = hashlib.sha256()
    for seed in (1, 2):
        for number, frame in enumerate(scenario.frames(random.Random(seed))):
            answers = list(switch.inject(Packets.of([(0, frame)]), number * 1_000_000))
            found.update(repr(sorted(answers)).encode())
    assert found.hexdigest()[:16] == HASHES[name], (
        "the answers are not those that were committed; if BMv2 gives the found ones too, write their hash above"
    )
