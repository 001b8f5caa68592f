"""A state file that cannot be written: refused requests change nothing, and events are made up for later."""

import asyncio
import contextlib
import os
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import grpc
import pytest

from controller.service.states import JobState
from host_agent.job_api import jobs_pb2
from tests.controller.scripted_clients import Agent, Disk, Worker, World, world_on
from tests.controller.service_harness import fake_leaf_spine, fake_network

SLOTS = 4096


async def create(world: World, name: str, world_size: int, slots: int = 64, **options: Any) -> None:
    request = jobs_pb2.CreateJobRequest(
        name=name, world_size=world_size, slots=jobs_pb2.Slots(count=slots), **options
    )
    await world.insist(lambda: world.operator.CreateJob(request))
    await world.agrees()


async def delete(world: World, name: str) -> None:
    await world.insist(lambda: world.operator.DeleteJob(jobs_pb2.JobName(name=name)))
    await world.agrees()


async def restart(world: World, name: str) -> None:
    await world.insist(lambda: world.operator.RestartJob(jobs_pb2.JobName(name=name)))


async def resize(workers: list[Worker], count: int) -> None:
    """Have workers resize their job until each has an epoch of so many."""
    await asyncio.gather(*(worker.ask(resize=True) for worker in workers))
    for worker in workers:
        assert (worker.ended, worker.world_size) == ("", count)


async def moved_to(workers: list[Worker], epochs: list[int]) -> None:
    """Wait until workers have other epochs, and the same."""
    for worker, epoch in zip(workers, epochs, strict=True):
        await worker.until(lambda worker=worker, epoch=epoch: worker.epoch != epoch)  # type: ignore[misc]
    assert not [worker.ended for worker in workers if worker.ended]
    assert len({worker.epoch for worker in workers}) == 1


async def all_leave(world: World, *workers: Worker) -> None:
    for worker in workers:
        await worker.leave()
    await world.until(lambda: not world.service.registry.jobs)
    await world.agrees()


async def jobs_are_created_wait_and_are_deleted(world: World) -> None:
    await create(world, "made", 2)
    await create(world, "waits", 1, SLOTS, if_full=jobs_pb2.QUEUE)
    await create(world, "waits-too", 1, SLOTS, if_full=jobs_pb2.QUEUE)
    await delete(world, "made")
    await world.until(lambda: world.service.registry.jobs["waits"].record.job_id)
    assert not world.service.registry.jobs["waits-too"].record.job_id
    await world.agrees()
    await delete(world, "waits")
    await delete(world, "waits-too")


async def workers_join_and_leave(world: World) -> None:
    first, second = await world.join("job", 2)
    await world.agrees()
    await second.leave()
    await first.until(lambda: first.left == {1})
    await world.agrees()
    await all_leave(world, first)


async def an_operator_restarts_a_job(world: World) -> None:
    workers = await world.join("job", 2)
    before = [worker.epoch for worker in workers]
    await restart(world, "job")
    await moved_to(workers, before)
    await world.agrees()
    await all_leave(world, *workers)


async def a_rank_that_left_joins_the_restarted_job(world: World) -> None:
    first, second = await world.join("job", 2)
    await second.leave()
    await first.until(lambda: first.left)
    await restart(world, "job")
    before = first.epoch
    (second,) = await world.join("job", 2, first=1)
    await moved_to([first], [before])
    await world.agrees()
    await all_leave(world, first, second)


async def workers_ask_for_a_new_epoch(world: World) -> None:
    workers = await world.join("job", 2)
    await asyncio.gather(*(worker.ask() for worker in workers))
    await world.agrees()
    await workers[0].ask(broken=True)
    await world.agrees()
    await all_leave(world, *workers)


async def a_job_shrinks_and_grows(world: World) -> None:
    workers = await world.join("job", 3)
    await workers.pop(1).leave()
    await resize(workers, 2)
    await world.agrees()
    added = Worker(world, "job", 0, 0, joins=True, host=4)
    await world.until(lambda: any(member.ready for member in world.service.registry.jobs["job"].newcomers))
    await resize(workers, 3)
    await added.until(lambda: added.world_size == 3)
    await world.agrees()
    await all_leave(world, *workers, added)


