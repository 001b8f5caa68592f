"""Commands that talk to a controller."""

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from netsum.cli.controller_choice import announce, choose_controller
from netsum.cli.options import (
    ControllerOption,
    ControllersTestbedOption,
    TlsCaOption,
    TlsCertOption,
    TlsKeyOption,
)

if TYPE_CHECKING:
    from controller.service.client import OperatorClient


Parameters = ParamSpec("Parameters")

_CONNECTION = {
    "controller": ControllerOption,
    "testbed": ControllersTestbedOption,
    "tls_ca": TlsCaOption,
    "tls_cert": TlsCertOption,
    "tls_key": TlsKeyOption,
}


def as_operator(
    command: Callable[Concatenate["OperatorClient", Parameters], None],
    *,
    changes: bool = False,
    check: Callable[..., None] = lambda **_: None,
) -> Callable[Parameters, None]:
    """Make a command whose options name a controller, and which is called with a client of that.

    `changes`: whether it changes something there, so that a controller that nobody named must be the only one. `check`:
    refuses wrong options before a controller is chosen. `netsum.cli.exits` reports the errors of connecting (CommandError,
    TestbedError, ControllerError, NetsumError).
    """
    own = list(inspect.signature(command).parameters.values())[1:]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in _CONNECTION.items()
    ]

    @functools.wraps(command)
    def connected(*arguments: Parameters.args, **options: Parameters.kwargs) -> None:
        from controller.service.client import OperatorClient
        from netsum_common.channel import TlsFiles

        controller, testbed, *files = (options.pop(name) for name in _CONNECTION)
        check(**options)
        choice = choose_controller(controller, testbed)  # type: ignore[arg-type]  # as the options' types say
        announce(choice, changes=changes)
        with OperatorClient(choice.address, tls=TlsFiles(*files)) as client:  # type: ignore[arg-type]
            command(client, *arguments, **options)

    # Typer reads these two.
    connected.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    connected.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
    return connected


as_changing_operator = functools.partial(as_operator, changes=True)
"""Make a command that changes something at its controller; see `as_operator`."""
