from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")


import torch.distributed as dist

from host_agent.errors import BrokenCommunicatorError, ClosedCommunicatorError
from host_agent.torch.failures import Failures


@pytest.fixture
def failures() -> Failures:
    return Failures(dist.HashStore(), 0, [4, 5], 60.0)


def _raised(failures: Failures, error: Exception) -> Any:
    return failures.explain("all_reduce", error)


def test_a_restart_of_the_switch_is_reported_as_such_and_what_to_do(failures: Failures) -> None:
    failures.note_restart("switch s1 was restarted")
    raised = _raised(failures, ClosedCommunicatorError("closed"))
    assert isinstance(raised, dist.DistBackendError)
    assert str(raised) == (
        "all_reduce: switch s1 was restarted, so what was added for this group is lost. This group cannot be used any "
        "more: destroy it and make a new one, or let torchrun restart the job"
    )


def test_an_end_of_the_job_is_reported_with_its_reason(failures: Failures) -> None:
    failures.note_end("an operator deleted the job")
    raised = _raised(failures, ClosedCommunicatorError("closed"))
    assert "all_reduce: the job of this group has ended: an operator deleted the job. This group" in str(
        raised
    )
    later = _raised(failures, BrokenCommunicatorError("broken"))
    assert "this process group failed before: all_reduce: the job of this group has ended" in str(later)


def test_who_left_is_named_by_the_rank_in_the_world(failures: Failures) -> None:
    failures.note_left(1)
    assert "rank 5 left before this was done" in str(_raised(failures, ClosedCommunicatorError("closed")))


def test_a_group_that_was_destroyed_here_says_so_in_any_order(failures: Failures) -> None:
    failures.note_left(1)
    failures.note_destroyed()
    raised = str(_raised(failures, ClosedCommunicatorError("closed")))
    assert raised == "all_reduce: the process group was destroyed before this was done"


def test_errors_that_are_not_netsums_stay_as_they_are(failures: Failures) -> None:
    error = ValueError("cannot round")
    assert _raised(failures, error) is error
