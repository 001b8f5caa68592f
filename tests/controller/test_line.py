"""The line of jobs that wait for slots: each hears who is before it, and the next is served when the first waits no longer."""

import asyncio
from pathlib import Path

import pytest

from controller.service.states import JobState
from host_agent.job_api import jobs_pb2
from tests.controller.scripted_clients import Worker, World, world_on
from tests.controller.service_harness import fake_leaf_spine, fake_network

SLOTS = 4096
ENDS = ["it waited too long", "its worker is gone", "it is deleted", "a rank of its tree is gone"]


def waiting(world: World, job: str, rank: int, size: int, slots: int, **options: float) -> Worker:
    """Join a job that waits in line."""
    return Worker(
        world, job, rank, size, slots=jobs_pb2.Slots(count=slots), if_full=jobs_pb2.QUEUE, **options
    )


@pytest.mark.parametrize("ends", ENDS)
def test_the_next_in_line_is_served_when_the_first_waits_no_longer(ends: str, tmp_path: Path) -> None:
    on_a_tree = ends == ENDS[3]
    size = 2 if on_a_tree else 1

    async def told() -> None:
        network = fake_leaf_spine((2, 2)) if on_a_tree else fake_network()
        async with world_on(tmp_path, network) as world:
            await world.join("runs", size, slots=jobs_pb2.Slots(count=SLOTS // 2))
            if on_a_tree:  # Else the job would end with its rank.
                await world.operator.CreateJob(
                    jobs_pb2.CreateJobRequest(
                        name="first",
                        world_size=size,
                        slots=jobs_pb2.Slots(count=SLOTS),
                        if_full=jobs_pb2.QUEUE,
                    )
                )
            queue_s = 0.5 if ends == ENDS[0] else 0.0
            first = [waiting(world, "first", rank, size, SLOTS, queue_s=queue_s) for rank in range(size)]
            for worker in first:
                await worker.until(lambda worker=worker: worker.reason)  # type: ignore[misc]
            second = [waiting(world, "second", rank, size, SLOTS // 2) for rank in range(size)]
            for worker in second:
                await worker.until(lambda worker=worker: worker.reason)  # type: ignore[misc]
                assert worker.reason.startswith("1 other job already waiting for slots")
                assert not worker.epoch
            if ends == ENDS[2]:
                await world.operator.DeleteJob(jobs_pb2.JobName(name="first"))
            elif ends != ENDS[0]:
                first[-1].vanish()
            for worker in second:
                await worker.until(lambda worker=worker: worker.epoch)  # type: ignore[misc]

    asyncio.run(told())


def test_a_job_that_waits_for_a_worker_keeps_its_slots_from_those_in_line(tmp_path: Path) -> None:
    async def told() -> None:
        async with world_on(tmp_path, fake_network()) as world:
            running = await world.join("runs", 2, slots=jobs_pb2.Slots(count=SLOTS))
            next_one = waiting(world, "waits", 0, 1, SLOTS, host=4)
            await next_one.until(lambda: next_one.reason)
            await running[1].leave()
            await world.operator.RestartJob(jobs_pb2.JobName(name="runs"))
            await world.until(lambda: world.service.registry.jobs["runs"].state is JobState.GATHERING)
            again = Worker(world, "runs", 1, 2)
            await again.until(lambda: again.epoch)
            assert not next_one.epoch

    asyncio.run(told())
