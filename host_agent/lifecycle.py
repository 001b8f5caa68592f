"""The states of a communicator, as a table. An event that is not in it raises and leaves the state as it was."""

from enum import Enum
from typing import Final

from host_agent.errors import BrokenCommunicatorError, ClosedCommunicatorError, MisuseError
from netsum_common.states import TransitionError, next_state


class LifecycleState(Enum):
    """The state of a communicator."""

    IDLE = "idle"
    RUNNING = "running"
    BROKEN = "broken"
    CLOSED = "closed"


class LifecycleEvent(Enum):
    """An event that changes the state of a communicator."""

    SUBMIT = "submit a collective"
    DRAIN = "finish the last collective"
    FAIL = "fail"
    CLOSE = "close"


TRANSITIONS: Final = {
    (LifecycleState.IDLE, LifecycleEvent.SUBMIT): LifecycleState.RUNNING,
    (LifecycleState.IDLE, LifecycleEvent.FAIL): LifecycleState.BROKEN,
    (LifecycleState.IDLE, LifecycleEvent.CLOSE): LifecycleState.CLOSED,
    (LifecycleState.RUNNING, LifecycleEvent.SUBMIT): LifecycleState.RUNNING,
    (LifecycleState.RUNNING, LifecycleEvent.DRAIN): LifecycleState.IDLE,
    (LifecycleState.RUNNING, LifecycleEvent.FAIL): LifecycleState.BROKEN,
    (LifecycleState.RUNNING, LifecycleEvent.CLOSE): LifecycleState.CLOSED,
    (LifecycleState.BROKEN, LifecycleEvent.CLOSE): LifecycleState.CLOSED,
    (LifecycleState.CLOSED, LifecycleEvent.CLOSE): LifecycleState.CLOSED,
}


class Lifecycle:
    """The state of one communicator. It has no lock of its own; its owner locks it."""

    def __init__(self) -> None:
        self.state = LifecycleState.IDLE
        self.cause: BaseException | None = None  # The error that broke it; kept after it is closed.

    def on(self, event: LifecycleEvent, cause: BaseException | None = None) -> None:
        """Change the state.

        `cause`: why, for FAIL; named by the errors that follow. Raises BrokenCommunicatorError, ClosedCommunicatorError,
        MisuseError if the event cannot happen in this state.
        """
        try:
            self.state = next_state(TRANSITIONS, self.state, event, "a communicator")
        except TransitionError:
            raise self._refusal(event) from self.cause
        if event is LifecycleEvent.FAIL:
            self.cause = cause

    def _refusal(self, event: LifecycleEvent) -> MisuseError:
        if self.state is LifecycleState.CLOSED:
            return ClosedCommunicatorError("the communicator is closed: make a new one with a new admission")
        if self.state is LifecycleState.BROKEN:
            return BrokenCommunicatorError(
                f"the communicator is broken ({self.cause}): restart the job and make a new one with a new admission"
            )
        return MisuseError(f"a communicator that is {self.state.value} cannot {event.value}")
