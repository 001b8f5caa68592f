"""The calls of a process group that go through an inner Gloo group: transfers from one process to another."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_map_only

from host_agent.errors import ArrayError, NetsumError
from host_agent.torch.calls import label_of, nothing
from host_agent.torch.failures import Failures
from host_agent.torch.flight_recorder import Recorded, RecordedGroup, described, recorder
from host_agent.torch.gloo_reductions import GlooError, future_of
from host_agent.torch.staging import staged
from host_agent.torch.tracing import untraced_methods
from host_agent.torch.work import tensors_in

_FIRST_MESSAGE: Final = 10**9
"""Messages are numbered apart from collectives: torchfrtrace takes neighbours with equal numbers for one coalesced call."""


@untraced_methods
class ThroughGloo(dist.ProcessGroup):
    """A process group whose messages between two processes go through Gloo; the base of netsum's."""

    _gloo: Any
    _failures: Failures
    _recorded: RecordedGroup
    _timeout: timedelta
    _rank: int
    _ranks: Sequence[int]
    _work: Callable[..., Any]

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._messages = itertools.count(_FIRST_MESSAGE)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Gather tensors at one rank."""
        opts = dist.GatherOptions() if opts is None else opts
        return self._exchange("gather", inputs, outputs, self._gloo.gather, opts)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Scatter one rank's tensors."""
        opts = dist.ScatterOptions() if opts is None else opts
        return self._exchange("scatter", inputs, outputs, self._gloo.scatter, opts)

    def alltoall(self, outputs: Any, inputs: Any, *options: Any) -> Any:
        """Exchange tensors between all pairs."""
        return self._exchange("all_to_all", inputs, outputs, self._gloo.alltoall, *options)

    def all_to_all_single(self, output: Tensor, input: Tensor, *options: Any) -> Any:
        """Exchange parts of a tensor between all pairs."""
        return self._exchange("all_to_all_single", [input], [output], self._all_to_all_single, *options)

    alltoall_base = all_to_all_single

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Any:
        """Send to one rank."""
        name, label = f"send {self._rank}->{dst}", f"send to rank {self._ranks[dst]}"
        return self._message(name, label, tensors, [], lambda _, sent: self._gloo.send(sent, dst, tag))

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Any:
        """Receive from one rank."""
        name, label = f"recv {self._rank}<-{src}", f"recv from rank {self._ranks[src]}"
        return self._message(name, label, [], tensors, lambda taken, _: self._gloo.recv(taken, src, tag))

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Receive from any rank; not recorded, as the sender is not known."""
        begin = lambda taken, _: self._gloo.recv_anysource(taken, tag)  # noqa: E731
        return self._message("", "recv from any rank", [], tensors, begin)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks, and name those that do not come."""
        self._gloo.monitored_barrier(self._timeout if timeout is None else timeout, wait_all_ranks)

    def _all_to_all_single(self, outputs: Any, inputs: Any, *options: Any) -> Any:
        for tensor, splits in zip((*outputs, *inputs), options, strict=False):
            if splits and sum(splits) != tensor.shape[0]:
                raise ArrayError(
                    f"split sizes {splits} must add up to the {tensor.shape[0]} rows of the tensor"
                )
        return self._gloo.alltoall_base(outputs[0], inputs[0], *options)

    def _exchange(
        self, operation: str, inputs: Any, outputs: Any, begin: Callable[..., Any], *options: Any
    ) -> Any:
        """Begin a collective of bytes, and return its work."""
        given, taken = tensors_in(inputs), tensors_in(outputs)
        # The arguments that are alike at all ranks.
        named = taken if operation == "scatter" else given
        root = getattr(options[0], "rootRank", None) if options else None
        where = (
            "" if root is None else f" {'to' if operation == 'gather' else 'from'} rank {self._ranks[root]}"
        )

        def parts() -> Iterator[tuple[Callable[[], Future[Any]], Callable[[], None]]]:
            read, written, bring_back = _as_bytes(inputs, outputs)
            yield lambda: future_of(begin(written, read, *options)), bring_back

        label = label_of(operation + where, "", *named)
        return self._work(label, taken, parts(), (operation, given, taken), through_gloo=True)

    def _message(
        self, name: str, label: str, inputs: Any, outputs: Any, begin: Callable[[Any, Any], Any]
    ) -> Any:
        """Begin to send or to receive, and return the work; `name`: for the flight recorder, or empty."""
        given, taken = tensors_in(inputs), tensors_in(outputs)
        read, written, bring_back = _as_bytes(inputs, outputs)
        # Gloo loses a message of no bytes that is received from any rank.
        read, written = (
            [each if each.numel() else torch.zeros(1, dtype=torch.uint8, device="cpu") for each in side]
            for side in (read, written)
        )
        record, shapes = None, (described(given), described(taken))
        if name:
            record = recorder.begin(self._recorded, next(self._messages), name, *shapes, through_gloo=True)
        return _Message(
            label_of(label, "", *given, *taken),
            lambda: begin(written, read),
            bring_back,
            self._failures,
            record,
        )


