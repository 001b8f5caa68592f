"""The options of a switch's process, as its own command line reads them."""

from sim.switch.serve import parse_options


def test_interfaces_are_named_one_by_one() -> None:
    assert parse_options(["--interface", "1@s1-eth1", "--interface", "2@s1-eth2"]).interface == (
        (1, "s1-eth1"),
        (2, "s1-eth2"),
    )
    assert parse_options([]).interface == ()
