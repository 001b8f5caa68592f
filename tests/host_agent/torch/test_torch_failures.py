from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")


import torch.distributed as dist

from host_agent.errors import BrokenCommunicatorError, ClosedCommunicatorError
from host_agent.torch.failures import Failures


@pytest.fixture
def failures() -> Failures:
    return Failures(dist.HashStore(), 0, [4, 5], 60.0)


def _told(failures: Failures, error: Exception) -> Any:
    return failures.explain("all_reduce", error)


def test_a_restart_of_the_switch_is_told_as_such_and_what_to_do(failures: Failures) -> None:
    failures.note_restart("switch s1 was restarted")
    told = _told(failures, ClosedCommunicatorError("closed"))
    assert isinstance(told, dist.DistBackendError)
    assert str(told) == (
        "all_reduce: switch s1 was restarted, so what was added for this group is lost. This group cannot be used any "
        "more: destroy it and make a new one, or let torchrun restart the job"
    )


def test_an_end_of_the_job_is_told_with_its_reason(failures: Failures) -> None:
    failures.note_end("an operator deleted the job")
    told = _told(failures, ClosedCommunicatorError("closed"))
    assert "all_reduce: the job of this group has ended: an operator deleted the job. This group" in str(told)
    later = _told(failures, BrokenCommunicatorError("broken"))
    assert "this process group failed before: all_reduce: the job of this group has ended" in str(later)


def test_who_left_is_named_by_the_rank_in_the_world(failures: Failures) -> None:
    failures.note_left(1)
    assert "rank 5 left before this was done" in str(_told(failures, ClosedCommunicatorError("closed")))


def test_a_group_that_was_destroyed_here_says_so_whoever_left_before(failures: Failures) -> None:
    failures.note_left(1)
    failures.note_destroyed()
    told = str(_told(failures, ClosedCommunicatorError("closed")))
    assert told == "all_reduce: the process group was destroyed before this was done"


def test_errors_that_are_not_netsums_stay_as_they_are(failures: Failures) -> None:
    error = ValueError("cannot round")
    assert _told(failures, error) is error
