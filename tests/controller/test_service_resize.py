"""Jobs that change their size: workers that have left are dropped, newcomers are added, in a new epoch."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from controller.jobs import Job
from controller.service.states import JobState
from host_agent.errors import MisuseError
from host_agent.job_api import jobs_pb2
from host_agent.joining import AbsentWorkersError, JoinError, Membership, join
from host_agent.wire.constants import MAX_CHILDREN
from tests.controller.harness_switches import HarnessTables
from tests.controller.scripted_clients import PATIENCE_S, Worker, World, world_on
from tests.controller.service_harness import DEADLINE_S, Bench, fake_leaf_spine, fake_network, until


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    one = Bench(tmp_path, monkeypatch)
    one.serve()
    yield one
    one.close()


def resized(members: list[Membership]) -> list[tuple[int, int]]:
    """Resize, and return the rank and world size of each worker; all are in one epoch, which the switch holds."""
    with ThreadPoolExecutor(len(members)) as threads:
        admissions = list(threads.map(lambda member: member.resize(DEADLINE_S), members))
    assert len({admission.epoch for admission in admissions}) == 1
    assert [member.admission for member in members] == admissions
    return [(admission.rank, admission.world_size) for admission in admissions]


def newcomer(bench: Bench, name: str, threads: ThreadPoolExecutor):  # type: ignore[no-untyped-def]
    return threads.submit(join, bench.address, job=name, addresses=["127.0.2.4"], timeout_s=DEADLINE_S)


def test_workers_go_on_without_those_that_left(bench: Bench) -> None:
    members = bench.join_all("job", 4)
    before = members[0].admission
    members.pop(1).close()
    until(lambda: all(member.left for member in members))
    assert resized(members) == [(0, 3), (1, 3), (2, 3)]
    installed = next(iter(bench.switch.jobs.values()))
    assert [each.epoch > before.epoch for each in installed.admissions] == [True] * 3
    assert [member.left for member in members] == [{}] * 3
    view = bench.operator.job("job")
    assert (view.world_size, len(view.workers)) == (3, 3)
    reasons = [event.reason for event in bench.operator.job_events("job")]
    assert any("its workers asked to resize it" in reason for reason in reasons)
    members.pop(2).close()
    until(lambda: all(member.left == {2: "it left"} for member in members))
    assert resized(members) == [(0, 2), (1, 2)]


def test_a_newcomer_is_added_with_the_next_resizing(bench: Bench) -> None:
    members = bench.join_all("job", 2)
    with ThreadPoolExecutor(1) as threads:
        joining = newcomer(bench, "job", threads)
        until(lambda: [member.newcomers for member in members] == [1, 1])
        assert not joining.done(), "it waits for the others"
        assert resized(members) == [(0, 3), (1, 3)]
        added = joining.result(DEADLINE_S)
    assert (added.admission.rank, added.admission.world_size) == (2, 3)
    assert added.admission.epoch == members[0].admission.epoch
    until(lambda: [member.newcomers for member in members] == [0, 0])
    assert resized([*members, added]) == [(0, 3), (1, 3), (2, 3)], "the same workers get a new epoch"


def test_a_replacement_comes_for_a_worker_that_left(bench: Bench) -> None:
    members = bench.join_all("job", 3)
    members.pop(0).close()
    with ThreadPoolExecutor(1) as threads:
        joining = newcomer(bench, "job", threads)
        until(lambda: all(member.newcomers and member.left for member in members))
        assert resized(members) == [(0, 3), (1, 3)]
        assert joining.result(DEADLINE_S).admission.rank == 2


def test_a_worker_whose_stream_breaks_keeps_the_rank_that_it_was_given(bench: Bench) -> None:
    members = bench.join_all("job", 3)
    members.pop(0).close()
    until(lambda: all(member.left for member in members))
    assert resized(members) == [(0, 2), (1, 2)]
    bench.serve()
    until(
        lambda: (
            [member.outbox is not None for member in bench.registry.jobs["job"].members.values()]
            == [True] * 2
        )
    )
    members.pop(0).close()
    until(lambda: members[0].left)
    assert members[0].left == {0: "it left"}


def test_who_has_not_asked_is_named(bench: Bench) -> None:
    members = bench.join_all("job", 3)
    with pytest.raises(
        AbsentWorkersError, match=r"resizing job job took longer than 1 s: workers \[1, 2\]"
    ) as raised:
        members[0].resize(1.0)
    assert raised.value.missing == (1, 2)
    assert resized(members) == [(0, 3), (1, 3), (2, 3)], "they may ask later"


def test_a_worker_that_leaves_while_others_ask_is_not_waited_for(bench: Bench) -> None:
    members = bench.join_all("job", 3)
    leaving = threading.Timer(0.2, members[2].close)
    leaving.start()
    assert resized(members[:2]) == [(0, 2), (1, 2)]
    leaving.join()


def test_a_newcomer_that_gives_up_is_forgotten(bench: Bench) -> None:
    members = bench.join_all("job", 2)
    with pytest.raises(JoinError, match=r"took longer than 0\.5 s: it waits for the job to be resized"):
        join(bench.address, job="job", addresses=["127.0.2.4"], timeout_s=0.5)
    until(lambda: [member.newcomers for member in members] == [0, 0])
    assert resized(members) == [(0, 2), (1, 2)]


def test_a_job_that_does_not_run_takes_no_newcomers(bench: Bench) -> None:
    with pytest.raises(JoinError, match="there is no job named nothing to be added to"):
        join(bench.address, job="nothing", addresses=["127.0.2.4"], timeout_s=DEADLINE_S)
    bench.operator.create_job("later", 2)
    with pytest.raises(JoinError, match="job later does not run yet: join it with a rank and its world size"):
        join(bench.address, job="later", addresses=["127.0.2.4"], timeout_s=DEADLINE_S)
    with pytest.raises(MisuseError, match="both rank and world_size, or neither"):
        join(bench.address, job="later", rank=1)


def test_a_quorum_that_fewer_workers_cannot_reach_ends_the_job(bench: Bench) -> None:
    members = bench.join_all("job", 3, quorum=3)
    members.pop().close()
    until(lambda: all(member.left for member in members))
    with pytest.raises(JoinError, match="resized from 3 to 2 workers, but its quorum is 3 contributions"):
        resized(members)


async def a_worker_leaves(world: World, asking: list[Worker]) -> None:
    await asking[-1].leave()


async def all_but_one_leave(world: World, asking: list[Worker]) -> None:
    for worker in asking[1:]:
        await worker.leave()


async def all_leave(world: World, asking: list[Worker]) -> None:
    for worker in asking:
        await worker.leave()


async def the_last_to_ask_is_killed(world: World, asking: list[Worker]) -> None:
    asking[-1].vanish()


async def a_newcomer_comes(world: World, asking: list[Worker]) -> None:
    await asking[-1].leave()
    newcomer = Worker(world, "job", 0, 0, joins=True, host=4)
    await newcomer.until(lambda: newcomer.ended or "resized" in newcomer.reason)


async def an_operator_restarts_it(world: World, asking: list[Worker]) -> None:
    with pytest.raises(
        grpc.aio.AioRpcError, match="job job has not started: it was resized from 4 to 3 workers"
    ):
        await world.operator.RestartJob(jobs_pb2.JobName(name="job"))


async def an_operator_deletes_it(world: World, asking: list[Worker]) -> None:
    deleting = asyncio.ensure_future(world.operator.DeleteJob(jobs_pb2.JobName(name="job")))
    await asking[0].until(lambda: asking[0].ended)
    assert not deleting.done()


async def the_switch_restarts(world: World, asking: list[Worker]) -> None:
    next(iter(world.switches.values())).restart()


BESIDE = [
    a_worker_leaves, all_but_one_leave, all_leave, the_last_to_ask_is_killed, a_newcomer_comes, an_operator_restarts_it,
    an_operator_deletes_it, the_switch_restarts,
]  # fmt: skip


def test_a_newcomer_beyond_those_for_whom_a_switch_can_add_is_refused(tmp_path: Path) -> None:
    async def told() -> None:
        async with world_on(tmp_path, fake_network(MAX_CHILDREN + 1)) as world:
            await world.join("job", MAX_CHILDREN)
            late = Worker(world, "job", 0, 0, joins=True, host=MAX_CHILDREN + 1)
            await late.until(lambda: late.ended)
            assert f"a job has 1 to {MAX_CHILDREN} workers, not {MAX_CHILDREN + 1}" in late.ended

    asyncio.run(told())


def begun_again(world: World, before: int) -> bool:
    """Whether the job has ended, or all its workers have another epoch than before."""
    jobs = world.service.registry.jobs.values()
    return all(
        job.state is JobState.RUNNING
        and job.record.epoch != before
        and all(member.sent_epoch == job.record.epoch for member in job.present())
        for job in jobs
    )


@pytest.mark.parametrize("tree", [False, True], ids=["one switch", "a tree"])
@pytest.mark.parametrize("happens", BESIDE, ids=lambda happens: happens.__name__)
def test_nothing_begins_a_second_resizing_beside_the_first(
    happens: Callable[[World, list[Worker]], Awaitable[None]],
    tree: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While the switches are cleared of the old epoch: each worker then has the epoch and the size that they have."""
    clearing, proceed = threading.Event(), threading.Event()

    def slow(tables: HarnessTables, job: Job, withdraw: Callable[..., None] = HarnessTables.withdraw) -> None:
        clearing.set()
        assert proceed.wait(DEADLINE_S)
        withdraw(tables, job)

    async def told() -> None:
        async with world_on(tmp_path, fake_leaf_spine((2, 2)) if tree else fake_network()) as world:
            workers = await world.join("job", 4)
            before = workers[0].epoch
            monkeypatch.setattr(HarnessTables, "withdraw", slow)
            await workers.pop(1).leave()
            asking = [asyncio.create_task(worker.ask(resize=True)) for worker in workers]
            await world.until(clearing.is_set)
            beside = asyncio.ensure_future(happens(world, workers))
            await asyncio.sleep(0.05)
            proceed.set()
            await beside
            await world.until(lambda: begun_again(world, before))
            await world.agrees()
            await asyncio.wait_for(asyncio.gather(*asking), PATIENCE_S)
            for job in world.service.registry.jobs.values():
                present = [member.rank for member in job.present()]
                remain = [worker for worker in workers if not worker.ended]
                for worker in remain:
                    await worker.until(lambda worker=worker: worker.epoch == job.record.epoch)  # type: ignore[misc]  # noqa: B023
                assert sorted(worker.rank for worker in remain) == sorted(present)
                assert {worker.world_size for worker in remain} == {len(job.members)}

    asyncio.run(told())
    gc.collect()  # Coroutines that were never awaited are logged when collected.
    assert not [record.getMessage() for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("tree", [False, True], ids=["one switch", "a tree"])
def test_the_next_controller_goes_on_with_a_resizing(
    tree: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """End a job while the switches are cleared of its old epoch."""
    clearing, proceed = threading.Event(), threading.Event()
    network = fake_leaf_spine((2, 2)) if tree else fake_network()
    withdraw = HarnessTables.withdraw

    def slow(tables: HarnessTables, job: Job) -> None:
        clearing.set()
        assert proceed.wait(DEADLINE_S)

    async def told() -> None:
        async with world_on(tmp_path, network) as world:
            workers = await world.join("job", 4)
            before = workers[0].epoch
            monkeypatch.setattr(HarnessTables, "withdraw", slow)
            for rank in (3, 2):
                await workers.pop(rank).leave()
            for worker in workers:
                await worker.say(again=jobs_pb2.Again(epoch=before, resize=True))
            await world.until(clearing.is_set)
            threading.Timer(0.05, proceed.set).start()
        monkeypatch.setattr(HarnessTables, "withdraw", withdraw)
        async with world_on(tmp_path, network, recovery_s=DEADLINE_S) as world:
            job = world.service.registry.jobs["job"]
            await world.until(lambda: job.state is JobState.RUNNING)
            assert (job.record.world_size, list(job.members), job.record.restarts) == (2, [0, 1], 1)
            assert job.record.epoch > before
            assert list(job.record.slots_on) == (["l1"] if tree else ["s1"])
            await world.agrees()

    asyncio.run(told())
