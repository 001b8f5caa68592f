"""Which controller a command talks to, and what it is asked for."""

import functools
import inspect
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from netsum.cli.errors import CommandError
from netsum.cli.options import ControllerOption, TestbedOption, TlsCaOption, TlsCertOption, TlsKeyOption
from netsum.cli.testbed_state import require_ready

if TYPE_CHECKING:
    from controller.service.client import OperatorClient
    from topologies.run_folder import RunningTestbed


Parameters = ParamSpec("Parameters")

_CONNECTION = {
    "controller": ControllerOption,
    "testbed": TestbedOption,
    "tls_ca": TlsCaOption,
    "tls_cert": TlsCertOption,
    "tls_key": TlsKeyOption,
}


def controller_address(controller: str | None, testbed: str | None) -> str:
    """Return the address of the controller that is meant.

    Parameters
    ----------
    controller
        As given by option or environment.
    testbed
        Name of a testbed; it comes first, as it is said where the environment is only there. Without either: that of
        NETSUM_TESTBED, else the only one with a controller, else the default address.

    Raises
    ------
    CommandError, TestbedError
        There is no such testbed, or it has no controller.
    """
    from host_agent.wire.channel import DEFAULT_CONTROLLER
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
    """Return the testbed that is meant, if it is up without a controller; None where there is a controller to ask."""
    from topologies.run_folder import find_testbed, running_testbeds

    if testbed is None and controller:
        return None
    if not (testbed or os.environ.get("NETSUM_TESTBED")) and len(running_testbeds()) != 1:
        return None
    found = find_testbed(testbed)
    require_ready(found)
    return found if found.state.get("controller") is None else None


def as_operator(
    command: Callable[Concatenate["OperatorClient", Parameters], None],
) -> Callable[Parameters, None]:
    """Make a command that says which controller it means by options, and is called with a client of that.

    What connecting raises (CommandError, TestbedError, ControllerError, NetsumError) is reported by `netsum.cli.errors`.
    """
    own = list(inspect.signature(command).parameters.values())[1:]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in _CONNECTION.items()
    ]

    @functools.wraps(command)
    def connected(*arguments: Parameters.args, **options: Parameters.kwargs) -> None:
        from controller.service.client import OperatorClient
        from host_agent.wire.channel import TlsFiles

        controller, testbed, *files = (options.pop(name) for name in _CONNECTION)
        address = controller_address(controller, testbed)  # type: ignore[arg-type]  # as the options' types say
        with OperatorClient(address, tls=TlsFiles(*files)) as client:  # type: ignore[arg-type]
            command(client, *arguments, **options)

    # Typer reads these two.
    connected.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    connected.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
    return connected
