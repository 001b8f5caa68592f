"""Scripted workers and operators: they answer as members do, and report messages that must not come."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from host_agent.job_api import jobs_pb2
from host_agent.job_api.jobs_pb2 import FromWorker, ToWorker
from host_agent.job_api.tickets import admission_of
from host_agent.wire import Admission
from tests.controller.world.streams import Call

if TYPE_CHECKING:
    from tests.controller.world.play import World

AGAIN_S = 1.0  # Interval at which a worker repeats a request for another epoch.
REATTACHES_S = (0.1, 0.5, 1.0)
ASKS_FOR_S = 60.0  # Time after which it gives up.


class Worker:
    """A worker of a job, as `host_agent.joining.Membership` is.

    `place`: the number of its host. `controller`: which controller it asks.
    """

    def __init__(
        self, world: "World", name: str, request: jobs_pb2.JoinRequest, controller: int = 0, **pace: Any
    ) -> None:
        self.world, self.name, self.controller = world, name, controller
        self.job = request.job
        self._chance = world.simulation.chance(name)
        self._request, self.pace = request, pace
        self._port = 20_000 + world.next_port()
        self._call: Call | None = None
        self._lease = ""
        self.admission: Admission | None = None
        self.over_with = ""  # Reason why the worker has ended; empty while it takes part.
        self.left: set[int] = set()
        self.gathering: jobs_pb2.Gathering | None = (
            None  # The last message about workers that are still missing.
        )
        self.silent = False  # Whether its machine has failed.
        self.asking: dict[str, bool] = {}  # Arguments of its request for another epoch.
        self.began = self.ended = 0  # Collectives of its communicator.
        self._held: jobs_pb2.Hold | None = None
        self._asked_until = 0.0
        self.newcomers = 0
        self.last_heard = world.simulation.now
        self.connect()

    @property
    def epoch(self) -> int:
        return self.admission.epoch if self.admission is not None else 0

    @property
    def alive(self) -> bool:
        return not self.over_with and not self.silent

    @property
    def placed(self) -> bool:
        return bool(self._lease)

    def connect(self) -> None:
        """Open a stream: join, or attach again."""
        if not self.alive:
            return
        call = self.world.call(self.controller, self, self.name, **self.pace)
        if call is None:  # The controller does not run.
            if not self._lease:
                self.over_with = "UNAVAILABLE: no controller answers"
                return
            self.world.simulation.at(self._chance.choice(REATTACHES_S), self.connect)
            return
        self._call = call
        call.begin(lambda context: self.world.process(self.controller).workers_service.Join(None, context))
        if not self._lease:
            call.say(FromWorker(join=self._request))
            return
        rank = self.admission.rank if self.admission is not None else self._request.rank
        attach = jobs_pb2.Reattachment(job=self.job, rank=rank, lease=self._lease, epoch=self.epoch)
        call.say(FromWorker(attach=attach))

    # Requests

    def say(self, **message: Any) -> None:
        if self._call is not None and self.alive:
            self._call.say(FromWorker(**message))

    def leave(self) -> None:
        self.say(leave=jobs_pb2.Leave())
        self.over_with = self.over_with or "it left"

    def vanish(self, unnoticed_s: float) -> None:
        """Be killed."""
        self.over_with = self.over_with or "it was killed"
        if self._call is not None:
            self._call.break_off(unnoticed_s)

    def cut(self, unnoticed_s: float, seconds: float) -> None:
        """Lose the connection, and come back after some time."""
        if self._call is not None and self._call.open:
            self._call.break_off(unnoticed_s)
            self.world.simulation.at(seconds, self.connect)

    def ask(self, **how: bool) -> None:
        """Ask for another epoch until there is one, as a member does."""
        if self.admission is None or not self.alive:
            return
        self.asking, self._asked_until = how, self.world.simulation.now + ASKS_FOR_S
        self._ask(self.epoch)

    def _ask(self, epoch: int) -> None:
        if not self.alive or self.epoch != epoch or not self.asking:
            return
        if self.world.simulation.now > self._asked_until:
            self.asking = {}
            return
        self.say(again=jobs_pb2.Again(epoch=epoch, **self.asking))
        self.world.simulation.at(AGAIN_S, self._ask, epoch)

    def repeat(self) -> None:
        """Send the port again, which only a worker out of order does."""
        self._receive()

    def work(self, collectives: int) -> None:
        """Begin and end some collectives, unless a move holds it."""
        if self._held is None and self.admission is not None:
            self.began += collectives
            self.ended = self.began

    # Answers

    def heard(self, call: Call, message: ToWorker) -> None:
        if call is not self._call or not self.alive:
            return
        self.last_heard = self.world.simulation.now
        kind = message.WhichOneof("message")
        match kind:
            case "place":
                self._lease = message.place.lease
                self._later(self._receive)
            case "gathering":
                self.gathering = message.gathering
            case "admitted" | "restarted" | "moved":
                self._admit(kind, admission_of(getattr(message, kind).admission))
            case "left":
                self.left.add(message.left.rank)
            case "ended":
                self.over_with = f"ended: {message.ended.reason}"
                self._expect(bool(message.ended.reason), "its job has ended without a reason")
            case "hold":
                self._hold(message.hold)
            case "release":
                if message.release.epoch == self.epoch:
                    self._held = None
            case "newcomers":
                self.newcomers = message.newcomers.count
            case "leaf":
                self.say(no_leaf=jobs_pb2.NoLeaf(name=message.leaf.name, reason="it starts none"))

    def over(self, call: Call, code: str, sentence: str) -> None:
        if call is not self._call or not self.alive:
            return
        if code in ("UNAVAILABLE", "CANCELLED", "OK"):
            if self._lease:
                self.world.simulation.at(self._chance.choice(REATTACHES_S), self.connect)
            else:
                self.over_with = f"{code}: {sentence}"
            return
        if code == "NOT_FOUND" and self._lease and self.admission is None:
            self._lease = ""
            self.world.simulation.at(self._chance.choice(REATTACHES_S), self.connect)
            return
        self._expect(bool(sentence), f"it was refused with {code} and no reason")
        self.over_with = f"{code}: {sentence}"

    def _receive(self) -> None:
        self.say(receive=jobs_pb2.Receiver(udp_port=self._port))

    def _admit(self, kind: str, admission: Admission) -> None:
        before = self.admission
        if before is not None:
            self._expect(
                admission.epoch > before.epoch, f"epoch {admission.epoch} comes after {before.epoch}"
            )
            self._expect(kind != "admitted", "it is admitted a second time")
        if kind == "moved":
            # All have ended the same collectives; without a boundary, none was under way.
            held = self._held
            boundary = held.until if held is not None and held.HasField("until") else self.ended
            self._expect(
                self.began == self.ended == boundary,
                f"it moves with {self.began} collectives begun, {self.ended} ended and the boundary {boundary}",
            )
        else:
            self.began = self.ended = 0
        self.admission = admission
        self.left.clear()
        self._held, self.asking, self.gathering = None, {}, None
        self.world.admitted(self, kind)

    def _hold(self, hold: jobs_pb2.Hold) -> None:
        if hold.epoch != self.epoch:
            return
        first = self._held is None
        self._held = hold
        if not hold.HasField("until"):
            if first:
                self.began += self._chance.randrange(2)
            self._later(self._tell_position)
            return
        self._expect(hold.until >= self.began, f"the boundary is {hold.until}, and it has begun {self.began}")
        self._later(self._reach, hold.until)

    def _reach(self, until: int) -> None:
        if self._held is not None:
            self.began = self.ended = max(until, self.ended)
            self._tell_position()

    def _tell_position(self) -> None:
        if self._held is not None:
            attempt = self._held.attempt
            held = jobs_pb2.Held(epoch=self.epoch, begun=self.began, ended=self.ended, attempt=attempt)
            self.say(held=held)

    def _later(self, call: Callable[..., object], *arguments: Any) -> None:
        self.world.simulation.at(self._chance.choice((0.0, 0.001, 0.1)), call, *arguments)

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.world.simulation.faults.append(f"{self.name}: {otherwise}")


class Operator:
    """One call of an operator."""

    def __init__(self, world: "World", controller: int, method: str, request: Any) -> None:
        self.name = f"operator's {method} {getattr(request, 'name', '')}".rstrip()
        self.answer: Any = None
        self.status = ""
        self._world = world
        self.since = world.simulation.now
        call = world.call(controller, self, self.name)
        if call is None:
            self.status = "UNAVAILABLE: no controller answers"
            return
        call.begin(
            lambda context: getattr(world.process(controller).operators_service, method)(request, context)
        )

    def heard(self, call: Call, message: Any) -> None:
        self.answer = message

    def over(self, call: Call, code: str, sentence: str) -> None:
        self.status = f"{code}: {sentence}"
        if code != "OK" and not sentence:
            self._world.simulation.faults.append(f"{self.name}: it was refused with {code} and no reason")
