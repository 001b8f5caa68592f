"""A controller service in one event loop with clients that tests script, and a store that fails where a test says."""

import asyncio
import contextlib
import functools
import itertools
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller.service import changes, moves
from controller.service.network import ControlledNetwork
from controller.service.registry import RegistryOptions
from controller.service.serve import RunningService, ServiceOptions, running_service
from controller.service.store import JobStore
from host_agent.job_api import jobs_pb2, jobs_pb2_grpc
from host_agent.job_api.jobs_pb2 import FromWorker, ToWorker
from host_agent.job_api.tickets import admission_of
from host_agent.wire.constants import VERSION
from tests.controller.harness_switches import (
    PROGRAM,
    HarnessSession,
    HarnessSwitch,
    HarnessWriter,
    use_switches,
)

PATIENCE_S = 60.0
"""Deadline of every wait; machines may be slow."""
_WRITES = ("BEGIN", "INSERT INTO job", "DELETE FROM job", "INSERT INTO host", "DELETE FROM host", "COMMIT")
"""The writes that fail: the first of a transaction, one in its middle, and the last."""
_UDP_PORTS = itertools.cycle((1, 65_535, *range(20_000, 60_000)))


@dataclass
class Disk:
    """Connections to a state file that count writes and fail at a chosen one."""

    passed: list[str] = field(default_factory=list)
    fails_at: int | None = None  # The number of the write that fails, from 0 on.
    full: bool = False  # Whether all of them fail.

    def write(self, statement: str) -> None:
        if not statement.startswith(_WRITES):
            return
        self.passed.append(statement)
        if self.full or len(self.passed) - 1 == self.fails_at:
            raise sqlite3.OperationalError("disk I/O error")

    def store(self, path: Path | str) -> JobStore:
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
                disk.write(statement)
                return super().execute(statement, *values)

            def executemany(self, statement: str, values: Any) -> sqlite3.Cursor:
                disk.write(statement)
                return super().executemany(statement, values)

        return JobStore(path, functools.partial(sqlite3.connect, factory=Connection))


class Worker:
    """A worker that answers a controller; the last message that it heard is in `epoch`, `rank`, `world_size` and `refusal`."""

    def __init__(self, world: "World", job: str, rank: int, world_size: int, **options: Any) -> None:
        self.epoch = self.rank = self.world_size = 0
        self.reason = self.refusal = self.over = ""
        self.left: set[int] = set()
        self._host = options.pop("host", rank + 1)
        request = jobs_pb2.JoinRequest(
            job=job,
            rank=rank,
            world_size=world_size,
            addresses=[f"127.0.2.{self._host}"],
            packets=VERSION,
            **options,
        )
        self._call: Any = world.workers.Join()
        self._first = FromWorker(join=request)
        self._writing = asyncio.Lock()
        self._heard = asyncio.create_task(self._read())

    async def say(self, **message: Any) -> None:
        async with self._writing:  # gRPC takes one message at a time.
            if not self._heard.done():
                # The stream may end meanwhile; `refusal` keeps the reason.
                with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    await self._call.write(FromWorker(**message))

    async def ask(self, **how: bool) -> None:
        """Ask for a new epoch until there is one, as a member does."""
        before = self.epoch
        while self.epoch == before and not self.ended:
            await self.say(again=jobs_pb2.Again(epoch=before, **how))
            with contextlib.suppress(TimeoutError):
                await self.until(lambda: self.epoch != before or self.ended, 0.1)

    async def leave(self) -> None:
        await self.say(leave=jobs_pb2.Leave())
        await asyncio.wait([self._heard])
        self.over = self.over or "it left"

    def vanish(self) -> None:
        """End the stream as a killed process does."""
        self._call.cancel()

    @property
    def ended(self) -> str:
        """Why it takes part no longer; empty while it does."""
        return self.refusal or self.over

    async def until(self, holds: Callable[[], object], seconds: float = PATIENCE_S) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.002)

    async def _read(self) -> None:
        try:
            await self._call.write(self._first)
            async for message in self._call:
                await self._take(message)
        except grpc.aio.AioRpcError:  # A write that failed says less than the call.
            self.refusal = f"{(await self._call.code()).name}: {await self._call.details()}"
        except asyncio.CancelledError:
            self.refusal = "CANCELLED"

    async def _take(self, message: ToWorker) -> None:
        kind = message.WhichOneof("message")
        match kind:
            case "place":
                await self.say(receive=jobs_pb2.Receiver(udp_port=next(_UDP_PORTS)))
            case "gathering":
                self.reason = message.gathering.queued
            case "admitted" | "restarted" | "moved":
                admission = admission_of(getattr(message, kind).admission)
                self.epoch, self.rank, self.world_size = admission.epoch, admission.rank, admission.world_size
                self.left.clear()
            case "left":
                self.left.add(message.left.rank)
            case "ended":
                self.over = message.ended.reason
            case "hold":
                await self.say(held=jobs_pb2.Held(epoch=message.hold.epoch, begun=0, ended=0))


