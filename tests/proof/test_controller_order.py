"""The real service writes the entries of epochs in an order that the proof assumes, in stories that a seed chooses."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.entries import Entry, admission_entries
from controller.errors import SwitchUnreachableError
from controller.jobs import Job, WorkerEndpoint
from controller.slots import SlotRange
from controller.table_writer import Change
from host_agent.job_api.job_request import JobRequest
from netsum_common.targets import Capabilities
from tests.controller import scripted_clients, test_store_faults
from tests.controller.harness_switches import HarnessSwitch, HarnessWriter
from tests.controller.scripted_clients import Disk, World, world_on
from tests.controller.service_harness import fake_leaf_spine, fake_network
from tests.proof.epoch_hypotheses import Hypotheses

WORKERS = tuple(WorkerEndpoint(port, f"10.0.0.{port}", "02:00:00:00:00:01", 1) for port in (1, 2))
JOB = Job(JobRequest("job", 2), 1, 7, 1, SlotRange(0, 2), Capabilities(lanes=64), WORKERS)


class Switch(HarnessSwitch):
    """A switch that asks for the hypotheses at every write; a chosen write finds it unreachable."""

    chance = random.Random(0)
    fails = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.hypotheses = Hypotheses()

    def restart(self) -> None:
        self.hypotheses.zero()
        super().restart()


class Writer(HarnessWriter):
    """Writes one entry after the other, and may fail before each."""

    def set_pipeline(self, cookie: int) -> None:
        super().set_pipeline(cookie)
        _of(self.session.switch).hypotheses.zero()

    def write(self, change: Change, changed: Sequence[Entry], what: str) -> None:
        for entry in changed:
            with self.reached() as reached:
                switch = _of(reached)
                if switch.chance.random() < switch.fails:
                    switch.sessions += 1  # The connection breaks, the switch keeps what it has.
                    raise SwitchUnreachableError("the switch is gone in the middle of a request")
                switch.writer.write(change, [entry], what)
                switch.hypotheses.change(change, entry)


def _of(switch: HarnessSwitch) -> Switch:
    assert isinstance(switch, Switch)
    return switch


async def _tell(
    folder: Path, network: Any, stories: list[Any], fails: float, options: dict[str, Any]
) -> list[Switch]:
    async with world_on(folder, network, Disk(), (Switch, Writer), **options) as world:
        switches = [s for s in world.switches.values() if isinstance(s, Switch)]
        Switch.fails = fails
        for story in stories:
            await story(world)
        Switch.fails = 0.0
        return switches


async def _disorder(world: World) -> None:
    """Jobs come, ask for epochs, shrink and go, and switches restart, in any order and side by side."""
    rng = Switch.chance

    async def job(name: str, size: int, first: int) -> None:
        for _ in range(rng.randrange(1, 3)):
            workers = [
                scripted_clients.Worker(world, name, rank, size, host=first + rank) for rank in range(size)
            ]
            for worker in workers:
                await worker.until(lambda worker=worker: worker.epoch or worker.ended)  # type: ignore[misc]
            for _ in range(rng.randrange(3)):
                await rng.choice((_ask, _restart, _break))(world, name, workers)
            for worker in workers:
                await worker.leave() if rng.random() < 0.5 else worker.vanish()
            await world.until(lambda: name not in world.service.registry.jobs)

    async with asyncio.timeout(120):
        await asyncio.gather(job("one", 2, 1), job("two", 1, 3), job("three", 1, 4))


async def _ask(world: World, name: str, workers: list[Any]) -> None:
    await asyncio.gather(*(worker.ask() for worker in workers))


async def _restart(world: World, name: str, workers: list[Any]) -> None:
    Switch.chance.choice([*world.switches.values()]).restart()


async def _break(world: World, name: str, workers: list[Any]) -> None:
    Switch.chance.choice([*world.switches.values()]).sessions += 1


STORIES = [
    test_store_faults.workers_join_and_leave,
    test_store_faults.an_operator_restarts_a_job,
    test_store_faults.workers_ask_for_a_new_epoch,
    test_store_faults.a_job_shrinks_and_grows,
    test_store_faults.a_switch_restarts,
    test_store_faults.jobs_are_created_wait_and_are_deleted,
]


@pytest.mark.parametrize(
    ("network", "stories", "options"),
    [
        (fake_network(), STORIES, {}),
        (fake_leaf_spine((2, 2)), [test_store_faults.a_job_is_on_a_tree], {}),
        (
            fake_network(),
            [test_store_faults.jobs_share_slots],
            {"share": "fair", "slots": test_store_faults.SLOTS},
        ),
    ],
    ids=["one switch", "tree", "shares"],
)
def test_the_service_writes_epochs_as_the_proof_assumes(
    network: Any, stories: list[Any], options: dict[str, Any], tmp_path: Path
) -> None:
    switches = asyncio.run(_tell(tmp_path, network, stories, 0.0, options))
    assert [s.hypotheses.broken for s in switches] == [[]] * len(switches)
    assert sum(s.hypotheses.written for s in switches) > 0


@pytest.mark.parametrize("seed", range(4))
def test_the_service_does_so_when_connections_break_at_any_write(seed: int, tmp_path: Path) -> None:
    Switch.chance = random.Random(seed)
    switches = asyncio.run(_tell(tmp_path, fake_network(), [_disorder], 0.1, {}))
    assert [s.hypotheses.broken for s in switches] == [[]]
    assert switches[0].hypotheses.written > 0


def _broken(*changes: tuple[Change, Job]) -> list[str]:
    """Return what is not as the proof assumes when entries of jobs are written in an order."""
    hypotheses = Hypotheses()
    for change, job in changes:
        for entry in admission_entries(job):
            hypotheses.change(change, entry)
    return [words.partition(":")[0] for words in hypotheses.broken]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (replace(JOB, epoch=8, token=2), {"write_entry"}),  # beside the old one
        (replace(JOB, job_id=2, slots=SlotRange(2, 2)), {"issue"}),  # the same number for other slots
        (replace(JOB, job_id=2, epoch=0, slots=SlotRange(2, 2)), {"issue"}),
        (replace(JOB, job_id=2, epoch=8, slots=SlotRange(2, 2)), set()),
    ],
)
def test_a_wrong_order_is_noticed(second: Job, expected: set[str]) -> None:
    assert set(_broken((Change.INSERT, JOB), (Change.INSERT, second))) == expected
    ended = (Change.INSERT, JOB), (Change.DELETE, JOB), (Change.INSERT, JOB)
    assert set(_broken(*ended)) == {"write_entry"}
