from itertools import product

import pytest

from host_agent.errors import BrokenCommunicatorError, ClosedCommunicatorError, MisuseError
from host_agent.lifecycle import TRANSITIONS, Lifecycle, LifecycleEvent, LifecycleState


@pytest.mark.parametrize(("state", "event"), list(product(LifecycleState, LifecycleEvent)))
def test_events_that_are_not_in_the_table_raise_and_change_nothing(
    state: LifecycleState, event: LifecycleEvent
) -> None:
    lifecycle = Lifecycle()
    lifecycle.state = state
    if (state, event) in TRANSITIONS:
        lifecycle.on(event)
        assert lifecycle.state is TRANSITIONS[state, event]
        return
    with pytest.raises(MisuseError):
        lifecycle.on(event)
    assert lifecycle.state is state


def test_errors_say_what_became_of_the_communicator() -> None:
    lifecycle = Lifecycle()
    cause = RuntimeError("worker 3 did not contribute")
    lifecycle.on(LifecycleEvent.SUBMIT)
    lifecycle.on(LifecycleEvent.FAIL, cause)
    with pytest.raises(BrokenCommunicatorError, match=r"worker 3 .* new admission") as raised:
        lifecycle.on(LifecycleEvent.SUBMIT)
    assert raised.value.__cause__ is cause
    lifecycle.on(LifecycleEvent.CLOSE)
    with pytest.raises(ClosedCommunicatorError, match="closed"):
        lifecycle.on(LifecycleEvent.SUBMIT)
