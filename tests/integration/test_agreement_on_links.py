"""Workers of a job that agree whether they run the switch's program themselves, or none of them does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from host_agent.communicator import Communicator, compile_ahead
from host_agent.errors import MissingWorkersError, SwitchSilentError
from host_agent.joining.worker_report import report_of
from host_agent.transport import in_place_link
from host_agent.transport.in_place_link import row_bytes_for
from host_agent.wire import Admission
from host_agent.wire.path import Level
from netsum_common.lent_program import READY, REFUSED, RUN, LendingRequest
from netsum_common.rings import AttachError, ask
from sim.switch.ports import lending
from tests.integration.simulated.loopback import LoopbackSwitch, on_all
from tests.integration.test_lent_program import memories_of
from tests.integration.test_shared_memory import eventually

DEADLINE_S = 60.0
NAMED_S = 8.0
"""A deadline in whose last quarter a worker asks, and the switch answers, though the processors are busy with other work."""
SOON_S = 1.0
WORKERS = 3
_fork = multiprocessing.get_context("fork")

VALUES = [np.arange(worker, worker + 5_000, dtype=np.int32) for worker in range(WORKERS)]
SUM = np.sum(VALUES, axis=0, dtype=np.int32)

Place = tuple[Admission, tuple[str, int]]


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """No deadline is running yet."""
    compile_ahead()


@pytest.fixture(autouse=True)
def _program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETSUM_LINK", "program")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place_link, "AGREE_TIMEOUT_S", 0.05)


@pytest.fixture(scope="module")
def switch() -> Iterator[LoopbackSwitch]:
    with LoopbackSwitch(64, WORKERS) as running:
        yield running


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def sum_of(communicator: Communicator) -> Any:
    return communicator.allreduce(VALUES[communicator.worker_id])


def assert_right(communicators: list[Communicator], kind: str) -> None:
    for _ in range(3):
        for each in on_all(communicators, sum_of):
            assert np.array_equal(each, SUM), each
    assert [each.link for each in communicators] == [kind] * len(communicators)


def at(opened: ExitStack, place: Place, timeout_s: float = DEADLINE_S) -> Communicator:
    return opened.enter_context(Communicator(place[0], bind=place[1], timeout_s=timeout_s))


def request_of(place: Place, communicator: Communicator) -> LendingRequest:
    """The request of the worker at a place, of memory as large as another one's."""
    admission = place[0]
    key = admission.epoch << 32 | admission.token
    size = row_bytes_for(communicator._progress.core)
    return LendingRequest(key, admission.worker_id, WORKERS, admission.slot_count, size)


def stranger(opened: ExitStack, place: Place, request: LendingRequest) -> socket.socket:
    """A process's connection by which it has asked for a worker's part, from an address of its own."""
    own = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    own.bind(("127.0.0.1", 0))
    connection, descriptors = ask(place[0].switch, own, request.to_bytes(), DEADLINE_S)
    for each in descriptors:
        os.close(each)
    return opened.enter_context(closing(connection))


def test_all_that_can_run_the_program(switch: LoopbackSwitch, opened: ExitStack) -> None:
    before = memories_of(os.getpid())
    communicators = [at(opened, place) for place in switch.start_job()]
    assert_right(communicators, "program")
    assert {report_of(each).link for each in communicators} == {"program"}
    opened.close()
    assert eventually(lambda: memories_of(os.getpid()) <= before)


@pytest.mark.parametrize("other", ["udp", "memory"])
def test_none_does_when_one_is_asked_not_to(
    switch: LoopbackSwitch, opened: ExitStack, monkeypatch: pytest.MonkeyPatch, impatient: None, other: str
) -> None:
    before = memories_of(os.getpid())
    first, *others = switch.start_job()
    communicators = [at(opened, place) for place in others]
    monkeypatch.setenv("NETSUM_LINK", other)
    communicators.insert(0, at(opened, first))
    for each in on_all(communicators, sum_of):
        assert np.array_equal(each, SUM)
    assert [each.link for each in communicators] == [other, "memory", "memory"]
    opened.close()
    assert eventually(lambda: memories_of(os.getpid()) <= before)


def test_none_does_when_one_comes_after_the_others_have_waited(
    switch: LoopbackSwitch, opened: ExitStack, impatient: None
) -> None:
    *others, late = switch.start_job()
    communicators = [at(opened, place) for place in others]
    futures = [each.allreduce_async(VALUES[each.worker_id]) for each in communicators]
    assert eventually(lambda: all(each.link == "memory" for each in communicators))
    communicators.append(at(opened, late))
    futures.append(communicators[-1].allreduce_async(VALUES[WORKERS - 1]))
    for future in futures:
        assert np.array_equal(future.result(DEADLINE_S), SUM)
    assert communicators[-1].link == "memory"
    assert_right(communicators, "memory")


def test_one_that_comes_late_is_waited_for_until_there_is_something_to_send(
    switch: LoopbackSwitch, opened: ExitStack
) -> None:
    *others, late = switch.start_job()
    communicators = [at(opened, place) for place in others]
    assert [each.link for each in communicators] == ["agreeing"] * 2
    futures = [each.allreduce_async(VALUES[each.worker_id]) for each in communicators]
    communicators.append(at(opened, late))
    futures.append(communicators[-1].allreduce_async(VALUES[WORKERS - 1]))
    for future in futures:
        assert np.array_equal(future.result(DEADLINE_S), SUM)
    assert len({each.link for each in communicators}) == 1