async def a_worker_is_killed(world: World) -> None:
    first, second = await world.join("job", 2)
    second.vanish()
    await first.until(lambda: first.left == {1})
    await world.agrees()
    first.vanish()
    await world.until(lambda: not world.service.registry.jobs)
    await world.agrees()


async def created_jobs_expire(world: World) -> None:
    await create(world, "idle", 1, SLOTS, idle_s=0.05)
    await create(world, "waits", 1, SLOTS, if_full=jobs_pb2.QUEUE, queue_s=0.03, idle_s=0.05)
    await world.until(lambda: not world.service.registry.jobs)
    await world.agrees()


async def a_job_has_a_quorum(world: World) -> None:
    workers = await world.join("job", 3, quorum=3)
    await world.agrees()
    await workers.pop().leave()
    for worker in workers:
        await worker.until(lambda worker=worker: worker.left)  # type: ignore[misc]
    await asyncio.gather(*(worker.ask(resize=True) for worker in workers))
    ends = [worker.ended for worker in workers]
    assert any("its quorum is 3" in end for end in ends), ends
    # grpc.aio has no better word for a message that is sent as the server ends the stream.
    assert all("its quorum is 3" in end or end == "INTERNAL: Internal error from Core" for end in ends), ends
    await world.until(lambda: not world.service.registry.jobs)
    await world.agrees()


async def jobs_share_slots(world: World) -> None:
    first = await world.join("first", 2)
    await create(world, "made", 1, SLOTS)
    second = await world.join("second", 1, slots=jobs_pb2.Slots(count=SLOTS), if_full=jobs_pb2.QUEUE)
    await world.agrees()
    await delete(world, "made")
    await second[0].leave()
    await world.until(lambda: world.service.registry.jobs["first"].record.slot_count == SLOTS)
    await world.until(lambda: world.service.registry.jobs["first"].state is JobState.RUNNING)
    await world.agrees()
    await all_leave(world, *first)


async def a_switch_restarts(world: World) -> None:
    workers = [*await world.join("one", 2), *await world.join("other", 1)]
    before = [worker.epoch for worker in workers]
    world.switches["s1"].restart()
    await moved_to(workers[:2], before[:2])
    await moved_to(workers[2:], before[2:])
    await world.agrees()
    await all_leave(world, *workers)


async def a_job_is_on_a_tree(world: World) -> None:
    workers = await world.join("job", 4)
    assert len(world.service.registry.jobs["job"].record.slots_on) == 3
    before = [worker.epoch for worker in workers]
    await restart(world, "job")
    await moved_to(workers, before)
    await workers.pop(3).leave()
    await resize(workers, 3)
    await world.agrees()
    before = [worker.epoch for worker in workers]
    world.switches["l1"].restart()
    await moved_to(workers, before)
    await world.agrees()
    await all_leave(world, *workers)


async def a_host_adds_and_goes(world: World) -> None:
    (full,) = await world.join("full", 1)
    agent = Agent(world)
    joining = asyncio.create_task(world.join("job", 1, host=2, if_full=jobs_pb2.QUEUE))
    while not joining.done():
        if agent.read.done():  # The agent's registration or start was refused: it tries again.
            assert "the controller's state in" in agent.refusal
            agent = Agent(world)
        await asyncio.sleep(0.002)
    (worker,) = await joining
    assert world.service.registry.jobs["job"].record.aggregator
    before = worker.epoch
    await agent.leave()
    await world.until(lambda: world.service.registry.jobs["job"].state is JobState.QUEUED)
    await world.agrees()
    await full.leave()
    await moved_to([worker], [before])
    await world.agrees()
    await all_leave(world, worker)


class Story(NamedTuple):
    """A story: its events, and the service that they happen to."""

    happens: Callable[[World], Awaitable[None]]
    network: Any = fake_network
    options: Mapping[str, Any] = MappingProxyType({})


STORIES = [
    Story(jobs_are_created_wait_and_are_deleted),
    Story(workers_join_and_leave),
    Story(an_operator_restarts_a_job),
    Story(a_rank_that_left_joins_the_restarted_job),
    Story(workers_ask_for_a_new_epoch),
    Story(a_job_shrinks_and_grows),
    Story(a_worker_is_killed),
    Story(created_jobs_expire),
    Story(a_job_has_a_quorum),
    Story(jobs_share_slots, options={"share": "fair", "slots": SLOTS}),
    Story(a_switch_restarts),
    Story(a_job_is_on_a_tree, lambda: fake_leaf_spine((2, 2))),
    Story(a_host_adds_and_goes, options={"slots": SLOTS}),
]


