"""The calls of a process group that go through an inner Gloo group: what one process sends to another."""

import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist
from torch import Tensor

from host_agent.torch.calls import listed
from host_agent.torch.flight_recorder import RecordedGroup, Tensors, described, recorder
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
        return self._call("gather", inputs, outputs, self._gloo.gather(outputs, inputs, *options))

    def scatter(self, outputs: Any, inputs: Any, *options: Any) -> Any:
        """Scatter one rank's tensors."""
        return self._call("scatter", inputs, outputs, self._gloo.scatter(outputs, inputs, *options))

    def alltoall(self, outputs: Any, inputs: Any, *options: Any) -> Any:
        """Exchange tensors between all pairs."""
        return self._call("all_to_all", inputs, outputs, self._gloo.alltoall(outputs, inputs, *options))

    def all_to_all_single(self, output: Tensor, input: Tensor, *options: Any) -> Any:
        """Exchange parts of a tensor between all pairs."""
        work = self._gloo.alltoall_base(output, input, *options)
        return self._call("all_to_all_single", input, output, work)

    alltoall_base = all_to_all_single

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Any:
        """Send to one rank."""
        sent = listed(tensors)
        return self._call(f"send {self._rank}->{dst}", sent, [], self._gloo.send(sent, dst, tag))

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Any:
        """Receive from one rank."""
        taken = listed(tensors)
        return self._call(f"recv {self._rank}<-{src}", [], taken, self._gloo.recv(taken, src, tag))

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Receive from any rank; not recorded, as the sender is not known."""
        return self._gloo.recv_anysource(listed(tensors), tag)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks, and name those that do not come."""
        self._gloo.monitored_barrier(self._timeout if timeout is None else timeout, wait_all_ranks)

    def _call(self, operation: str, inputs: Any, outputs: Any, work: Any) -> Any:
        """Record a call, and return its work."""
        numbers = self._messages if " " in operation else self._calls
        given, taken = _shapes(inputs), _shapes(outputs)
        recorder.begin(self._recorded, next(numbers), operation, given, taken, through_gloo=work)
        return work


def _shapes(tensors: Any) -> Tensors:
    """Return the shapes of a tensor, of a list of them, or of a list of lists."""
    return described(tensors_in(listed(tensors)))
