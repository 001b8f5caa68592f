"""The states of jobs, members and switch links, as tables. An event that a table does not list raises `TransitionError`.

The diagrams in docs/controller.md are generated from these tables: ``python -m docs.states``.
"""

from enum import Enum
from typing import Final


class JobState(Enum):
    """The state of a job."""

    GATHERING = "gathering"  # Workers are missing.
    QUEUED = "queued"  # The job waits for slots, or for its switches.
    INSTALLING = "installing"
    """The epoch is on disk, and may be on the switches, but no worker has an admission for it yet."""
    RUNNING = "running"  # The switches hold the epoch, and the workers have their admissions.
    CLEARING = "clearing"
    """The epoch has ended in memory and on disk, and is being deleted from the switches. Its slots are not free yet."""
    HELD = "held"
    """The workers stop between two collectives, to continue with other slots; the switches still hold the epoch."""
    ENDED = "ended"


class JobEvent(Enum):
    """An event of a job."""

    ENQUEUE = "enqueue"
    DEQUEUE = "dequeue"
    RENEW = "renew"
    ADMIT = "admit"
    HOLD = "hold"
    RELEASE = "release"
    RESTART = "restart"
    CLEAR = "clear"
    END = "end"


JOB_TRANSITIONS: Final = {
    (JobState.GATHERING, JobEvent.ENQUEUE): JobState.QUEUED,
    (JobState.GATHERING, JobEvent.END): JobState.ENDED,
    (JobState.QUEUED, JobEvent.ENQUEUE): JobState.QUEUED,
    (JobState.QUEUED, JobEvent.DEQUEUE): JobState.GATHERING,
    (JobState.QUEUED, JobEvent.RENEW): JobState.INSTALLING,
    (JobState.QUEUED, JobEvent.END): JobState.ENDED,
    (JobState.INSTALLING, JobEvent.RENEW): JobState.INSTALLING,
    (JobState.INSTALLING, JobEvent.ADMIT): JobState.RUNNING,
    (JobState.INSTALLING, JobEvent.RESTART): JobState.CLEARING,
    (JobState.INSTALLING, JobEvent.END): JobState.ENDED,
    (JobState.RUNNING, JobEvent.RENEW): JobState.INSTALLING,
    (JobState.RUNNING, JobEvent.ADMIT): JobState.RUNNING,
    (JobState.RUNNING, JobEvent.RESTART): JobState.CLEARING,
    (JobState.RUNNING, JobEvent.HOLD): JobState.HELD,
    (JobState.RUNNING, JobEvent.END): JobState.ENDED,
    (JobState.CLEARING, JobEvent.CLEAR): JobState.GATHERING,
    (JobState.CLEARING, JobEvent.END): JobState.ENDED,
    (JobState.HELD, JobEvent.RELEASE): JobState.RUNNING,
    (JobState.HELD, JobEvent.RENEW): JobState.INSTALLING,
    (JobState.HELD, JobEvent.ADMIT): JobState.HELD,
    (JobState.HELD, JobEvent.RESTART): JobState.CLEARING,
    (JobState.HELD, JobEvent.END): JobState.ENDED,
}
"""RENEW gives the job its next epoch; ADMIT follows when the switches hold the epoch. CLEAR follows RESTART when each of the
job's switches has deleted the last epoch, or will be reconciled before it is used again. A new session with a switch that kept
its entries admits running jobs again; a session with a switch that restarted renews them."""


class MemberState(Enum):
    """The state of a member."""

    ATTACHED = "attached"  # The worker's stream is open.
    DETACHED = "detached"  # The stream broke; the worker may attach again until its timer expires.
    LEFT = "left"


class MemberEvent(Enum):
    """An event of a member."""

    ATTACH = "attach"
    DETACH = "detach"
    LEAVE = "leave"


MEMBER_TRANSITIONS: Final = {
    (MemberState.ATTACHED, MemberEvent.ATTACH): MemberState.ATTACHED,
    (MemberState.ATTACHED, MemberEvent.DETACH): MemberState.DETACHED,
    (MemberState.ATTACHED, MemberEvent.LEAVE): MemberState.LEFT,
    (MemberState.DETACHED, MemberEvent.ATTACH): MemberState.ATTACHED,
    (MemberState.DETACHED, MemberEvent.LEAVE): MemberState.LEFT,
}
"""ATTACH of an attached member replaces its stream: the worker noticed before the controller that the old stream broke."""


class LinkState(Enum):
    """The state of the connection to a switch."""

    CONNECTING = "connecting"
    READY = "ready"  # The controller is primary, and the switch has been reconciled.
    STANDBY = "standby"  # Another controller is primary.


class LinkEvent(Enum):
    """An event of the connection to a switch."""

    RECONCILED = "reconciled"
    LOST = "lost"
    SUPERSEDED = "superseded"


LINK_TRANSITIONS: Final = {
    (LinkState.CONNECTING, LinkEvent.RECONCILED): LinkState.READY,
    (LinkState.CONNECTING, LinkEvent.LOST): LinkState.CONNECTING,
    (LinkState.CONNECTING, LinkEvent.SUPERSEDED): LinkState.STANDBY,
    (LinkState.READY, LinkEvent.LOST): LinkState.CONNECTING,
    (LinkState.READY, LinkEvent.SUPERSEDED): LinkState.STANDBY,
    (LinkState.STANDBY, LinkEvent.RECONCILED): LinkState.READY,
    (LinkState.STANDBY, LinkEvent.LOST): LinkState.CONNECTING,
    (LinkState.STANDBY, LinkEvent.SUPERSEDED): LinkState.STANDBY,
}
