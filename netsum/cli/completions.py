"""Completions of arguments in the shell: topologies, testbeds and their nodes, jobs and switches of the controller."""

import contextlib
import os
from typing import Final

from topologies.run_folder import running_testbeds
from topologies.topology_file import shipped_topologies

COMPLETION_TIMEOUT_S: Final = 1.0


def topologies(incomplete: str) -> list[str]:
    """Return the shipped topologies that begin so."""
    return [name for name in shipped_topologies() if name.startswith(incomplete)]


def testbeds(incomplete: str) -> list[str]:
    """Return the testbeds of this machine that begin so."""
    return [testbed.name for testbed in running_testbeds() if testbed.name.startswith(incomplete)]


def nodes(incomplete: str) -> list[str]:
    """Return the hosts and switches of this machine's testbeds that begin so."""
    names = {
        name
        for testbed in running_testbeds()
        for kind in ("hosts", "switches")
        for name in testbed.state.get(kind, ())
    }
    return sorted(name for name in names if name.startswith(incomplete))


def jobs(incomplete: str) -> list[str]:
    """Return the jobs of the controller in reach that begin so."""
    return _at_controller("jobs", incomplete)


def switches(incomplete: str) -> list[str]:
    """Return the switches of the controller in reach that begin so."""
    return _at_controller("switches", incomplete)


def processes(incomplete: str) -> list[str]:
    """Return the switches of this machine's testbeds, and `controller`, that begin so."""
    names = {name for testbed in running_testbeds() for name in testbed.state.get("switches", ())}
    return sorted(name for name in {*names, "controller"} if name.startswith(incomplete))


def _at_controller(kind: str, incomplete: str) -> list[str]:
    """Ask the controller; none that answers within a second offers nothing."""
    from netsum.cli.controller_choice import choose_controller

    found: list[str] = []
    with contextlib.suppress(Exception):  # A shell that completes a word shows no errors.
        from controller.service.client import OperatorClient

        address = choose_controller(os.environ.get("NETSUM_CONTROLLER"), None).address
        with OperatorClient(address, timeout_s=COMPLETION_TIMEOUT_S) as client:
            found = [view.name for view in (client.jobs() if kind == "jobs" else client.switches())]
    return [name for name in found if name.startswith(incomplete)]
