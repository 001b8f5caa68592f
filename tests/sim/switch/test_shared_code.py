"""Switches that share machine code share nothing else."""

import pytest

from sim.switch import Packets, Switch, load_program
from tests.sim.switch.scenarios import PROGRAMS


def test_switches_with_the_same_code_have_their_own_state() -> None:
    program = load_program(PROGRAMS / "loops.json")
    one = Switch(program)
    other = Switch(program, like=one)
    one.inject(Packets.of([(0, b"\x00")]), 0)
    assert one.statistics["dropped_looping"] == 1
    assert other.statistics["dropped_looping"] == 0
    assert list(other.inject(Packets.of([(0, b"\x09")]), 0)) == [(1, b"\x09")]


def test_code_of_another_program_is_refused() -> None:
    with pytest.raises(ValueError, match="a switch that runs the same program"):
        Switch(load_program(PROGRAMS / "traffic.json"), like=Switch(load_program(PROGRAMS / "loops.json")))
