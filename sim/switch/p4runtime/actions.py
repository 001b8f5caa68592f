"""Actions with their parameters: P4Runtime's ids and byte strings to the engine's names and integers."""

from collections.abc import Sequence
from typing import Any

from netsum_common.p4rt import p4runtime_pb2
from sim.switch.p4runtime import bytestrings
from sim.switch.p4runtime.catalog import Action, Catalog, by_field, lookup
from sim.switch.p4runtime.status_errors import invalid


def decode_action(message: Any, catalog: Catalog) -> tuple[Action, tuple[int, ...]]:
    """Find the action of a `p4.v1.Action` and its parameters in the program's order.

    Raises P4RuntimeError: INVALID_ARGUMENT or OUT_OF_RANGE: no such action, or parameters that are unknown, repeated,
    missing or too wide.
    """
    action = lookup(catalog.actions, message.action_id, "action")
    owner = f"action {action.name}"
    given = by_field(message.params, "param_id", action.params, owner, "parameter")
    missing = [param.name for param in action.params if param.id not in given]
    if missing:
        raise invalid(f"{owner}: parameters {', '.join(missing)} are missing; give all of them")
    return action, tuple(
        bytestrings.decode(given[param.id].value, param.bitwidth, f"{owner}: parameter {param.name}")
        for param in action.params
    )


def encode_action(name: str, params: Sequence[int], catalog: Catalog) -> Any:
    """Write an engine's action as a `p4.v1.Action`."""
    action = catalog.action_named(name)
    message = p4runtime_pb2.Action(action_id=action.id)
    for param, value in zip(action.params, params, strict=True):
        message.params.add(param_id=param.id, value=bytestrings.encode(value))
    return message
