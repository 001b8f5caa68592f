"""Drivers of a reducer's rounds: over torch.distributed, over a `Communicator`, and for all workers in one process."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from host_agent.communicator import Communicator
from host_agent.compression.compressor import Payload
from host_agent.compression.memory import Layout
from host_agent.compression.reducer import CompressedRound, Gathered, Reducer
from host_agent.wire.lengths import FRAME_HEADERS_BYTES

Result = TypeVar("Result")
Combine = Callable[[Sequence[CompressedRound]], Any]
"""Carries out a round of all workers of a group, given in the order of ranks; returns the result that each of them gets."""


class Exchange(Protocol):
    """Carries out rounds for one worker of a group."""

    @property
    def rank(self) -> int:
        """The rank of this worker."""

    @property
    def workers(self) -> int:
        """The number of workers in the group."""

    def begin(self, request: CompressedRound) -> Callable[[], Any]:
        """Begin a round, and return what waits for its end and returns its result; see `CompressedRound`.

        All workers begin their rounds in the same order, and wait for them in the same order.
        """

    def wire_bytes(self) -> tuple[int, int] | None:
        """Return the bytes of all Ethernet frames that this worker has sent and received; None if they are not counted."""


class Reduction(NamedTuple):
    """A tensor to reduce, and by what; the fields are the arguments of `Reducer.rounds`."""

    reducer: Reducer
    key: str
    gradient: Tensor
    layout: Layout | None = None


def reduce_over(exchange: Exchange, reductions: Sequence[Reduction]) -> list[Tensor]:
    """Reduce tensors over an exchange, and count what that put on the wire: for each tensor by its share of the payload."""
    before = exchange.wire_bytes()
    earlier = np.array([each.reducer.contributed(each.key) for each in reductions])
    results = run_together([each.reducer.rounds(*each[1:]) for each in reductions], exchange)
    after = exchange.wire_bytes()
    if before is not None and after is not None:
        ends = np.cumsum([each.reducer.contributed(each.key) for each in reductions] - earlier)
        counted = np.subtract(after, before)
        # Differences of rounded sums, so that the tensors' bytes add up to all that was counted.
        parts = np.diff(np.rint(np.outer(ends / max(1, ends[-1]), counted)).astype(int), axis=0, prepend=0)
        for each, (sent, received) in zip(reductions, parts.tolist(), strict=True):
            each.reducer.count_wire(each.key, sent, received)
    return results


def run(rounds: Generator[CompressedRound, Any, Result], exchange: Exchange) -> Result:
    """Carry out rounds to their end, and return their result."""
    return run_together([rounds], exchange)[0]


def run_together(
    tensors: Sequence[Generator[CompressedRound, Any, Result]], exchange: Exchange
) -> list[Result]:
    """Carry out the rounds of several tensors, and return their results: the next rounds of all tensors are under way at once."""
    ended: dict[int, Result] = {}
    results: dict[int, Any] = dict.fromkeys(range(len(tensors)))
    while results:
        under_way = {}
        for number, result in results.items():
            try:
                under_way[number] = exchange.begin(tensors[number].send(result))
            except StopIteration as end:
                ended[number] = end.value
        results = {number: finish() for number, finish in under_way.items()}
    return [ended[number] for number in range(len(tensors))]


class TorchExchange:
    """Rounds over a process group of torch.distributed, of any back end. `group`: the default group if None."""

    def __init__(self, group: Any = None) -> None:
        self.group = group
        self.rank: int = dist.get_rank() if group is None else group.rank()
        self.workers: int = dist.get_world_size() if group is None else group.size()

    def begin(self, request: CompressedRound) -> Callable[[], Any]:
        """Begin a round."""
        if request.op == "gather":
            return self._begin_gather(request.tensors)
        flat = concatenated(request.tensors)
        if request.op == "broadcast":
            work = dist.broadcast(flat, group=self.group, group_src=request.root, async_op=True)
        else:
            op = dist.ReduceOp.SUM if request.op == "sum" else dist.ReduceOp.MAX
            work = dist.all_reduce(flat, op, group=self.group, async_op=True)

        def finish() -> Payload:
            work.wait()
            return split_like(flat, request.tensors)

        return finish

    def wire_bytes(self) -> tuple[int, int] | None:
        """Return the counters of the group's communicator; None for back ends without one."""
        group = dist.group.WORLD if self.group is None else self.group
        communicator = getattr(group, "communicator", None)
        return None if communicator is None else _counted(communicator)

    def _begin_gather(self, tensors: Payload) -> Callable[[], Gathered]:
        mine = _to_bytes(tensors)
        sizes = torch.zeros(self.workers, len(tensors), dtype=torch.int64, device=mine.device)
        sizes[self.rank] = torch.tensor([each.numel() for each in tensors])
        work = dist.all_reduce(sizes, group=self.group, async_op=True)

        def finish() -> Gathered:
            work.wait()
            return self._gather(tensors, mine, sizes)

        return finish

    def _gather(self, tensors: Payload, mine: Tensor, sizes: Tensor) -> Gathered:
        widths = [each.element_size() for each in tensors]
        lengths = [sum(map(int.__mul__, row, widths)) for row in sizes.tolist()]
        # Every back end gathers tensors of one length; the padding is at most the excess of the largest payload.
        longest = max(lengths)
        padded = torch.zeros(longest, dtype=torch.uint8, device=mine.device)
        padded[: mine.numel()] = mine
        gathered = [torch.empty_like(padded) for _ in range(self.workers)]
        dist.all_gather(gathered, padded, group=self.group)
        return Gathered(
            _from_bytes(each, row, tensors) for each, row in zip(gathered, sizes.tolist(), strict=True)
        )


