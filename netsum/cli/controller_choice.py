"""Which controller a command talks to."""

import os
from typing import TYPE_CHECKING

from netsum.cli.testbed_state import require_ready
from netsum.command_errors import CommandError

if TYPE_CHECKING:
    from topologies.run_folder import RunningTestbed


def controller_address(controller: str | None, testbed: str | None) -> str:
    """Return the address of the controller that is meant.

    Parameters
    ----------
    testbed
        Name of a testbed; it comes first, as it is said where the environment is only there. Without either: that of
        NETSUM_TESTBED, else the only one with a controller, else the default address.

    Raises
    ------
    CommandError, TestbedError
        There is no such testbed, or it has no controller.
    """
    from host_agent.job_api import DEFAULT_CONTROLLER
    from topologies.run_folder import find_testbed, running_testbeds

    if testbed is None and controller:
        return controller
    testbed = testbed or os.environ.get("NETSUM_TESTBED")
    if not testbed:
        served = [one.name for one in running_testbeds() if one.state.get("controller") and not one.abandoned]
        if not served:
            return DEFAULT_CONTROLLER
        if len(served) > 1:
            raise CommandError(
                f"several testbeds are up: name one of {', '.join(served)} by --testbed, or a controller by --controller"
            )
        testbed = served[0]
    found = find_testbed(testbed)
    require_ready(found)
    if found.state.get("controller") is None:
        raise CommandError(
            f"the testbed {found.name} has no controller: `netsum controller serve --testbed {found.folder}`"
        )
    return found.controller_address


def testbed_without_controller(controller: str | None, testbed: str | None) -> "RunningTestbed | None":
    """Return the testbed that is meant, if it is up without a controller; None where there is a controller."""
    from topologies.run_folder import find_testbed, running_testbeds

    if testbed is None and controller:
        return None
    if not (testbed or os.environ.get("NETSUM_TESTBED")) and len(running_testbeds()) != 1:
        return None
    found = find_testbed(testbed)
    require_ready(found)
    return found if found.state.get("controller") is None else None
