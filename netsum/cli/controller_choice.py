"""The controller that a command talks to, and whether another could be meant."""

import os
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from netsum.cli.testbed_state import require_ready
from netsum.command_errors import CommandError, UsageError

if TYPE_CHECKING:
    from topologies.run_folder import RunningTestbed


LOOK_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class Choice:
    """A controller, or a testbed without one."""

    address: str  # Address of the controller; empty: the testbed has none.
    name: str  # Such as "the controller of the testbed star-4".
    testbed: "RunningTestbed | None" = None
    named: bool = True  # Whether an option or the environment names it.
    others: tuple[str, ...] = ()  # Testbeds whose controllers could be meant too.


def choose_controller(controller: str | None, testbed: str | None, *, alone: bool = False) -> Choice:
    """Return the controller that is meant.

    That of `testbed`; else `controller`; else that of the testbed in NETSUM_TESTBED. Where none of these names one: the
    controller at the default address, unless testbeds are up and nothing listens there; else that of the only testbed.

    `controller`: the address from the command line, else that of NETSUM_CONTROLLER. `alone`: whether a testbed without a
    controller will do. Raises CommandError or TestbedError if two are named, the testbed does not run or has no controller, or
    several could be meant and none is the default.
    """
    from host_agent.job_api import CONTROLLER_VARIABLE, DEFAULT_CONTROLLER
    from topologies.run_folder import find_testbed, running_testbeds

    if testbed and controller and controller != os.environ.get(CONTROLLER_VARIABLE):
        raise UsageError("--controller and --testbed name two controllers: give one of them")
    if controller and not testbed:
        return Choice(controller, f"the controller at {controller}")
    if name := testbed or os.environ.get("NETSUM_TESTBED"):
        return _of_testbed(find_testbed(name), alone, named=True)
    up = [one for one in running_testbeds() if not one.abandoned and (alone or one.state.get("controller"))]
    names = tuple(one.name for one in up)
    if not up or listens(DEFAULT_CONTROLLER):
        default = f"the controller at {DEFAULT_CONTROLLER}"
        return Choice(DEFAULT_CONTROLLER, default, named=False, others=names)
    if len(up) > 1:
        raise CommandError(
            f"several testbeds are up: name one of {', '.join(names)} by --testbed, or a controller by --controller"
        )
    return _of_testbed(up[0], alone, named=False)


def _of_testbed(testbed: "RunningTestbed", alone: bool, named: bool) -> Choice:
    require_ready(testbed)
    if testbed.state.get("controller") is not None:
        name = f"the controller of the testbed {testbed.name}"
        return Choice(testbed.controller_address, name, testbed, named)
    if not alone:
        raise CommandError(
            f"the testbed {testbed.name} has no controller: `netsum controller serve --testbed {testbed.name}`"
        )
    return Choice("", f"the testbed {testbed.name}, which has no controller", testbed, named)


def announce(choice: Choice, *, changes: bool = False) -> None:
    """Name a controller that nobody named on standard error; ask first where a command `changes` one of several.

    Raises CommandError if there is no terminal to ask at, or the answer is no.
    """
    from netsum.terminal import echo_error

    if choice.named:
        return
    others = " or ".join(choice.others)
    if not (changes and others):
        echo_error(f"asking {choice.name}" + (f", not that of the testbed {others}" if others else ""))
        return
    which = f"{choice.name} or that of the testbed {others} could be meant"
    if sys.stdin.isatty() and sys.stderr.isatty():
        print(f"netsum: {which}: go on with the first? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
    raise CommandError(f"{which}: name one by --controller or --testbed; nothing was changed")


def listens(address: str) -> bool:
    """Whether something listens at "HOST:PORT"."""
    from netsum_common.channel import split_host_port

    try:
        socket.create_connection(split_host_port(address), LOOK_TIMEOUT_S).close()
    except OSError:
        return False
    return True
