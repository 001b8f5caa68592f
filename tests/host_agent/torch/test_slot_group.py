"""The start of a process group, with a membership of this process: the table, and what waits for it."""

import itertools
import threading
from concurrent.futures import Future
from typing import Any, cast

import pytest

pytest.importorskip("torch", exc_type=ImportError)

import torch.distributed as dist

from host_agent.errors import ClosedCommunicatorError, MisuseError
from host_agent.torch.failures import Failures
from host_agent.torch.slot_group import START_TRANSITIONS, SlotGroup, StartEvent, StartState


class Does:
    """Collectives that are done at once."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.closed = False

    def barrier_async(self, label: str) -> Future[str]:
        self.begun.append(label)
        done: Future[str] = Future()
        done.set_result(label)
        return done

    def close(self) -> None:
        self.closed = True


class Place:
    """A membership whose start ends when it may."""

    def __init__(self) -> None:
        self.may_start = threading.Event()
        self.closed = threading.Event()
        self.does = Does()

    def watch(self, *callbacks: Any) -> None:
        pass

    def start(self, timeout_s: float) -> None:
        assert self.may_start.wait(10)

    def communicator(self, timeout_s: float, *, trust: object = None) -> Does:
        return self.does

    def close(self) -> None:
        self.closed.set()


def group_on(membership: Place) -> SlotGroup:
    def none_free(refusal: Any) -> Any:
        raise AssertionError(refusal)

    return SlotGroup(cast(Any, membership), 1.0, Failures(dist.HashStore(), 0, [0], 1.0), none_free)


def test_the_table_is_whole_but_for_a_start_that_ends_twice() -> None:
    missing = set(itertools.product(StartState, StartEvent)) - set(START_TRANSITIONS)
    assert missing == {(StartState.STARTED, StartEvent.START), (StartState.STARTED, StartEvent.FAIL)}


def test_collectives_begun_before_the_end_of_the_start_keep_their_order() -> None:
    membership = Place()
    group = group_on(membership)
    early = [group.barrier(label) for label in ("a", "b")]
    assert not any(each.done() for each in early)
    membership.may_start.set()
    assert [each.result(10) for each in early] == ["a", "b"]
    assert group.barrier("c").result(10) == "c"
    assert membership.does.begun == ["a", "b", "c"]
    group.close()
    assert membership.does.closed


def test_a_group_closed_while_it_starts_fails_what_waits_and_closes_what_comes() -> None:
    membership = Place()
    group = group_on(membership)
    waits = group.barrier("a")
    group.close()
    for failed in (waits, group.barrier("b")):
        with pytest.raises(ClosedCommunicatorError, match="the process group was destroyed"):
            failed.result(10)
    starting = [each for each in threading.enumerate() if each.name == "netsum-start"]
    membership.may_start.set()
    for each in starting:
        each.join(10)
    assert membership.does.closed
    assert membership.does.begun == []


def test_a_group_that_cannot_be_resized_goes_on_and_leaves_the_job_with_its_end() -> None:
    membership = Place()
    group = group_on(membership)
    with pytest.raises(MisuseError, match="without slots of a switch cannot be resized"):
        group.hand_over()
    membership.may_start.set()
    assert group.barrier("after").result(10) == "after"
    assert not group._failures._destroyed
    group.close()
    assert membership.closed.is_set()