def test_none_does_when_one_has_no_room_for_the_memory(
    switch: LoopbackSwitch, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = switch.start_job()
    communicators = [at(opened, place) for place in others]
    with monkeypatch.context() as patch:
        patch.setattr(in_place_link, "Borrowed", refusing_memory)
        communicators.insert(0, at(opened, first))
    assert_right(communicators, "memory")


def test_none_does_when_the_switch_has_no_room_for_the_memory(
    switch: LoopbackSwitch, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lending, "make_memory", refusing_memory)
    assert_right([at(opened, place) for place in switch.start_job()], "memory")


def refusing_memory(*_: Any) -> Any:
    raise OSError(12, os.strerror(12))


def test_a_worker_that_ends_or_does_nothing_before_the_others_are_there_is_named(
    opened: ExitStack, impatient: None
) -> None:
    """Another process takes its part, and says the one thing or the other, or nothing; or it is killed."""
    jobs = [opened.enter_context(LoopbackSwitch(64, WORKERS)).start_job() for _ in range(4)]
    killed_after_asking(opened, jobs[3][0])
    communicators = [at(opened, place, NAMED_S) for job in jobs for place in job[1:]]
    connections = []
    for says, (first, *_) in zip((b"", READY, b"nonsense"), jobs, strict=False):
        connections.append(stranger(opened, first, request_of(first, communicators[0])))
        if says:
            connections[-1].send(says)
    for error in on_all(communicators, sum_of):
        assert isinstance(error, MissingWorkersError)
        assert error.missing == (0,)
    kinds = [each.link for each in communicators]
    assert kinds == ["memory", "memory", "program", "program", *["memory"] * 4]
    for connection, heard in zip(connections, (REFUSED, RUN, b""), strict=True):
        connection.settimeout(DEADLINE_S)
        message = connection.recv(100)
        assert message.startswith(heard) if heard else not message


def killed_after_asking(opened: ExitStack, place: Place) -> None:
    def ask_and_die(pipe: Any) -> None:
        communicator = at(opened, place)
        pipe.send(communicator.link)
        os.kill(os.getpid(), signal.SIGKILL)

    ours, theirs = _fork.Pipe()
    process = _fork.Process(target=ask_and_die, args=(theirs,), daemon=True)
    process.start()
    assert ours.recv() == "agreeing"
    process.join(DEADLINE_S)


def test_a_worker_whose_part_another_process_has_taken_has_the_others_use_rings(
    switch: LoopbackSwitch, opened: ExitStack
) -> None:
    first, *others = switch.start_job()
    communicators = [at(opened, place) for place in others]
    stranger(opened, first, request_of(first, communicators[0]))
    communicators.insert(0, at(opened, first))
    assert_right(communicators, "memory")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="another user can only be tried by root")
def test_none_does_when_one_is_another_users(
    switch: LoopbackSwitch, opened: ExitStack, impatient: None
) -> None:
    first, *others = switch.start_job()

    def reduce(pipe: Any) -> None:
        os.environ["NETSUM_LINK"] = "auto"
        os.setuid(65534)
        communicator = at(opened, first)
        pipe.send((sum_of(communicator), communicator.link))

    ours, theirs = _fork.Pipe()
    process = _fork.Process(target=reduce, args=(theirs,), daemon=True)
    process.start()
    communicators = [at(opened, place) for place in others]
    for each in on_all(communicators, sum_of):
        assert np.array_equal(each, SUM)
    assert [each.link for each in communicators] == ["memory"] * 2
    reduced, link = ours.recv()
    assert np.array_equal(reduced, SUM)
    assert link == "udp"
    process.join(DEADLINE_S)


def test_what_is_refused_once_stays_refused(switch: LoopbackSwitch, opened: ExitStack) -> None:
    first, second, _ = switch.start_job()
    communicator = at(opened, second)
    request = request_of(first, communicator)
    with stranger(opened, first, request):
        pass
    for member in (0, 2):
        with pytest.raises(AttachError, match="worker 0 of the job left before all"):
            stranger(opened, first, request._replace(member=member))
    with pytest.raises(AttachError, match="the request is none that it knows"):
        stranger(opened, first, request._replace(member=WORKERS + 2))


def test_a_worker_that_hears_no_decision_sends_nothing_and_says_so(opened: ExitStack) -> None:
    with LoopbackSwitch(64, WORKERS) as switch:
        first, *_ = switch.start_job()
        communicator = at(opened, first, SOON_S)
        switch.kill()
        with pytest.raises(SwitchSilentError, match="has taken back the memory"):
            sum_of(communicator)


def test_a_child_that_is_forked_before_the_others_are_there_changes_nothing(
    switch: LoopbackSwitch, opened: ExitStack
) -> None:
    first, *others = switch.start_job()
    communicators = [at(opened, first)]

    def reduce(pipe: Any) -> None:
        pipe.send(error_of(lambda: sum_of(communicators[0])))
        signal.pause()

    ours, theirs = _fork.Pipe()
    process = _fork.Process(target=reduce, args=(theirs,), daemon=True)
    process.start()
    assert "forked" in ours.recv()
    communicators += [at(opened, place) for place in others]
    assert_right(communicators, "program")
    process.kill()
    process.join(DEADLINE_S)


def error_of(action: Callable[[], Any]) -> str:
    try:
        action()
    except Exception as error:
        return str(error)
    return ""


def test_a_job_in_a_tree_uses_rings(switch: LoopbackSwitch, opened: ExitStack) -> None:
    (admission, bind), *_ = switch.start_job()
    path = (admission.path[0], Level(0, ((0, 1, 2), (3,))))
    assert at(opened, (replace(admission, path=path), bind)).link == "memory"