class CommunicatorExchange:
    """Rounds over a `Communicator`, for tensors on the CPU.

    `communicator`: its sums of integers are exact; its sums of floats are block floating point.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self.rank = communicator.worker_id
        self.workers = communicator.num_workers

    def begin(self, request: CompressedRound) -> Callable[[], Any]:
        """Begin a round."""
        if request.op == "gather":
            return lambda: run(gathering(request.tensors, self.rank, self.workers), self)
        flat = concatenated(request.tensors).numpy()
        if request.op == "broadcast":
            future = self._communicator.broadcast_async(flat, request.root)
        else:
            future = self._communicator.allreduce_async(flat, request.op)
        return lambda: split_like(torch.from_numpy(future.result()), request.tensors)

    def wire_bytes(self) -> tuple[int, int] | None:
        """Return the counters of the communicator."""
        return _counted(self._communicator)


def gathering(tensors: Payload, rank: int, workers: int) -> Generator[CompressedRound, Any, Gathered]:
    """Return the rounds that gather payloads of different lengths where there are only sums and broadcasts."""
    mine = _to_bytes(tensors)
    sizes = torch.zeros(workers, len(tensors), dtype=torch.int64)
    sizes[rank] = torch.tensor([each.numel() for each in tensors])
    (table,) = yield CompressedRound((sizes,), "sum")
    widths = [each.element_size() for each in tensors]
    payloads = Gathered()
    for root, row in enumerate(table.tolist()):
        length = sum(map(int.__mul__, row, widths))
        sent = mine if root == rank else torch.empty(length, dtype=torch.uint8)
        (received,) = yield CompressedRound((sent,), "broadcast", root)
        payloads.append(_from_bytes(received, row, tensors))
    return payloads


def reduce_in_process(
    reducers: Sequence[Reducer], key: str, gradients: Sequence[Tensor], combine: Combine | None = None
) -> list[Tensor]:
    """Run all workers of a group in lockstep in this process, and return each one's result.

    `reducers`: one for each worker, in the order of ranks. `key`: which tensor it is. `gradients`: one for each worker.
    `combine`: what carries out the rounds: `combined`, in memory, by default.
    """
    workers = [reducer.rounds(key, gradient) for reducer, gradient in zip(reducers, gradients, strict=True)]
    return in_lockstep(workers, combine or combined)


def in_lockstep(workers: Sequence[Generator[CompressedRound, Any, Result]], combine: Combine) -> list[Result]:
    """Carry out the rounds of all workers of a group together, and return their results.

    Raises AssertionError if the workers disagree about a round.
    """
    result: Any = None
    while True:
        requests: list[CompressedRound] = []
        ended: list[Result] = []
        for worker in workers:
            try:
                requests.append(worker.send(result))
            except StopIteration as end:
                ended.append(end.value)
        if ended:
            if requests:
                raise AssertionError("the workers disagree about the number of rounds")
            return ended
        if len({(each.op, each.root) for each in requests}) > 1:
            raise AssertionError("the workers disagree about a round")
        result = combine(requests)


def combined(requests: Sequence[CompressedRound]) -> Any:
    """Return the result of a round of all workers, computed in memory."""
    first = requests[0]
    if first.op == "gather":
        return Gathered(each.tensors for each in requests)
    if first.op == "broadcast":
        return requests[first.root].tensors
    stacked = [torch.stack(same) for same in zip(*(each.tensors for each in requests), strict=True)]
    if first.op == "max":
        return tuple(each.amax(dim=0) for each in stacked)
    return tuple(each.sum(dim=0, dtype=each.dtype) for each in stacked)


def _counted(communicator: Communicator) -> tuple[int, int]:
    total = communicator.total_stats
    return (
        total.bytes_sent + FRAME_HEADERS_BYTES * total.packets_sent,
        total.bytes_received + FRAME_HEADERS_BYTES * total.packets_received,
    )


def concatenated(tensors: Payload) -> Tensor:
    """Return all tensors as one, so that a round is one collective."""
    if len(tensors) == 1:
        return tensors[0].reshape(-1).clone()
    return torch.cat([each.reshape(-1) for each in tensors])


def split_like(flat: Tensor, tensors: Payload) -> Payload:
    """Undo `concatenated`."""
    parts = flat.split([each.numel() for each in tensors])
    return tuple(part.view(each.shape) for part, each in zip(parts, tensors, strict=True))


def _to_bytes(tensors: Payload) -> Tensor:
    return torch.cat([each.contiguous().view(-1).view(torch.uint8) for each in tensors])


def _from_bytes(data: Tensor, sizes: Sequence[int], like: Payload) -> Payload:
    parts = []
    offset = 0
    for elements, each in zip(sizes, like, strict=True):
        end = offset + elements * each.element_size()
        # A copy, because a view as a wider type must be aligned.
        parts.append(data[offset:end].clone().view(each.dtype))
        offset = end
    return tuple(parts)
