"""Commands that talk to a controller."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from netsum.cli.controller_choice import announce, choose_controller
from netsum.cli.options import Connection


def as_operator(
    command: Callable[..., None], *, changes: bool = False, check: Callable[..., None] = lambda **_: None
) -> Callable[..., None]:
    """Make a command whose options name a controller, and which is called with a client of that, and its other options.

    `changes`: whether it changes something there, so that a controller that nobody named must be the only one. `check`:
    refuses wrong options before a controller is chosen. `netsum.cli.exits` reports the errors of connecting (CommandError,
    TestbedError, ControllerError, NetsumError).
    """

    @functools.wraps(command)
    def connected(connection: Connection, **options: Any) -> None:
        from controller.service.client import OperatorClient

        check(**options)
        choice = choose_controller(connection.controller, connection.testbed)
        announce(choice, changes=changes)
        with OperatorClient(choice.address, tls=connection.tls) as client:
            command(client, **options)

    own = list(inspect.signature(command).parameters.values())[1:]
    last = inspect.Parameter("connection", inspect.Parameter.KEYWORD_ONLY, annotation=Connection)
    connected.__signature__ = inspect.Signature([*own, last])  # type: ignore[attr-defined]  # `callback_of` reads it.
    return connected


as_changing_operator = functools.partial(as_operator, changes=True)
"""Make a command that changes something at its controller; see `as_operator`."""