class Agent:
    """The agent of a host that can add for jobs, on an embedded switch."""

    def __init__(self, world: "World", name: str = "agg") -> None:
        self._world = world
        self._started = jobs_pb2.Started(p4runtime=f"fake-{name}:1", device_id=1, udp_port=28275)
        self._offer = jobs_pb2.Offer(name=name, ip="127.0.2.77")
        self.refusal = ""
        world.switches[name] = HarnessSwitch()
        HarnessSession.switches = {**HarnessSession.switches, self._started.p4runtime: world.switches[name]}
        self._call: Any = world.aggregators.Register()
        self.read = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            await self._call.write(jobs_pb2.FromAggregator(offer=self._offer))
            async for message in self._call:
                if message.WhichOneof("message") == "start":
                    await self._call.write(jobs_pb2.FromAggregator(started=self._started))
        except grpc.aio.AioRpcError as error:
            self.refusal = error.details() or ""

    async def leave(self) -> None:
        """End, and with it the switch."""
        await self._call.done_writing()
        await asyncio.wait([self.read])
        await self._world.until(
            lambda: self._offer.name not in self._world.service.registry.aggregators.hosts
        )
        del self._world.switches[self._offer.name]


class World:
    """A running service, its switches and its clients."""

    def __init__(
        self,
        service: RunningService,
        switches: dict[str, HarnessSwitch],
        disk: Disk,
        channel: grpc.aio.Channel,
    ) -> None:
        self.service = service
        self.switches = switches
        self.disk = disk
        self.aggregators = jobs_pb2_grpc.AggregatorsStub(channel)  # type: ignore[no-untyped-call]
        self.operator = jobs_pb2_grpc.OperatorsStub(channel)  # type: ignore[no-untyped-call]
        self.workers = jobs_pb2_grpc.WorkersStub(channel)  # type: ignore[no-untyped-call]

    async def join(self, job: str, world_size: int, first: int = 0, **options: Any) -> list[Worker]:
        """Have all ranks join; those that are refused try again."""
        joined: list[Worker] = []
        for _ in range(8):
            joined = [Worker(self, job, rank, world_size, **options) for rank in range(first, world_size)]
            for worker in joined:
                await worker.until(lambda worker=worker: worker.epoch or worker.ended)  # type: ignore[misc]
            if all(worker.epoch and not worker.ended for worker in joined):
                return joined
            for worker in joined:
                explained = ("the controller's state in", "left before all workers had joined")
                assert not worker.ended or any(each in worker.ended for each in explained), worker.ended
                worker.vanish()
            await self.until(lambda: self._nobody(job, first))
        raise AssertionError([worker.refusal for worker in joined])

    def _nobody(self, name: str, first: int) -> bool:
        """Whether a job has ended, or takes the ranks from `first` on."""
        job = self.service.registry.jobs.get(name)
        return job is None or (job.record.operated and not any(rank >= first for rank in job.members))

    async def insist(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Call until the store takes it; each refusal gives the reason, and leaves nothing changed."""
        for _ in range(8):
            try:
                return await call()
            except grpc.aio.AioRpcError as error:
                if "the controller's state in" not in (error.details() or ""):
                    raise
                await self.agrees()
        raise AssertionError("it is refused again and again")

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(0.002)

    async def agrees(self, seconds: float = PATIENCE_S) -> None:
        """Wait until memory, disk and switches say the same, and no slot is lost."""
        deadline = time.monotonic() + seconds
        # One reading decides: a thread may write the next change to a switch right after it.
        while found := self.disagreements():
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.002)

    def disagreements(self) -> list[str]:
        registry, found = self.service.registry, []
        jobs = list(registry.jobs.values())
        memory = {job.name: job.to_keep() for job in jobs if job.to_keep() is not None}
        disk = {record.name: record for record in registry.store.jobs()}
        if memory != disk:
            found.append(f"memory {memory}, disk {disk}")
        for name, switch in self.switches.items():
            if name not in registry.trees.ledgers:  # A host whose switch has not started.
                continue
            expected = {
                job.parts[name].job_id: job.parts[name]
                for job in jobs
                if name in job.parts and job.record.running
            }
            if switch.jobs != expected:
                found.append(f"switch {name} holds {switch.jobs}, not {expected}")
            ledger = registry.trees.ledgers[name]
            held = {job.name: job.record.slots_on[name] for job in jobs if name in job.record.slots_on}
            booked = {name: one.slots for name, one in ledger._held.items()}
            if held != booked or ledger.free_slots != ledger.capacity - sum(
                each.count for each in held.values()
            ):
                found.append(
                    f"ledger of {name} has {booked}, jobs hold {held}, {ledger.free_slots} slots are free"
                )
        for job in jobs:
            for rank, member in job.members.items():
                if member.rank != rank or job.record.workers.get(rank) is not member.worker:
                    found.append(f"member {rank} of {job.name} is that of rank {member.rank}")
        return found


@contextlib.asynccontextmanager
async def world_on(
    folder: Path,
    network: ControlledNetwork,
    disk: Disk | None = None,
    kinds: tuple[type[HarnessSwitch], type[HarnessWriter]] = (HarnessSwitch, HarnessWriter),
    **registry: Any,
) -> AsyncIterator[World]:
    """Run a service on embedded switches."""
    disk = disk or Disk()
    with pytest.MonkeyPatch.context() as patch:
        switches = use_switches(patch, network.switches.values(), 0.02, kinds)
        patch.setattr(changes, "RETRY_S", 0.02)
        patch.setattr(moves, "FIRST_BACKOFF_S", 0.02)
        address = f"unix:{folder}/api.sock"
        options: dict[str, Any] = {"grace_s": 0.03, "recovery_s": 5.0, "report_s": 60.0, **registry}
        async with (
            running_service(
                ServiceOptions(
                    network=network,
                    program=PROGRAM.json,
                    p4info=PROGRAM.p4info,
                    state=folder / "state.sqlite3",
                    open_state=disk.store,
                    listen=(address,),
                    registry=RegistryOptions(**options),
                )
            ) as service,
            grpc.aio.insecure_channel(address) as channel,
        ):
            await service.until_ready()
            yield World(service, switches, disk, channel)
