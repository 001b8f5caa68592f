"""Rounds of a job with a quorum over real sockets: a worker that is late follows, and delays no other."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from host_agent.collectives import Reduced
from host_agent.communicator import Communicator
from host_agent.errors import MisuseError, UnsupportedTypeError
from tests.integration.simulated.loopback import LoopbackSwitch, each_link, on_all

WORKERS, QUORUM = 3, 2
SHAPE = (40, 50)
DEADLINE_S = 400.0


link = pytest.fixture(each_link, scope="module", params=["udp", "memory", "program"], autouse=True)


@pytest.fixture(scope="module", params=[0, 20_000], ids=["loss-free", "lossy"])
def switch(request: pytest.FixtureRequest) -> Iterator[LoopbackSwitch]:
    with LoopbackSwitch(64, WORKERS, drop_ppm=request.param) as running:
        yield running


@contextmanager
def joined(switch: LoopbackSwitch, quorum: int = QUORUM) -> Iterator[list[Communicator]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(Communicator(admission, bind=address, timeout_s=DEADLINE_S))
            for admission, address in switch.start_job(quorum=quorum)
        ]


def part(worker: int, number: int) -> np.ndarray:
    return np.random.default_rng([worker, number]).standard_normal(SHAPE).astype(np.float32)


def check(results: list[list[Reduced]]) -> None:
    """Check that the rounds are the same at all workers, and right."""
    for number, each in enumerate(zip(*results, strict=True)):
        ranks = each[0].ranks
        assert len(ranks) == QUORUM == each[0].added
        assert {(one.ranks, one.value.tobytes()) for one in each} == {(ranks, each[0].value.tobytes())}
        mean = np.mean([part(rank, number) for rank in ranks], axis=0)
        np.testing.assert_allclose(each[0].value, mean, atol=1e-5)


def test_a_late_worker_follows_and_delays_no_other(switch: LoopbackSwitch) -> None:
    count = 40
    slow_computes = threading.Event()
    ended = [0.0] * WORKERS

    def train(comm: Communicator) -> list[Reduced]:
        results: list[Reduced] = []
        rounds = comm.rounds(count, SHAPE, np.float32)
        while not rounds.done:
            number = rounds.number
            gradient = part(comm.worker_id, number)
            if comm.worker_id == 2:
                # The worker computes until the others are far ahead.
                slow_computes.wait(DEADLINE_S if number == 0 else 0.001)
            rounds.offer(gradient)
            results += rounds.take(DEADLINE_S)
            assert rounds.number == len(results)
            if comm.worker_id == 0 and len(results) == count // 2:
                slow_computes.set()
        ended[comm.worker_id] = time.monotonic()
        return results

    with joined(switch) as workers:
        results = on_all(workers, train)
    assert [len(each) for each in results] == [count] * WORKERS, results
    check(results)
    assert all(result.ranks == (0, 1) for result in results[0][: count // 2])


def test_the_others_stop_when_it_is_too_far_behind(switch: LoopbackSwitch) -> None:
    """Results that were not taken are kept, but not without a limit."""
    with joined(switch) as workers:
        rounds = [comm.rounds(10, SHAPE, np.float32, ahead=3) for comm in workers]
        for number in range(3):
            for worker in (0, 1):
                rounds[worker].offer(part(worker, number))
            for worker in (0, 1):
                assert len(rounds[worker].take(DEADLINE_S)) == 1
        for worker in (0, 1):
            rounds[worker].offer(part(worker, 3))
        with pytest.raises(TimeoutError, match="round 3 did not end"):
            rounds[0].take(0.2)
        assert [len(rounds[2].take(DEADLINE_S)), rounds[2].number] == [3, 3]
        assert [len(each.take(DEADLINE_S)) for each in rounds] == [1, 1, 1]


def test_an_array_that_comes_before_its_round_has_begun(switch: LoopbackSwitch) -> None:
    with joined(switch) as workers:
        begun = [[comm.begin_round(SHAPE, np.float32) for _ in range(3)] for comm in workers]
        for number in reversed(range(3)):
            for worker in (0, 2):
                begun[worker][number].offer(part(worker, number))
        results = [[each.result(DEADLINE_S) for each in rounds] for rounds in begun]
        check(results)
        assert begun[1][0].decided
        begun[1][0].offer(part(1, 0))  # late: of no effect


def test_rounds_and_collectives_of_all_take_turns(switch: LoopbackSwitch) -> None:
    def work(comm: Communicator) -> float:
        total = 0.0
        for number in range(20):
            current = comm.begin_round((3,), np.int32, "sum")
            if comm.worker_id != number % 3:
                current.offer(np.full(3, 1 << comm.worker_id, np.int32))
            total += float(comm.allreduce(np.ones(3, np.float32))[0])
            others = [worker for worker in range(3) if worker != number % 3]
            assert current.result().ranks == tuple(others)
            assert current.result().value.tolist() == [sum(1 << worker for worker in others)] * 3
        return total

    with joined(switch) as workers:
        assert on_all(workers, work) == [60.0] * 3


def test_what_is_refused(switch: LoopbackSwitch) -> None:
    with joined(switch) as workers:
        with pytest.raises(UnsupportedTypeError):
            workers[0].begin_round((3,), np.complex64)
        current = workers[0].begin_round((3,), np.float32)
        with pytest.raises(MisuseError, match=r"\(4,\) float32"):
            current.offer(np.zeros(4, np.float32))
        current.offer(np.zeros(3, np.float32))
        with pytest.raises(MisuseError, match="already has this worker's array"):
            current.offer(np.zeros(3, np.float32))
        with pytest.raises(MisuseError, match="1 at least"):
            workers[0].rounds(0, (3,), np.float32)
    with joined(switch, quorum=0) as workers, pytest.raises(MisuseError, match="no quorum"):
        workers[0].begin_round((3,), np.float32)
