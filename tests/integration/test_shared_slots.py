"""Jobs that share slots: real workers, a real service, and the P4 program in the embedded switch."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from controller.service.client import OperatorClient
from controller.service.registry import RegistryOptions
from controller.service.serve import ServiceOptions
from host_agent.errors import MissingWorkersError
from host_agent.joining import JoinError, Membership, join
from host_agent.wire.constants import POOL_SLOTS, UDP_PORT
from netsum.programs import compiled_program
from netsum.star_service import star_network
from tests.controller.service_harness import ServiceThread, service_on, until
from topologies.loopback import LoopbackTestbed

LANES = 64
WORKERS = 2
DEADLINE_S = 400.0
ELEMENTS = 5_000


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackTestbed]:
    with LoopbackTestbed(2 * WORKERS, UDP_PORT, tmp_path_factory.mktemp("bed")) as bed:
        yield bed


@pytest.fixture
def service(testbed: LoopbackTestbed, tmp_path: Path) -> Iterator[ServiceThread]:
    program = compiled_program(LANES)
    options = ServiceOptions(
        network=star_network(testbed),
        program=program.json,
        p4info=program.p4info,
        listen=(f"unix:{tmp_path}/api.sock",),
        registry=RegistryOptions(slots=POOL_SLOTS, share="fair", move_s=30.0),
    )
    with service_on(options) as running:
        running.ready()
        yield running


@pytest.fixture
def operator(service: ServiceThread) -> Iterator[OperatorClient]:
    with OperatorClient(service.address, timeout_s=DEADLINE_S) as client:
        yield client


class Trainer:
    """The workers of a job, each adding arrays in a thread until they are stopped."""

    def __init__(self, address: str, name: str, pool: ThreadPoolExecutor, asynchronous: bool = False) -> None:
        self.restarts: list[str] = []
        self.done = 0
        self._stop = threading.Event()
        self._asynchronous = asynchronous
        futures = [
            pool.submit(join, address, job=name, rank=rank, world_size=WORKERS) for rank in range(WORKERS)
        ]
        self.memberships: list[Membership] = [future.result(DEADLINE_S) for future in futures]
        for membership in self.memberships:
            membership.watch(
                lambda rank, why: None, lambda why: None, lambda admission, why: self.restarts.append(why)
            )
        self._ends: list[Future[int]] = [
            pool.submit(self._train, membership, rank) for rank, membership in enumerate(self.memberships)
        ]

    def _train(self, membership: Membership, rank: int) -> int:
        with membership.communicator(timeout_s=DEADLINE_S) as communicator:
            for step in range(10**9):
                part = np.arange(ELEMENTS, dtype=np.int32) * (rank + 1) + step
                part[0] = rank == 0 and self._stop.is_set()
                if self._asynchronous:
                    part = communicator.allreduce_async(part).result(DEADLINE_S)
                else:
                    part = communicator.allreduce(part)
                expected = np.arange(1, ELEMENTS, dtype=np.int32) * 3 + WORKERS * step
                assert (part[1:] == expected).all(), f"step {step}"
                if rank == 0:
                    self.done = step + 1
                if part[0]:
                    return step
        raise AssertionError

    def steps(self, more: int) -> None:
        """Wait for some more steps."""
        target = self.done + more
        until(lambda: self.done >= target or any(end.done() for end in self._ends), "no steps")

    def stop(self) -> None:
        """End the job in order: all its workers after the same step."""
        self._stop.set()
        assert len({end.result(DEADLINE_S) for end in self._ends}) == 1
        for membership in self.memberships:
            membership.close()


def slots_of(operator: OperatorClient) -> dict[str, int]:
    return {job.name: job.slot_count for job in operator.jobs()}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_slots_pass_between_jobs_that_run(
    service: ServiceThread, operator: OperatorClient, asynchronous: bool
) -> None:
    with ThreadPoolExecutor(16) as pool:
        first = Trainer(service.address, "first", pool, asynchronous)
        assert slots_of(operator) == {"first": POOL_SLOTS}
        first.steps(20)
        second = Trainer(service.address, "second", pool)
        assert slots_of(operator) == {"first": POOL_SLOTS // 2, "second": POOL_SLOTS // 2}
        first.steps(20)
        second.steps(20)
        second.stop()
        until(lambda: slots_of(operator) == {"first": POOL_SLOTS})
        first.steps(20)
        (view,) = operator.jobs()
        assert (view.moves, view.restarts) == (2, 0)
        first.stop()
        assert first.restarts == second.restarts == []


def test_workers_that_compute_move_without_them(service: ServiceThread, operator: OperatorClient) -> None:
    """No worker calls anything while its job moves, twice."""
    with ThreadPoolExecutor(16) as pool, ExitStack() as stack:
        futures = [
            pool.submit(join, service.address, job="idle", rank=rank, world_size=WORKERS)
            for rank in range(WORKERS)
        ]
        memberships = [stack.enter_context(future.result(DEADLINE_S)) for future in futures]
        workers = [
            stack.enter_context(membership.communicator(timeout_s=DEADLINE_S)) for membership in memberships
        ]

        def add() -> None:
            sums = pool.map(lambda worker: worker.allreduce(np.ones(ELEMENTS, np.float32)), workers)
            assert all((total == WORKERS).all() for total in sums)

        add()
        other = Trainer(service.address, "other", pool)
        other.steps(3)
        other.stop()
        until(lambda: slots_of(operator) == {"idle": POOL_SLOTS})
        until(
            lambda: all(
                membership.admission.epoch == memberships[0].admission.epoch for membership in memberships
            )
        )
        add()
        assert {worker.admission.epoch for worker in workers} == {memberships[0].admission.epoch}
        counted = [worker.activity().counters["chunks"] for worker in workers]
        assert counted == [2 * workers[0].stats.chunks] * WORKERS, "counts go on over moves"


def test_a_worker_that_does_not_answer_is_left_alone(testbed: LoopbackTestbed, tmp_path: Path) -> None:
    program = compiled_program(LANES)
    options = ServiceOptions(
        network=star_network(testbed),
        program=program.json,
        p4info=program.p4info,
        listen=(f"unix:{tmp_path}/api.sock",),
        registry=RegistryOptions(slots=POOL_SLOTS, share="fair", move_s=0.3),
    )
    with service_on(options) as service, OperatorClient(service.address) as operator:
        service.ready()
        with ThreadPoolExecutor(16) as pool, ExitStack() as stack:
            job = Trainer(service.address, "job", pool)
            job.memberships[1]._hold = lambda hold: None  # type: ignore[method-assign]
            waiting = pool.submit(
                join, service.address, job="late", rank=0, world_size=1, timeout_s=DEADLINE_S
            )
            until(lambda: any("worker 1 did not answer" in view.reason for view in operator.jobs()))
            assert not waiting.done()
            job.steps(20)  # in the old epoch
            del job.memberships[1]._hold
            late = stack.enter_context(waiting.result(DEADLINE_S))
            assert late.admission.slot_count == POOL_SLOTS // 2
            job.steps(5)
            job.stop()
            assert job.restarts == []


def test_a_collective_held_for_too_long_names_who_is_missing(
    service: ServiceThread, operator: OperatorClient
) -> None:
    with ThreadPoolExecutor(16) as pool, ExitStack() as stack:
        futures = [
            pool.submit(join, service.address, job="held", rank=rank, world_size=WORKERS)
            for rank in range(WORKERS)
        ]
        memberships = [stack.enter_context(future.result(DEADLINE_S)) for future in futures]
        memberships[1]._hold = lambda hold: None  # type: ignore[method-assign]
        worker = stack.enter_context(memberships[0].communicator(timeout_s=0.5))
        stack.enter_context(memberships[1].communicator())
        late = pool.submit(join, service.address, job="late", rank=0, world_size=1, timeout_s=DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while worker._progress.boundary._limit is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(MissingWorkersError, match="waits for workers? .*1") as caught:
            worker.barrier()
        assert 1 in caught.value.missing
        operator.delete_job("late")
        with pytest.raises(JoinError):
            late.result(DEADLINE_S)
