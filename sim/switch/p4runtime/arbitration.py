"""Arbitration of controllers: primaries and backups by election id. No gRPC here.

Among the controllers that are connected in a role, the one with the highest election id is the primary, as in
BMv2: when it leaves, the next one takes over by itself. (The specification from 1.4 on leaves a switch
without a primary until some controller asks again, which would leave a job's controller powerless after a
second one had a look at the switch.) A controller without an election id is never primary. Roles are
arbitrated apart from each other and all have full access; a role with a configuration is refused, as no
scheme of configurations is defined.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from netsum_common.p4rt import p4runtime_pb2, status_pb2
from sim.switch.p4runtime.status_errors import (
    Code,
    exhausted,
    failed_precondition,
    invalid,
    not_found,
    permission_denied,
)

MAX_CONTROLLERS = 16  # Open streams of one role, as in BMv2.

ElectionId = tuple[int, int]


@dataclass(eq=False)
class Controller:
    """A connected controller."""

    send: Callable[[Any], None]  # Puts a `StreamMessageResponse` on its stream; never blocks.
    role: str | None = None  # Name of its role, "" for the default one; None until it has asked for one.
    election_id: ElectionId | None = None  # (high, low), or None if it never wants to be primary.


def role_name(name: str, legacy_id: int) -> str:
    """Name a role that may be given by the number it had before P4Runtime 1.4."""
    return name or (f"#{legacy_id}" if legacy_id else "")


class Arbiter:
    """Keeps the connected controllers of one device. Not for several threads at once."""

    def __init__(self, device_id: int) -> None:
        self.device_id = device_id
        self._roles: dict[str, list[Controller]] = {}

    def update(self, controller: Controller, request: Any) -> None:
        """Process a controller's `MasterArbitrationUpdate` and notify the controllers that it concerns.

        Raises P4RuntimeError: NOT_FOUND, INVALID_ARGUMENT, RESOURCE_EXHAUSTED or FAILED_PRECONDITION, as the specification
        says; the stream is to be ended with it.
        """
        if request.device_id != self.device_id:
            known = f"this switch is device {self.device_id}, not {request.device_id}"
            raise failed_precondition(known) if controller.role is not None else not_found(known)
        role = role_name(request.role.name, request.role.id)
        if request.role.HasField("config"):
            raise invalid("role configurations are not defined here; leave role.config unset for full access")
        if controller.role is not None and controller.role != role:
            raise failed_precondition(
                f"this stream is in role {controller.role!r}; open another one for role {role!r}"
            )
        peers = self._roles.setdefault(role, [])
        election_id = None
        if request.HasField("election_id"):
            election_id = (request.election_id.high, request.election_id.low)
            if any(peer.election_id == election_id for peer in peers if peer is not controller):
                raise invalid(
                    f"election id {election_id} is taken by another live controller; choose another one"
                )
        if controller.role is None:
            if len(peers) >= MAX_CONTROLLERS:
                raise exhausted(f"{MAX_CONTROLLERS} controllers are connected already; disconnect one first")
            controller.role = role
            peers.append(controller)
        before = self.primary(role)
        changed_by_itself = before is controller and controller.election_id != election_id
        controller.election_id = election_id
        if self.primary(role) is not before or changed_by_itself:
            self._notify(role, peers)
        else:
            self._notify(role, [controller])

    def leave(self, controller: Controller) -> None:
        """Forget a controller whose stream has ended, and notify the others if it was the primary."""
        if controller.role is None:
            return
        peers = self._roles[controller.role]
        before = self.primary(controller.role)
        peers.remove(controller)
        if before is controller:
            self._notify(controller.role, peers)
        if not peers:
            del self._roles[controller.role]
        controller.role = None

    def primary(self, role: str) -> Controller | None:
        """Find the primary of a role."""
        candidates = [each for each in self._roles.get(role, ()) if each.election_id is not None]
        return max(candidates, key=lambda each: each.election_id or (0, 0), default=None)

    def primaries(self) -> list[Controller]:
        """List the primaries of all roles: who gets packets, digests and notifications."""
        return [primary for role in self._roles if (primary := self.primary(role)) is not None]

    def check_writer(self, role: str, election_id: ElectionId | None) -> None:
        """Refuse a write that does not come from a primary.

        As in BMv2, while no controller is connected a request without an election id may write: that is how
        one-shot tools without a stream work.

        Raises P4RuntimeError: PERMISSION_DENIED.
        """
        if not self._roles and election_id is None:
            return
        primary = self.primary(role)
        if primary is None or primary.election_id != election_id:
            raise permission_denied(
                "Not primary: open a StreamChannel, send a MasterArbitrationUpdate with the highest "
                "election id and use that id in requests"
            )

    def _notify(self, role: str, peers: list[Controller]) -> None:
        primary = self.primary(role)
        for peer in peers:
            message = p4runtime_pb2.StreamMessageResponse()
            arbitration = message.arbitration
            arbitration.device_id = self.device_id
            if role.startswith("#"):
                arbitration.role.id = int(role[1:])
            elif role:
                arbitration.role.name = role
            if primary is not None and primary.election_id is not None:
                arbitration.election_id.high, arbitration.election_id.low = primary.election_id
            if peer is primary:
                status = status_pb2.Status(code=int(Code.OK), message="Is primary")
            elif primary is not None:
                status = status_pb2.Status(code=int(Code.ALREADY_EXISTS), message="Is backup")
            else:
                status = status_pb2.Status(code=int(Code.NOT_FOUND), message="Is backup; there is no primary")
            arbitration.status.CopyFrom(status)
            peer.send(message)
