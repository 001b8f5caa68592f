"""What can go wrong when a job is joined."""

from host_agent.errors import PeerError


class JoinError(PeerError):
    """A job could not be joined; the message says why."""
