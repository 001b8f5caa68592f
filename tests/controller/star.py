"""A testbed's switch without jobs."""

from tests.controller.switch_controller import SwitchController
from topologies.hosts import SwitchTestbed


def program_switch(controller: SwitchController, testbed: SwitchTestbed) -> None:
    """Give a testbed's switch its program, its address and the places of the hosts."""
    controller.set_pipeline()
    controller.set_switch_address(testbed.spec.ip, testbed.spec.mac)
    controller.tables.set_l2(
        {host.mac: host.port for host in testbed.hosts}, [host.port for host in testbed.hosts]
    )
