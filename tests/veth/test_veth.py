"""Each switch answers all contributions that hosts in the kernel make, with the right sums."""

import pytest

from tests.dataplane.dataplane import bmv2, xdp
from tests.veth.by_hand import adding_ns, compiler
from tests.veth.comparison import BMV2, BY_HAND, EMBEDDED, XDP, measure
from topologies.namespaces import missing_for_namespaces

lacking = missing_for_namespaces() or xdp.why_not()
pytestmark = [pytest.mark.root, pytest.mark.skipif(lacking is not None, reason=str(lacking))]


@pytest.mark.parametrize("lanes", [64, 256])
def test_all_results_come_through_each_switch_and_are_right(lanes: int) -> None:
    found = measure(lanes, workers=2, slots=64, packets=4_000, runs=1, bmv2=False)
    assert set(found.rates) == {EMBEDDED, XDP} | ({BY_HAND} if compiler() else set())


@pytest.mark.bmv2
@pytest.mark.skipif(bmv2.why_not() is not None, reason=str(bmv2.why_not()))
def test_bmv2_gets_no_more_chunks_at_a_time_than_its_capture_buffer_holds() -> None:
    found = measure(64, workers=2, slots=256, packets=4_096, runs=1)
    assert BMV2 in found.rates


def test_the_kernels_test_runs_time_a_packet_that_adds() -> None:
    # The measurement raises if the packet does not add, by the compiled program or by the one in C.
    found = adding_ns(64, repeat=2000)
    assert found.keys() == ({"compiled", "by hand"} if compiler() else {"compiled"})
    assert min(found.values()) > 0
