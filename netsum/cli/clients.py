"""Commands that talk to a controller."""

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from netsum.cli.controller_choice import controller_address
from netsum.cli.options import ControllerOption, TestbedOption, TlsCaOption, TlsCertOption, TlsKeyOption

if TYPE_CHECKING:
    from controller.service.client import OperatorClient


Parameters = ParamSpec("Parameters")

_CONNECTION = {
    "controller": ControllerOption,
    "testbed": TestbedOption,
    "tls_ca": TlsCaOption,
    "tls_cert": TlsCertOption,
    "tls_key": TlsKeyOption,
}


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
        from netsum_common.channel import TlsFiles

        controller, testbed, *files = (options.pop(name) for name in _CONNECTION)
        address = controller_address(controller, testbed)  # type: ignore[arg-type]  # as the options' types say
        with OperatorClient(address, tls=TlsFiles(*files)) as client:  # type: ignore[arg-type]
            command(client, *arguments, **options)

    # Typer reads these two.
    connected.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    connected.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
    return connected
