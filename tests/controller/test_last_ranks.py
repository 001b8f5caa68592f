"""The worker that the others wait for, if there is one."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.service.last_ranks import LEAST_COLLECTIVES, LEAST_NS, WINDOW, LastRanks
from host_agent.durations import KEPT, MOST, Durations
from host_agent.job_api import jobs_pb2


def reported(epoch: int, first: int, us: list[int], stride: int = 1) -> jobs_pb2.Durations:
    return jobs_pb2.Durations(epoch=epoch, first=first, stride=stride, us=us)


def ranks_of(late_us: list[list[int]], took_us: int = 1000) -> LastRanks:
    """Return the findings after collectives for each of which every worker's lateness is given."""
    known = LastRanks(len(late_us[0]))
    for rank in range(len(late_us[0])):
        durations = [took_us + max(one) - one[rank] for one in late_us]
        for first in range(0, len(durations), MOST):
            known.add(rank, reported(1, first, durations[first : first + MOST]))
    return known


def test_a_worker_that_is_late_in_most_collectives() -> None:
    late = [[0, 10, 2100, 30] if number % 5 else [0, 300, 30, 10] for number in range(100)]
    slow = ranks_of(late).slow()
    assert slow is not None
    assert (slow.rank, slow.share, slow.collectives, slow.late_ns) == (2, 0.8, 100, 2_070_000)
    assert ranks_of(late).shares() == {1: 0.2, 2: 0.8}


@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_workers_that_are_late_by_chance(world_size: int) -> None:
    dice = random.Random(world_size)
    late = [[dice.randrange(5000) for _ in range(world_size)] for _ in range(500)]
    assert ranks_of(late).slow() is None


def test_less_than_what_hosts_schedulers_do_is_no_reason() -> None:
    always = [[0, LEAST_NS // 1000 - 1]] * 100
    assert ranks_of(always).slow() is None
    assert ranks_of([[0, LEAST_NS // 1000]] * 100).slow() is not None
    assert ranks_of([[0, LEAST_NS // 1000]] * 100, took_us=10**6).slow() is None, "one ten-thousandth"


def test_few_collectives_say_nothing() -> None:
    assert ranks_of([[0, 5000]] * (LEAST_COLLECTIVES - 1)).slow() is None
    assert ranks_of([[0, 5000]] * LEAST_COLLECTIVES).slow() is not None


def test_the_newest_collectives_count() -> None:
    late = [[0, 5000]] * WINDOW + [[5000, 0]] * WINDOW
    slow = ranks_of(late).slow()
    assert slow is not None
    assert (slow.rank, slow.share) == (0, 1.0)


def test_another_epoch_begins_anew_and_reports_of_the_one_before_come_too_late() -> None:
    known = ranks_of([[0, 5000]] * 100)
    known.add(0, reported(2, 0, [1000]))
    assert known.shares() == {}
    known.add(1, reported(1, 0, [1]))
    known.add(1, reported(2, 0, [5000]))
    assert known.shares() == {0: 1.0}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**64 - 1),
            st.integers(0, 2**32 - 1),
            st.lists(st.integers(0, 2**32 - 1), max_size=5),
        ),
        max_size=30,
    )
)
def test_whatever_workers_report(found: list[tuple[int, int, int, int, list[int]]]) -> None:
    known = LastRanks(3)
    for rank, epoch, first, stride, us in found:
        known.add(rank, reported(epoch, first, us, stride))
    assert all(0 < share <= 1 for share in known.shares().values())
    known.slow()


def test_a_worker_that_reports_without_end_takes_little_memory() -> None:
    known = LastRanks(2)
    for number in range(100):
        known.add(0, reported(1, number * 10_000, [1] * 10_000))
    assert len(known._pending) <= 4096


@given(st.lists(st.integers(1, 900), min_size=1, max_size=4))
def test_who_reports_seldom_reports_collectives_that_the_others_report_too(between: list[int]) -> None:
    often, seldom = Durations(7), Durations(7)
    samples = []
    for count in between:
        for number in range(count):
            often.add(number * 1000)
            seldom.add(number * 1000)
        samples.append(often.drain())
    numbers = {each.first + at * each.stride for each in samples if each for at in range(len(each.us))}
    last = seldom.drain()
    assert last is not None
    newest = sum(between) - KEPT // 2
    assert len(last.us) <= MOST
    reported_last = {last.first + at * last.stride for at in range(len(last.us))}
    assert {number for number in reported_last if number >= newest} <= numbers
    assert len(reported_last) > MOST // 2 or reported_last == set(range(max(newest, 0), sum(between)))


def test_nothing_new_is_nothing() -> None:
    durations = Durations(1)
    assert durations.drain() is None
    durations.add(2**50)
    sample = durations.drain()
    assert sample is not None
    assert sample.us == (2**32 - 1,)
    assert durations.drain() is None
