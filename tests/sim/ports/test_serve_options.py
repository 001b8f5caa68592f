"""The options of a switch's process, as its own command line reads them."""

from netsum_common.options import parse
from netsum_common.switch_options import ServeOptions


def test_interfaces_are_named_one_by_one() -> None:
    given = ["--interface", "1@s1-eth1", "--interface", "2@s1-eth2"]
    assert parse(ServeOptions, given, "switch", "").interface == ((1, "s1-eth1"), (2, "s1-eth2"))
    assert parse(ServeOptions, [], "switch", "").interface == ()
