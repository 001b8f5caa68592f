"""Errors of joining a job."""

from collections.abc import Sequence

from host_agent.errors import PeerError


class JoinError(PeerError):
    """A job could not be joined; the message says why."""


class NoSlotsError(JoinError):
    """The switch has no slots free for the job. All its workers get this error alike."""


class AbsentWorkersError(JoinError, TimeoutError):
    """Some workers did not join before the deadline."""

    def __init__(self, message: str, missing: Sequence[int]) -> None:
        super().__init__(message)
        self.missing = tuple(missing)  # Their ranks, ascending.
