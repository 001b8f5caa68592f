from enum import Enum
from itertools import product
from pathlib import Path

import pytest

from controller.service.states import JOB_TRANSITIONS, JobEvent, JobState
from docs.states import DIAGRAMS, with_diagrams
from netsum_common.states import TransitionError, next_state

PAGE = Path(__file__).resolve().parents[2] / "docs" / "controller.md"


@pytest.mark.parametrize(("state", "event"), list(product(JobState, JobEvent)))
def test_events_that_are_not_in_the_table_raise(state: JobState, event: JobEvent) -> None:
    if (state, event) in JOB_TRANSITIONS:
        assert next_state(JOB_TRANSITIONS, state, event, "job j") is JOB_TRANSITIONS[state, event]
        return
    with pytest.raises(TransitionError, match=f"job j is {state.value}, where the event '{event.value}'"):
        next_state(JOB_TRANSITIONS, state, event, "job j")


@pytest.mark.parametrize("name", DIAGRAMS)
def test_every_state_can_be_reached(name: str) -> None:
    first, table = DIAGRAMS[name]
    reached: set[Enum] = {first}
    for _ in table:
        reached |= {after for (before, _), after in table.items() if before in reached}
    assert reached == set(type(first))


def test_the_diagrams_of_the_documentation_are_those_of_the_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in DIAGRAMS if f"<!-- states: {name} -->\n```mermaid" not in page] == []
    assert with_diagrams(page) == page, "run: python -m docs.states"
