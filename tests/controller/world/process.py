"""A controller's process: the shipped parts behind its servers, started on a state file, stopped in order or killed."""

import asyncio

from controller.errors import ControllerError
from controller.service.registry import JobRegistry
from controller.service.rpc import AggregatorsService, OperatorsService, WorkersService
from controller.service.scheduler import Scheduler
from controller.service.serve import STOP_GRACE_S, ServiceOptions, assembled
from controller.service.sessions import Sessions
from controller.service.store import JobStore
from controller.service.workers import JobMembers
from tests.controller.world.disk import Disk
from tests.controller.world.simulation import Loop, Simulation
from tests.controller.world.streams import Call
from tests.controller.world.switches import SimulatedSwitch, program_files

STARTS_AGAIN_S = 2.0


class Process:
    """A controller on a machine that starts it again when it ends with an error."""

    registry: JobRegistry
    scheduler: Scheduler
    sessions: Sessions
    members: JobMembers
    store: JobStore

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        options: ServiceOptions,
        disk: Disk,
        switches: dict[str, SimulatedSwitch],
    ) -> None:
        self.simulation, self.name, self.options, self.disk = simulation, name, options, disk
        self.switches = switches
        self.serves = False  # Whether it takes calls.
        self.wanted = True
        self.generation = 0
        self.calls: list[Call] = []
        self._loop: Loop | None = None
        self._open: JobStore | None = None
        self.start()

    @property
    def loop(self) -> Loop:
        assert self._loop is not None
        return self._loop

    @property
    def runs(self) -> bool:
        return self._loop is not None

    def start(self) -> None:
        if self.runs or not self.wanted:
            return
        self.generation += 1
        self.simulation.say(f"{self.name} starts")
        self.disk.dead = False
        self._loop = Loop(self.simulation, f"{self.name}.{self.generation}")
        self._loop.on_killed = self.kill
        self._stopping = asyncio.Event()
        self._loop.create_task(self._main())

    def stop(self) -> None:
        """End it in order, as SIGTERM does."""
        self.wanted = False
        if self.runs:
            self.loop.call_soon(self._stopping.set)

    def kill(self, again_s: float | None = STARTS_AGAIN_S) -> None:
        """End it as SIGKILL does; the machine starts it again after some time."""
        if not self.runs:
            return
        self.simulation.say(f"{self.name} is killed")
        self.disk.dead = True
        loop, self._loop = self.loop, None
        self.serves = False
        loop.stop_all()
        self._end(again_s)

    async def _main(self) -> None:
        try:
            self._open = self.store = self.options.open_state(self.disk.path)
            parts = assembled(self.options, program_files(), self.store)
        except ControllerError as error:
            self.simulation.say(f"{self.name} does not start: {error}")
            self.loop.call_soon(self._over, STARTS_AGAIN_S)
            return
        self.registry, self.scheduler, self.sessions, self.members = parts
        self.workers_service = WorkersService(self.members)
        self.aggregators_service = AggregatorsService(self.sessions)
        self.operators_service = OperatorsService(self.scheduler)
        self.serves = True
        links = asyncio.create_task(self.sessions.run())
        await self._stopping.wait()
        self.scheduler.close()
        links.cancel()
        await asyncio.wait([links])
        self.serves = False
        await asyncio.sleep(STOP_GRACE_S)
        for call in self.calls:
            if call.task is not None and not call.task.done():
                call.task.cancel()
        await asyncio.sleep(0)
        self.loop.call_soon(self._over, None)

    def _over(self, again_s: float | None) -> None:
        self.serves = False
        loop, self._loop = self.loop, None
        self.simulation.at(0.0, loop.stop_all)
        self._end(STARTS_AGAIN_S if self.wanted else again_s)

    def _end(self, again_s: float | None) -> None:
        """Let go of the file, the switches and the callers, as the end of a process does."""
        if self._open is not None:
            self._open.close()
            self._open = None
        for switch in self.switches.values():
            for session in [each for each in switch.sessions if each.election_id == self.options.election_id]:
                self.simulation.at(0.001, session.end)
        for call in self.calls:
            self.simulation.at(0.001, call.break_at_caller)
        self.calls.clear()
        if again_s is not None:
            self.simulation.at(again_s, self.start)
