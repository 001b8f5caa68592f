"""Compiled: receiving and transmitting by whichever kind of port, settled by the type of a driver's inbox and outbox."""

# Numba's decorators are untyped.
# mypy: disable-error-code="untyped-decorator"

from collections.abc import Callable
from typing import Any

from numba.extending import overload

from netsum_common.compiled import Array, Integer

RECEIVERS: dict[type, Any] = {}
"""The function that receives, by the class of the inbox: (inbox, timeout in ms) -> number of frames."""

TRANSMITTERS: dict[type, Any] = {}
"""The function that transmits, by the class of the outbox: (outbox, ports, lengths, frames, total) -> frames for no port."""


def receive(inbox: Any, timeout_ms: Integer) -> Integer:
    """Receive frames, as the driver does."""
    raise NotImplementedError


def transmit(outbox: Any, ports: Array, lengths: Array, frames: Array, total: Integer) -> Integer:
    """Transmit frames, as the driver does."""
    raise NotImplementedError


@overload(receive, strict=False)
def _receive_of(inbox: Any, timeout_ms: Any) -> Callable[..., int]:
    del timeout_ms
    function = RECEIVERS[inbox.instance_class]
    return lambda inbox, timeout_ms: function(inbox, timeout_ms)


@overload(transmit, strict=False)
def _transmit_of(outbox: Any, ports: Any, lengths: Any, frames: Any, total: Any) -> Callable[..., int]:
    del ports, lengths, frames, total
    function = TRANSMITTERS[outbox.instance_class]
    return lambda outbox, ports, lengths, frames, total: function(outbox, ports, lengths, frames, total)
