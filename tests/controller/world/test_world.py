"""The controller in the simulated world: stories of some seeds, and those that once found a defect."""

import logging
from collections.abc import Iterator

import pytest

from tests.controller.service_harness import fake_leaf_spine
from tests.controller.world.play import play
from tests.controller.world.story import Setting, Step, Story, story_of

SEEDS = 30
ENDLESS = Story(
    "no switch answers",
    Setting(network=fake_leaf_spine((2, 2))),
    (
        *(Step(0.0, "restart_switch", (number, 12.0)) for number in range(3)),
        Step(0.5, "join", ("one", 3, 0, {}, 0.0)),
    ),
)
"""A job on a tree whose switches are all away. It gave its slots up and took them again without a pause."""
SLOW_READERS = Story(
    "595477417",
    Setting(
        options={"share": "fair", "slots": 4096},
        mixing=0.1,
        stream_delays=(0.0001, 0.05),
        switch_delays=(0.0001, 0.05),
        loses=0.01,
    ),
    (
        Step(0.5, "join", ("three", 3, 2, {"if_full": 1, "queue_s": 30.0}, 4.0)),
        Step(5.51, "join", ("one", 2, 2, {"weight": 1.0}, 0.5)),
    ),
)
"""Workers read later than a move waits for them. Their answers to one move were taken for answers to the next."""


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Keep the controller from logging each of the failures that the world makes."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_stories_of_some_seeds_break_no_invariant(first: int) -> None:
    outcomes = [play(story_of(seed)) for seed in range(first, first + 10)]
    told = [f"seed {each.story.seed}: {each.fault}\n{each.story}" for each in outcomes if each.fault]
    assert not told, "\n".join(told)
    # The stories are not all idle.
    assert sum(each.happened["admitted"] for each in outcomes) > 10
    assert sum(each.happened["store: commits"] for each in outcomes) > 100


@pytest.mark.parametrize("story", [ENDLESS, SLOW_READERS], ids=lambda story: story.seed)
def test_stories_that_found_a_defect_do_so_no_more(story: Story) -> None:
    assert play(story).fault == ""


def test_a_story_reaches_a_time_that_is_a_rounded_sum() -> None:
    assert play(story_of(186397452)).fault == ""


def test_a_seed_gives_the_same_story_again() -> None:
    for seed in (9, 10):
        first, second = play(story_of(seed)), play(story_of(seed))
        assert (first.trace, first.steps, first.last) == (second.trace, second.steps, second.last)
