"""State machines as tables, with one function for all. An event that a table does not list raises `TransitionError`."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)


class TransitionError(RuntimeError):
    """An event that cannot happen in a state: a defect of the program, or misuse that its caller explains."""


def next_state(table: Mapping[tuple[State, Event], State], state: State, event: Event, what: str) -> State:
    """Return the state after an event.

    `what`: names the subject in the error, such as "job digits". Raises TransitionError if the table does not list the event
    for this state.
    """
    if (state, event) not in table:
        raise TransitionError(f"{what} is {state.value}, where the event {event.value!r} is not possible")
    return table[state, event]
