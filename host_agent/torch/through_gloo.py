"""The calls of a process group that go through an inner Gloo group: what one process sends to another."""

import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_map_only

from host_agent.torch.calls import listed
from host_agent.torch.flight_recorder import RecordedGroup, Tensors, described, recorder
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
        sent = [staged(each, read=True, write=False).tensor for each in listed(tensors)]
        return self._call(f"send {self._rank}->{dst}", sent, [], self._gloo.send(sent, dst, tag))

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Any:
        """Receive from one rank."""
        taken, bring_back = _to_be_written(listed(tensors))
        work = self._gloo.recv(taken, src, tag)
        return _after(self._call(f"recv {self._rank}<-{src}", [], taken, work), bring_back)

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
        given, taken = _shapes(inputs), _shapes(outputs)
        recorder.begin(self._recorded, next(numbers), operation, given, taken, through_gloo=work)
        return work


class _Work(dist._Work):
    """Work of Gloo, after which what it received is still to be brought where it belongs."""

    def __init__(self, work: Any, bring_back: list[Callable[[], None]]) -> None:
        super().__init__()
        self._work, self._bring_back = work, bring_back

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until the tensors hold the result."""
        done: bool = self._work.wait(timeout)
        while self._bring_back:
            self._bring_back.pop()()
        return done

    def is_completed(self) -> bool:
        """Whether Gloo is done."""
        return bool(self._work.is_completed())

    def _source_rank(self) -> int:
        return int(self._work._source_rank())


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
    return _Work(work, bring_back) if bring_back else work


def _shapes(tensors: Any) -> Tensors:
    """Return the shapes of a tensor, of a list of them, or of a list of lists."""
    return described(tensors_in(listed(tensors)))
