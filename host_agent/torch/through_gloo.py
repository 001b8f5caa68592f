"""The calls of a process group that go through an inner Gloo group: what one process sends to another."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_map_only

from host_agent.torch.calls import listed
from host_agent.torch.flight_recorder import RecordedGroup, described, recorder
from host_agent.torch.staging import staged
from host_agent.torch.tracing import untraced_methods
from host_agent.torch.work import tensors_in

_FIRST_MESSAGE: Final = 10**9
"""Messages are numbered apart from collectives: torchfrtrace takes neighbours with equal numbers for one coalesced call."""


@untraced_methods
class ThroughGloo(dist.ProcessGroup):
    """A process group whose messages between two processes go through Gloo; the base of netsum's."""

    _gloo: Any
    _recorded: RecordedGroup
    _timeout: timedelta
    _rank: int
    _calls: Iterator[int]

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._messages = itertools.count(_FIRST_MESSAGE)

    def gather(self, outputs: Any, inputs: Any, *options: Any) -> Any:
        """Gather tensors at one rank."""
        return self._staged("gather", inputs, outputs, self._gloo.gather, *options)

    def scatter(self, outputs: Any, inputs: Any, *options: Any) -> Any:
        """Scatter one rank's tensors."""
        return self._staged("scatter", inputs, outputs, self._gloo.scatter, *options)

    def alltoall(self, outputs: Any, inputs: Any, *options: Any) -> Any:
        """Exchange tensors between all pairs."""
        return self._staged("all_to_all", inputs, outputs, self._gloo.alltoall, *options)

    def all_to_all_single(self, output: Tensor, input: Tensor, *options: Any) -> Any:
        """Exchange parts of a tensor between all pairs."""
        return self._staged("all_to_all_single", input, output, self._gloo.alltoall_base, *options)

    alltoall_base = all_to_all_single

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Any:
        """Send to one rank."""
        return self._staged(
            f"send {self._rank}->{dst}", tensors, [], lambda _, sent: self._gloo.send(sent, dst, tag)
        )

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Any:
        """Receive from one rank."""
        return self._staged(
            f"recv {self._rank}<-{src}", [], tensors, lambda taken, _: self._gloo.recv(taken, src, tag)
        )

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Receive from any rank; not recorded, as the sender is not known."""
        taken, bring_back = _to_be_written(listed(tensors))
        return _after(self._gloo.recv_anysource(taken, tag), bring_back)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks, and name those that do not come."""
        self._gloo.monitored_barrier(self._timeout if timeout is None else timeout, wait_all_ranks)

    def _staged(
        self, operation: str, inputs: Any, outputs: Any, begin: Callable[..., Any], *options: Any
    ) -> Any:
        """Begin a call with tensors that Gloo can work on, record it, and return its work."""
        given = tree_map_only(Tensor, lambda each: staged(each, read=True, write=False).tensor, inputs)
        taken, bring_back = _to_be_written(outputs)
        return _after(self._call(operation, inputs, outputs, begin(taken, given, *options)), bring_back)

    def _call(self, operation: str, inputs: Any, outputs: Any, work: Any) -> Any:
        """Record a call, and return its work."""
        numbers = self._messages if " " in operation else self._calls
        given, taken = (described(tensors_in(listed(each))) for each in (inputs, outputs))
        recorder.begin(self._recorded, next(numbers), operation, given, taken, through_gloo=work)
        return work


class AllDone(dist._Work):
    """Works that are waited for together, after which what they received is still to be brought where it belongs."""

    def __init__(self, works: Sequence[Any], bring_back: Sequence[Callable[[], None]] = ()) -> None:
        super().__init__()
        self._works, self._bring_back = works, list(bring_back)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until the tensors hold the result."""
        done = all(work.wait(timeout) for work in self._works)
        while self._bring_back:
            self._bring_back.pop()()
        return done

    def is_completed(self) -> bool:
        """Whether all are done."""
        return all(work.is_completed() for work in self._works)

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of what the first work returns, done when all are; RuntimeError if some is to be brought back."""
        if self._bring_back:
            return super().get_future()
        futures = torch.futures.collect_all([work.get_future() for work in self._works])
        return futures.then(lambda done: done.value()[0].value())

    def _source_rank(self) -> int:
        return int(self._works[0]._source_rank())


def _to_be_written(outputs: Any) -> tuple[Any, list[Callable[[], None]]]:
    """Stage tensors, of a tree of lists, that a call only writes; returns them and what brings them back."""
    bring_back = []

    def taken(tensor: Tensor) -> Tensor:
        into = staged(tensor, read=False, write=True)
        if into.tensor is not tensor:
            bring_back.append(into.bring_back)
        return into.tensor

    return tree_map_only(Tensor, taken, outputs), bring_back


def _after(work: Any, bring_back: list[Callable[[], None]]) -> Any:
    return AllDone([work], bring_back) if bring_back else work
