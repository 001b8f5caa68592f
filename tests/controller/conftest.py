"""Switches to control: tests run on the embedded engine's P4Runtime server and on BMv2."""

from collections.abc import Iterator

import pytest

from host_agent.wire.constants import UDP_PORT
from tests.controller.scripted_workers import connect
from tests.controller.star import program_switch
from tests.controller.switch_controller import SwitchController
from topologies.hosts import SwitchTestbed
from topologies.loopback import LoopbackTestbed
from topologies.mininet_testbed import Bmv2Star

HOSTS = 4

TESTBEDS = [
    pytest.param(LoopbackTestbed, id="embedded"),
    pytest.param(Bmv2Star, id="bmv2", marks=[pytest.mark.bmv2, pytest.mark.root]),
]


@pytest.fixture(scope="session", params=TESTBEDS)
def testbed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SwitchTestbed]:
    kind = request.param
    if kind is Bmv2Star and (lacking := Bmv2Star.lacking()):
        pytest.skip(lacking)
    with kind(HOSTS, UDP_PORT, tmp_path_factory.mktemp("testbed")) as bed:
        yield bed


@pytest.fixture
def controller(testbed: SwitchTestbed) -> Iterator[SwitchController]:
    """A controller of a switch that holds its program, its address and nothing else."""
    with connect(testbed) as one:
        program_switch(one, testbed)
        yield one
