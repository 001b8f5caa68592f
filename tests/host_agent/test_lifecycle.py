from itertools import product

import pytest

from host_agent.errors import BrokenCommunicatorError, ClosedCommunicatorError, MisuseError
from host_agent.lifecycle import TRANSITIONS, Event, Lifecycle, State


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_events_that_are_not_in_the_table_raise_and_change_nothing(state: State, event: Event) -> None:
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
    lifecycle.on(Event.SUBMIT)
    lifecycle.on(Event.FAIL, cause)
    with pytest.raises(BrokenCommunicatorError, match=r"worker 3 .* new admission") as raised:
        lifecycle.on(Event.SUBMIT)
    assert raised.value.__cause__ is cause
    lifecycle.on(Event.CLOSE)
    with pytest.raises(ClosedCommunicatorError, match="closed"):
        lifecycle.on(Event.SUBMIT)
