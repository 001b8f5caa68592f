from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from host_agent.errors import SwitchSilentError
from host_agent.torch.failures import backend_error
from host_agent.torch.work import NetsumWork


def test_it_is_done_with_its_last_part_and_after_what_is_left_to_do() -> None:
    parts: list[Future[Any]] = [Future(), Future()]
    left = []
    work = NetsumWork("sum", [torch.ones(1)], parts, lambda: left.append("done"))
    parts[0].set_result(None)
    assert not work.is_completed()
    assert not left
    parts[1].set_result(None)
    assert work.is_completed()
    assert work.wait()
    assert left == ["done"]
    assert work.get_future().value()[0].item() == 1


def test_an_error_comes_through_wait_and_future_and_says_what_failed() -> None:
    part: Future[Any] = Future()
    work = NetsumWork(
        "all_reduce", [], [part], explain=lambda what, error: backend_error(what, str(error), error)
    )
    before = work.get_future()
    part.set_exception(SwitchSilentError("no answer"))
    with pytest.raises(dist.DistBackendError, match="all_reduce: no answer") as caught:
        work.wait()
    assert isinstance(caught.value.__cause__, SwitchSilentError)
    for future in (before, work.get_future()):
        with pytest.raises(RuntimeError, match="all_reduce: no answer"):
            future.wait()
    assert not work.is_success()


def test_an_error_of_what_is_left_to_do_is_the_works() -> None:
    part: Future[Any] = Future()

    def fail() -> None:
        raise ValueError("cannot round")

    work = NetsumWork("all_reduce", [], [part], fail)
    part.set_result(None)
    with pytest.raises(ValueError, match="cannot round"):
        work.wait()


def test_waiting_for_a_time_does_not_end_the_work() -> None:
    part: Future[Any] = Future()
    work = NetsumWork("all_reduce", [], [part])
    with pytest.raises(dist.DistBackendError, match="not done within 0.01 s"):
        work.wait(timedelta(seconds=0.01))
    part.set_result(None)
    assert work.wait(timedelta(seconds=0.01))


def test_a_time_given_with_the_call_is_how_long_it_is_waited_for() -> None:
    part: Future[Any] = Future()
    work = NetsumWork("barrier", [], [part], patience=timedelta(seconds=0.01))
    with pytest.raises(dist.DistBackendError, match="not done within 0.01 s"):
        work.wait()
    with pytest.raises(dist.DistBackendError, match="not done within 0.02 s"):
        work.wait(timedelta(seconds=0.02))
    part.set_result(None)
    assert work.wait()


def test_callbacks_run_when_it_completes() -> None:
    part: Future[Any] = Future()
    chained = (
        NetsumWork("all_reduce", [torch.ones(2)], [part]).get_future().then(lambda done: done.value()[0] + 1)
    )
    part.set_result(None)
    assert chained.wait().tolist() == [2, 2]


def test_a_callback_that_waits_does_not_delay_what_it_waits_for() -> None:
    parts: list[Future[Any]] = [Future() for _ in range(4)]
    works = [NetsumWork(f"number {each}", [torch.ones(1)], [part]) for each, part in enumerate(parts)]
    inner = [work.get_future() for work in works[2:]]

    def wait(wanted: Any) -> Any:
        return lambda _: wanted.wait()

    outer = [work.get_future().then(wait(each)) for work, each in zip(works[:2], inner, strict=True)]
    for part in parts:
        part.set_result(None)
    for each in outer:
        assert each.wait()[0].item() == 1
