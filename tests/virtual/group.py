"""A process group of torch.distributed over workers in virtual time."""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from host_agent.errors import MisuseError
from tests.virtual.network import UniformLinks
from tests.virtual.rounds import RoundsOfJob, VirtualCommunicator
from tests.virtual.timeline import Links
from tests.virtual.world import Threads, VirtualWorld

Result = TypeVar("Result")
_SUM: Final = dist.ReduceOp.SUM


def groups(world: VirtualWorld) -> "list[VirtualGroup]":
    """Return the group of all workers of a world, as each of them has it."""
    exchange = _Shared()
    members = list(range(world.workers))
    return [VirtualGroup(world, members, rank, exchange) for rank in members]


@dataclass
class _Meeting:
    """A collective under way."""

    given: dict[int, Tensor] = field(default_factory=dict)
    result: Any = None


class _Shared:
    """The mailbox of the workers."""

    def __init__(self) -> None:
        self.meetings: dict[tuple[int, ...], _Meeting] = {}
        self.messages: dict[tuple[int, int, int], deque[Tensor]] = defaultdict(deque)
        self.job: RoundsOfJob | None = None


class _Done(dist._Work):
    """Work that is done."""

    def __init__(self) -> None:
        super().__init__()

    def wait(self, timeout: Any = None) -> bool:
        """Return at once."""
        return True


class VirtualGroup(dist.ProcessGroup):
    """Collectives and messages among workers of one process, in virtual time; sums are added in the order of ranks.

    Give it to a strategy as `group`. Strategies' functions of `torch.distributed` work with it; it is not registered there, so
    those that look a group up do not.
    """

    def __init__(self, world: VirtualWorld, members: list[int], rank: int, shared: _Shared) -> None:
        super().__init__(rank, len(members))
        self._world, self._members, self._shared = world, members, shared
        self._place = rank
        self.threads = Threads(world)

    def divided(self, ranks: list[int]) -> "VirtualGroup":
        """Return the group of some of its ranks, this worker among them."""
        members = [self._members[each] for each in ranks]
        return VirtualGroup(self._world, members, ranks.index(self._place), self._shared)

    def communicator(self, quorum: int, seed: int = 0) -> VirtualCommunicator:
        """Return this worker's communicator of a job with a quorum, which all workers of the world take part in.

        `quorum`: the arrays of how many workers a round reduces; the same at all workers. `seed`: of the draw of members
        among workers that are ready at the same time; the first worker's counts. Raises MisuseError if the quorum is not 1
        to the number of workers, or not what another worker has given.
        """
        job = RoundsOfJob(self._world.workers, quorum, seed)
        self._shared.job = self._shared.job or job
        if self._shared.job.quorum != quorum:
            raise MisuseError(
                f"expected a quorum of {self._shared.job.quorum}, as at the other workers, not {quorum}"
            )
        return VirtualCommunicator(self._world, self._me, self._shared.job)

    def getBackendName(self) -> str:
        """Return "virtual"."""
        return "virtual"

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Add tensors, or take their maxima."""
        operation = _SUM if opts is None else opts.reduceOp
        op = "sum" if operation == _SUM else "max"
        (tensor,) = tensors

        def combine(given: list[Tensor]) -> Tensor:
            total = given[0].clone()
            for each in given[1:]:
                total = total + each if op == "sum" else torch.maximum(total, each)
            return total

        tensor.copy_(self._meet(op, tensor, combine))
        return _Done()

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Give every rank its part of the sum."""
        total = self._meet("scatter", torch.stack(inputs[0]), lambda given: torch.stack(given).sum(0))
        outputs[0].copy_(total[self._place])
        return _Done()

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Give every rank's tensor to all."""
        for output, each in zip(outputs[0], self._meet("gather", inputs[0], list), strict=True):
            output.copy_(each)
        return _Done()

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Give one rank's tensor to all."""
        root = opts.rootRank
        tensors[0].copy_(self._meet("broadcast", tensors[0], lambda given: given[root]))
        return _Done()

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Any:
        """Send to one rank."""
        receiver, (tensor,) = self._members[dst], tensors
        self._shared.messages[self._me, receiver, tag].append(tensor.clone())
        self._world.do(["send", receiver, tag, tensor.nbytes])
        return _Done()

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Any:
        """Wait for a message of one rank."""
        sender = self._members[src]
        self._world.do(["receive", sender, tag])
        tensors[0].copy_(self._shared.messages[sender, self._me, tag].popleft())
        return _Done()

    @property
    def _me(self) -> int:
        return self._members[self._place]

    def _meet(self, op: str, tensor: Tensor, combine: Any) -> Any:
        key = tuple(self._members)
        meeting = self._shared.meetings.setdefault(key, _Meeting())
        meeting.given[self._place] = tensor.clone()
        if len(meeting.given) == len(key):
            meeting.result = combine([meeting.given[each] for each in range(len(key))])
            del self._shared.meetings[key]
        self._world.do(["meet", self._members, op, tensor.nbytes])
        return meeting.result


def run_workers(
    workers: int, body: Callable[[int, VirtualGroup, VirtualWorld], Result], links: Links | None = None
) -> tuple[list[Result], VirtualWorld]:
    """Run `body(rank, group, world)` at each of several workers in virtual time.

    `links`: by default communication takes no time. Returns the result of each, and the world with its events.
    """
    world = VirtualWorld(workers, links or UniformLinks())
    members = groups(world)
    return world.run(lambda rank: body(rank, members[rank], world)), world