async def told_with_every_write_failing_once(story: Story, folder: Path) -> int:
    """Tell a story until no write is left that has not failed in it; return how many have."""
    disk = Disk()
    async with world_on(folder, story.network(), disk, **story.options) as world:
        for number in range(1000):
            disk.passed.clear()
            disk.fails_at = number
            try:
                await story.happens(world)
            except BaseException as error:
                error.add_note(f"write {number} failed: {disk.passed[number:][:1]}")
                raise
            if len(disk.passed) <= number:
                return number
    raise AssertionError("the story has no end")


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.happens.__name__)
def test_any_write_may_fail_when(story: Story) -> None:
    """Afterwards memory, disk and switches agree, no slot is lost, and every client has heard a result or a reason."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        assert asyncio.run(told_with_every_write_failing_once(story, Path(folder))) > 5


async def with_a_store_that_takes_nothing(
    world: World, fails: Callable[[], None], heals: Callable[[], None]
) -> None:
    """Try everything while the store fails, and see it made up for afterwards."""
    first, second = await world.join("job", 2)
    (leaves,) = await world.join("left", 1, host=3)
    (killed,) = await world.join("killed", 1, host=4)
    await create(world, "made", 1)
    before, held = first.epoch, dict(world.switches["s1"].jobs)
    fails()
    refused_calls: tuple[Callable[[], Awaitable[Any]], ...] = (
        lambda: world.operator.CreateJob(jobs_pb2.CreateJobRequest(name="more", world_size=2)),
        lambda: world.operator.DeleteJob(jobs_pb2.JobName(name="made")),
        lambda: world.operator.RestartJob(jobs_pb2.JobName(name="job")),
        lambda: world.operator.DeleteJob(jobs_pb2.JobName(name="job")),
    )
    for call in refused_calls:
        with pytest.raises(
            grpc.aio.AioRpcError, match=r"the controller's state in \S+ cannot be used: "
        ) as refused:
            await call()
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        await world.agrees()
    joining = Worker(world, "new", 0, 1, host=4)
    await joining.until(lambda: "cannot be used" in joining.reason)
    asking = asyncio.create_task(first.ask(broken=True))
    await first.until(lambda: "cannot be used" in first.reason)
    await leaves.leave()
    killed.vanish()
    await asyncio.sleep(0.3)
    assert (first.epoch, world.switches["s1"].jobs) == (before, held)
    assert sorted(world.service.registry.jobs) == ["job", "killed", "left", "made", "new"]
    await world.agrees()
    heals()
    await asking
    await moved_to([first, second], [before, before])
    await joining.until(lambda: joining.epoch)
    await world.until(lambda: sorted(world.service.registry.jobs) == ["job", "made", "new"])
    await world.agrees()
    await delete(world, "made")
    await delete(world, "job")
    assert "deleted" in first.ended
    await all_leave(world, joining)
    assert world.service.registry.trees.ledgers["s1"].free_slots == SLOTS


def test_a_store_that_fails_for_a_while_is_made_up_for(tmp_path: Path) -> None:
    async def told() -> None:
        disk = Disk()
        async with world_on(tmp_path, fake_network(), disk) as world:
            await with_a_store_that_takes_nothing(
                world, lambda: setattr(disk, "full", True), lambda: setattr(disk, "full", False)
            )

    asyncio.run(told())


@contextlib.contextmanager
def small_file_system(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "netsum-test", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="it mounts a file system, which needs root")
def test_a_full_disk_is_made_up_for(tmp_path: Path) -> None:
    async def told(folder: Path) -> None:
        async with world_on(folder, fake_network()) as world:
            ballast = folder / "ballast"

            def fill() -> None:
                with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(4096))

            await with_a_store_that_takes_nothing(world, fill, ballast.unlink)

    with small_file_system(tmp_path / "small") as folder:
        asyncio.run(told(folder))
