"""The states of a worker's membership in a job, as a table."""

from enum import Enum
from typing import Final


class MembershipState(Enum):
    """States of a worker's membership, as far as the controller has told it."""

    JOINING = "joining"  # The worker is no member yet.
    PLACED = "placed"  # The worker is a member and waits for other workers or for slots.
    ADMITTED = "admitted"
    RESTARTING = "restarting"  # The epoch of its admission is over, and workers are missing for the next.
    FAILED = "failed"  # The worker could not join.
    ENDED = "ended"  # The job, or the worker's part in it, has ended after it was admitted.
    CLOSED = "closed"  # The worker has given up its membership.


class MembershipEvent(Enum):
    """Events of a membership."""

    PLACE = "place"
    GATHER = "gather"
    ADMIT = "admit"
    FORGET = "close_in_child"  # A controller that was started again does not know the member: the job was not complete.
    FAIL = "fail"
    END = "end"
    CLOSE = "close"


_S, _E = MembershipState, MembershipEvent
_OVER: Final = (_S.FAILED, _S.ENDED, _S.CLOSED)

MEMBERSHIP_TRANSITIONS: Final = {
    (_S.JOINING, _E.PLACE): _S.PLACED,
    (_S.JOINING, _E.FAIL): _S.FAILED,
    (_S.JOINING, _E.END): _S.FAILED,
    (_S.PLACED, _E.GATHER): _S.PLACED,
    (_S.PLACED, _E.ADMIT): _S.ADMITTED,
    (_S.PLACED, _E.FORGET): _S.JOINING,
    (_S.PLACED, _E.FAIL): _S.FAILED,
    (_S.PLACED, _E.END): _S.FAILED,
    (_S.ADMITTED, _E.ADMIT): _S.ADMITTED,
    (_S.ADMITTED, _E.GATHER): _S.RESTARTING,
    (_S.ADMITTED, _E.END): _S.ENDED,
    (_S.RESTARTING, _E.GATHER): _S.RESTARTING,
    (_S.RESTARTING, _E.ADMIT): _S.ADMITTED,
    (_S.RESTARTING, _E.END): _S.ENDED,
}
# Messages that were under way when it was over change nothing, and any membership can be closed.
MEMBERSHIP_TRANSITIONS.update({(state, event): state for state in _OVER for event in _E})
MEMBERSHIP_TRANSITIONS.update({(state, _E.CLOSE): _S.CLOSED for state in _S})
