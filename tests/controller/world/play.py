"""A world in which a story is run, and the outcome."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.entries import Entry
from controller.service.registry import RegistryOptions
from controller.service.serve import ServiceOptions
from host_agent.job_api import jobs_pb2
from host_agent.wire.constants import VERSION
from tests.controller.harness_switches import PROGRAM
from tests.controller.world.clients import Operator, Worker
from tests.controller.world.disk import Disk
from tests.controller.world.invariants import Watch
from tests.controller.world.process import Process
from tests.controller.world.simulation import Simulation
from tests.controller.world.story import Step, Story
from tests.controller.world.streams import Call
from tests.controller.world.switches import SimulatedSwitch, opener
from tests.proof.epoch_hypotheses import Epoch

CALM_S = 150.0
"""How long nothing goes wrong before the end, in seconds: longer than every deadline and back-off of the service."""
CLEARED_S = 150.0
MOST_STEPS = 8_000


@dataclass
class Outcome:
    """Result of a story."""

    story: Story
    fault: str = ""  # The first invariant that was broken; empty if none was.
    at_s: float = 0.0
    steps: int = 0
    trace: str = ""  # Digest of all steps in their order.
    happened: Counter[str] = field(default_factory=Counter)
    last: list[str] = field(default_factory=list)  # The last steps, in words.

    @property
    def kind(self) -> str:
        """The fault without numbers and names: the same for a shorter story with the same fault."""
        return " ".join("#" if any(map(str.isdigit, word)) else word for word in self.fault.split()[:8])


class World:
    """The controllers, switches and clients of one run."""

    def __init__(self, story: Story, folder: Path) -> None:
        setting = story.setting
        self.story = story
        self.simulation = Simulation(story.seed, setting.mixing, setting.busy_s)
        self.switches: dict[str, SimulatedSwitch] = {}
        self._by_address: dict[str, SimulatedSwitch] = {}
        for number, (name, site) in enumerate(setting.network.switches.items()):
            switch = SimulatedSwitch(
                name, number, self.simulation, setting.switch_delays, setting.loses, watcher=self
            )
            self.switches[name] = self._by_address[site.p4runtime] = switch
        self.disks: list[Disk] = []
        self.processes: list[Process] = []
        self.watches: list[Watch] = []
        self.workers: list[Worker] = []
        self.operators: list[Operator] = []
        self.happened: Counter[str] = Counter()
        self._folder = folder
        self._is_calm = False
        self.simulation.folder = str(folder)
        self._ports = 0
        self._names = 0
        self._chance = self.simulation.chance("world")
        self.start_controller()

    # For clients

    def process(self, number: int) -> Process:
        return self.processes[number]

    def next_port(self) -> int:
        self._ports += 1
        return self._ports

    def call(self, controller: int, caller: Any, name: str, **pace: Any) -> Call | None:
        """Return a new call to a controller; None if it does not serve."""
        process = self.processes[controller % len(self.processes)]
        if not process.serves:
            return None
        pace.setdefault("delays", self.story.setting.stream_delays)
        call = Call(self.simulation, process.loop, caller, name, **pace)
        process.calls.append(call)
        return call

    def admitted(self, worker: Worker, kind: str) -> None:
        """A worker has heard of an epoch."""
        self.happened[kind] += 1
        for other in self.workers:
            if (
                other is not worker
                and other.alive
                and (other.controller, other.job, other.epoch)
                == (worker.controller, worker.job, worker.epoch)
                and other.admission is not None
                and worker.admission is not None
                and other.admission.rank == worker.admission.rank
            ):
                self.simulation.faults.append(
                    f"{worker.name} and {other.name} are both rank {other.admission.rank} in epoch {worker.epoch}"
                )

    def admits(self, switch: SimulatedSwitch, epoch: Epoch, entry: Entry) -> None:
        """A switch is about to admit packets."""
        for watch, process in zip(self.watches, self.processes, strict=True):
            if process.serves:
                self.simulation.faults.extend(watch.admits(switch, epoch, entry))

    # Events

    def start_controller(self) -> None:
        """Start the first controller, or a second one that takes the switches over."""
        number, setting = len(self.processes), self.story.setting
        disk = Disk(self._folder / f"state{number}.sqlite3")
        options = ServiceOptions(
            network=setting.network,
            program=PROGRAM.json,
            p4info=PROGRAM.p4info,
            open_state=disk.store,
            open_writer=opener(self._by_address),
            registry=RegistryOptions(
                unix_seconds=self.simulation.unix_seconds, **{**_TIMES, **setting.options}
            ),
            election_id=number + 1,
        )
        self.disks.append(disk)
        process = Process(self.simulation, f"controller {number + 1}", options, disk, self.switches)
        self.processes.append(process)
        self.watches.append(Watch(self, process))

    def happen(self, step: Step) -> None:
        self.simulation.say(str(step))
        self.happened[step.kind] += 1
        getattr(self, f"_{step.kind}")(*step.values)

    def _jobs_worker(self, choice: int, job: str = "") -> Worker | None:
        alive = [each for each in self.workers if each.alive and job in ("", each.job)]
        return alive[choice % len(alive)] if alive else None

    def _join(self, job: str, size: int, first: int, options: dict[str, Any], slow: float) -> None:
        for rank in range(size):
            self._worker(job, rank, size, first + rank, options, slow)

    def _worker(
        self, job: str, rank: int, size: int, host: int, options: dict[str, Any], slow: float
    ) -> None:
        self._names += 1
        hosts = list(self.story.setting.network.hosts.values())
        request = jobs_pb2.JoinRequest(
            job=job, rank=rank, world_size=size, addresses=[hosts[host % len(hosts)].ip], packets=VERSION
        )
        for name, value in options.items():
            if name == "slots":
                request.slots.count = value
            else:
                setattr(request, name, value)
        pace = {"reads_in": slow, "window": 2} if slow else {}
        controller = self._chance.randrange(len(self.processes))
        worker = Worker(self, f"worker {self._names} of {job}", request, controller, **pace)
        self.workers.append(worker)

    def _replace(self, job: str, choice: int, host: int) -> None:
        """Let a worker join in place of a rank that is gone."""
        for process in self.processes:
            held = process.registry.jobs.get(job) if process.serves else None
            if held is not None and held.missing:
                rank = held.missing[choice % len(held.missing)]
                self._worker(job, rank, held.record.world_size, host, {}, 0.0)
                return

    def _newcomer(self, job: str, host: int) -> None:
        self._worker(job, 0, 0, host, {"joins": True}, 0.0)

    def _leave(self, choice: int) -> None:
        worker = self._jobs_worker(choice)
        if worker is not None and worker.placed:
            worker.leave()

    def _vanish(self, choice: int, unnoticed_s: float) -> None:
        worker = self._jobs_worker(choice)
        if worker is not None:
            worker.vanish(unnoticed_s)

    def _cut(self, choice: int, unnoticed_s: float, seconds: float) -> None:
        worker = self._jobs_worker(choice)
        if worker is not None and worker.placed:
            worker.cut(unnoticed_s, seconds)

    def _again(self, choice: int, broken: bool) -> None:
        worker = self._jobs_worker(choice)
        if worker is not None:
            for each in self.workers:
                if each is worker or (each.job == worker.job and not broken):
                    each.ask(broken=broken)

    def _resize(self, choice: int, but: int) -> None:
        worker = self._jobs_worker(choice)
        if worker is not None:
            asking = [each for each in self.workers if each.alive and each.job == worker.job]
            for number, each in enumerate(asking):
                if number != but:
                    each.ask(resize=True)

    def _repeat(self, choice: int) -> None:
        worker = self._jobs_worker(choice)
        if worker is not None and worker.placed:
            worker.repeat()

    def _work(self, choice: int, collectives: int) -> None:
        worker = self._jobs_worker(choice)
        if worker is not None:
            for each in self.workers:
                if each.job == worker.job:
                    each.work(collectives)

    def _operate(self, method: str, values: dict[str, Any]) -> None:
        request = getattr(jobs_pb2, _REQUESTS[method])()
        for name, value in values.items():
            if name == "slots":
                request.slots.count = value
            else:
                setattr(request, name, value)
        controller = self._chance.randrange(len(self.processes))
        self.operators.append(Operator(self, controller, method, request))

    def _switch(self, choice: int) -> SimulatedSwitch:
        return list(self.switches.values())[choice % len(self.switches)]

    def _restart_switch(self, choice: int, seconds: float) -> None:
        self._switch(choice).restart(seconds)

    def _break_session(self, choice: int) -> None:
        self._switch(choice).break_sessions()

    def _hang(self, choice: int, seconds: float) -> None:
        self._switch(choice).hangs_until = self.simulation.now + seconds

    def _refuse(self, choice: int, count: int) -> None:
        self._switch(choice).refuses = count

    def _foreign(self, choice: int, program: bool, extra: bool) -> None:
        self._switch(choice).take_over(program, extra)

    def _fail_disk(self, kind: str, passing: int) -> None:
        self._chance.choice(self.disks).fails.append((kind, passing))

    def _fill_disk(self, seconds: float) -> None:
        disk = self._chance.choice(self.disks)
        disk.full = True
        self.simulation.at(seconds, setattr, disk, "full", False)

    def _kill_at(self, kind: str, passing: int, carried_out: bool) -> None:
        self._chance.choice(self.disks).kills.append((kind, passing, carried_out))

    def _kill(self, again_s: float) -> None:
        self._chance.choice(self.processes).kill(again_s)

    def _stop(self, again_s: float) -> None:
        process = self._chance.choice(self.processes)
        process.stop()
        self.simulation.at(again_s, self._wanted, process)

    def _wanted(self, process: Process) -> None:
        if self._is_calm and process is not self.processes[0]:
            return
        process.wanted = True
        process.start()

    def _second(self, seconds: float) -> None:
        """Let a second controller take over for some time."""
        if len(self.processes) == 1:
            self.start_controller()
        else:
            self._wanted(self.processes[1])
        self.simulation.at(seconds, self.processes[1].stop)

    def _set_clock(self, seconds: float) -> None:
        self.simulation.wall += seconds

    # To the end

    def run(self) -> str:
        """Let the story happen, then all become quiet and end; return what did not hold, empty if all did."""
        for step in self.story.steps:
            self.simulation.at(step.at, self.happen, step)
        end = max((step.at for step in self.story.steps), default=0.0)
        return (
            self._until(end + 1.0)
            or self._calm()
            or self._until(end + 1.0 + CALM_S)
            or self._quiet()
            or self._end()
            or self._until(self.simulation.now + CLEARED_S)
            or self._cleared()
        )

    def _until(self, time: float) -> str:
        reached: list[bool] = []  # Set by an event, as sums of times are rounded.
        self.simulation.at(max(0.0, time - self.simulation.now), reached.append, True)
        while not reached:
            before = self.simulation.steps
            if not self.simulation.step():
                return "nothing is left to happen"
            if self.simulation.steps == before:
                continue
            if self.simulation.steps > MOST_STEPS:
                return "it does not come to an end"
            if self.simulation.faults:
                return self.simulation.faults[0]
            for watch in self.watches:
                for broken in watch.step():
                    return broken
        return ""

    def _calm(self) -> str:
        """Let nothing go wrong any more, and all read at once; the second controller stops for good."""
        self._is_calm = True
        for process in self.processes:
            for call in process.calls:
                call.reads_in = 0.0
        for worker in self.workers:
            worker.pace = {}
        for disk in self.disks:
            disk.calm()
        for switch in self.switches.values():
            switch.loses, switch.refuses, switch.hangs_until, switch.down_until = 0.0, 0, 0.0, 0.0
        if len(self.processes) > 1:
            self.processes[1].stop()
        for worker in self.workers:
            if worker.controller:
                worker.vanish(0.0)
        self._wanted(self.processes[0])
        return ""

    def _quiet(self) -> str:
        process = self.processes[0]
        if not process.serves:
            return "the controller does not serve"
        for broken in self.watches[0].quiet():
            return broken
        for worker in self.workers:
            if (broken := self._left_waiting(worker, process)) and worker.alive:
                return f"{worker.name} {broken}"
        for operator in self.operators:
            if not operator.status:
                return f"{operator.name} has had no answer since {operator.since:.1f} s"
        return ""

    def _left_waiting(self, worker: Worker, process: Process) -> str:
        job = process.registry.jobs.get(worker.job)
        if job is None:
            return "has not heard that its job is gone"
        lease = worker._lease
        members = [each for each in job.current_and_joining() if each.worker.lease == lease]
        if not members or members[0].outbox is None:
            return "has a stream that the controller does not know"
        if members[0] in job.newcomers:
            return ""
        if job.record.running:
            return "" if worker.epoch == job.record.epoch else f"does not know epoch {job.record.epoch}"
        heard = worker.gathering
        return "" if heard and (heard.missing or heard.queued) else "has not heard what its job waits for"

    def _end(self) -> str:
        for name in self.processes[0].registry.jobs:
            self.operators.append(Operator(self, 0, "DeleteJob", jobs_pb2.JobName(name=name)))
        return ""

    def _cleared(self) -> str:
        registry = self.processes[0].registry
        if registry.jobs:
            return f"jobs cannot be deleted: {[*registry.jobs]}"
        for name, ledger in registry.trees.ledgers.items():
            if ledger.free_slots != ledger.capacity or ledger._held:
                return f"slots of {name} are never free again: {ledger._held}"
        for worker in self.workers:
            if worker.alive and not worker.controller:
                return f"{worker.name} has not heard that its job has ended"
        for broken in self.watches[0].quiet():
            return broken
        return ""


_TIMES = {"grace_s": 2.0, "recovery_s": 8.0, "idle_s": 40.0, "report_s": 60.0, "move_s": 3.0, "leaf_s": 5.0}
_REQUESTS = {
    "CreateJob": "CreateJobRequest",
    "DeleteJob": "JobName",
    "RestartJob": "JobName",
    "GetJob": "JobName",
    "ListJobs": "ListJobsRequest",
    "ListSwitches": "ListSwitchesRequest",
}


def play(story: Story) -> Outcome:
    """Let a story happen in a new world."""
    folder = Path(tempfile.mkdtemp(prefix="netsum-world-", dir=_memory()))
    world: World | None = None
    try:
        world = World(story, folder)
        fault = world.run()
    finally:
        if world is not None:
            for process in world.processes:
                process.kill(None)
        shutil.rmtree(folder, ignore_errors=True)
    simulation = world.simulation
    happened = world.happened
    for disk in world.disks:
        happened.update({f"store: {kind}": count for kind, count in disk.passed.items()})
        happened["store: commits"] += disk.commits
    for switch in world.switches.values():
        happened.update({f"switch: {kind}": count for kind, count in switch.counts.items()})
    return Outcome(
        story, fault, simulation.now, simulation.steps, simulation.trace, happened, list(simulation.events)
    )


def _memory() -> str | None:
    """Return a folder in memory, where SQLite's writes are fast."""
    folder = Path("/dev/shm")
    return str(folder) if folder.is_dir() else None


def shrunk(outcome: Outcome, most: int = 200, say: Callable[[str], None] = lambda words: None) -> Outcome:
    """Return a run of the shortest story found, from which no part can be left out, with the same kind of fault."""
    best, tries = outcome, 0
    width = max(1, len(best.story.steps) // 2)
    while tries < most:
        place, shorter = 0, False
        while place < len(best.story.steps) and tries < most:
            steps = best.story.steps[:place] + best.story.steps[place + width :]
            tried = play(best.story.with_steps(steps))
            tries += 1
            if tried.fault and tried.kind == outcome.kind:
                best, shorter = tried, True
                say(f"{len(best.story.steps)} events")
            else:
                place += width
        if width == 1 and not shorter:
            break
        width = max(1, width // 2)
    return best