class AllDone(dist._Work):
    """Works that are waited for together."""

    def __init__(self, works: Sequence[Any]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until the tensors hold the result."""
        return all(work.wait(timeout) for work in self._works)

    def is_completed(self) -> bool:
        """Whether all are done."""
        return all(work.is_completed() for work in self._works)

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of the first work's value, done when all works are."""
        futures = torch.futures.collect_all([work.get_future() for work in self._works])
        return futures.then(lambda done: done.value()[0].value())

    def _source_rank(self) -> int:
        return int(self._works[0]._source_rank())


class _Message(AllDone):
    """A message under way, which Gloo ends in `wait`; `wait` also copies a received message into the caller's tensor."""

    def __init__(
        self,
        what: str,
        begin: Callable[[], Any],
        bring_back: Callable[[], None],
        failures: Failures,
        record: Recorded | None,
    ) -> None:
        super().__init__([])
        self._what, self._bring_back, self._failures, self._record = what, bring_back, failures, record
        with self._explained():
            self._works = [begin()]

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until it has been sent or received; torch.distributed.DistBackendError if it cannot be."""
        with self._explained():
            super().wait(timeout)
        if self._record is not None:
            self._record.ended(None)
        self._bring_back()
        self._bring_back, self._record = nothing, None
        return True

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, NetsumError) as error:
            cause = error if isinstance(error, NetsumError) else GlooError(error, collective=False)
            failed = self._failures.explain(self._what, cause)
            if self._record is not None:
                self._record.ended(failed)
            raise failed from cause


def _as_bytes(inputs: Any, outputs: Any) -> tuple[Any, Any, Callable[[], None]]:
    """Stage tensors, in lists or lists of lists, that a call reads and writes.

    Returns their bytes, and what brings the outputs where they belong. Raises ArrayError if they are not all of one type.
    """
    given, taken = tensors_in(inputs), tensors_in(outputs)
    dtypes = {each.dtype for each in given + taken}
    if len(dtypes) > 1:
        raise ArrayError(f"expected tensors of one type, got {', '.join(sorted(map(str, dtypes)))}")
    written = [staged(each, read=False, write=True) for each in taken]
    memory = [each.tensor for each in written]
    flat = iter(memory)

    def bring_back() -> None:
        for each in written:
            each.bring_back()

    return (
        tree_map_only(
            Tensor, lambda each: _rows(staged(each, read=True, write=False, apart_from=memory).tensor), inputs
        ),
        tree_map_only(Tensor, lambda _: _rows(next(flat)), outputs),
        bring_back,
    )


def _rows(tensor: Tensor) -> Tensor:
    """View a contiguous tensor as bytes, in as many rows as it has."""
    count = tensor.shape[0] if tensor.dim() else 1
    return tensor.detach().reshape(count, tensor.numel() // max(count, 1)).view(torch.uint8)
