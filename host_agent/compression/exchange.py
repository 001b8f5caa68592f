"""Drivers of a reducer's rounds: over torch.distributed, over a `Communicator`, and for all workers in one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor

from host_agent.communicator import Communicator
from host_agent.compression.compressor import Payload
from host_agent.compression.reducer import Reducer, Round, Rounds


class Exchange(Protocol):
    """Carries out rounds for one worker of a group."""

    @property
    def rank(self) -> int:
        """Of this worker."""

    @property
    def workers(self) -> int:
        """In the group."""

    def carry_out(self, request: Round) -> Any:
        """Return the result of a round; see `Round`."""


def run(rounds: Rounds, exchange: Exchange) -> Tensor:
    """Run the rounds of one tensor to their end."""
    result: Any = None
    while True:
        try:
            request = rounds.send(result)
        except StopIteration as end:
            return cast(Tensor, end.value)
        result = exchange.carry_out(request)


class TorchExchange:
    """Rounds over a process group of torch.distributed, of any back end.

    Parameters
    ----------
    group : ProcessGroup, optional
        The default group if None.
    """

    def __init__(self, group: Any = None) -> None:
        self.group = group
        self.rank: int = dist.get_rank(group)
        self.workers: int = dist.get_world_size(group)

    def carry_out(self, request: Round) -> Any:
        """Return the result of a round."""
        if request.op == "gather":
            return self._gather(request.tensors)
        flat = _concatenated(request.tensors)
        if request.op == "broadcast":
            dist.broadcast(flat, group=self.group, group_src=request.root)
        else:
            op = dist.ReduceOp.SUM if request.op == "sum" else dist.ReduceOp.MAX
            dist.all_reduce(flat, op, group=self.group)
        return _split_like(flat, request.tensors)

    def _gather(self, tensors: Payload) -> list[Payload]:
        mine = _to_bytes(tensors)
        sizes = torch.zeros(self.workers, len(tensors), dtype=torch.int64, device=mine.device)
        sizes[self.rank] = torch.tensor([each.numel() for each in tensors])
        dist.all_reduce(sizes, group=self.group)
        widths = [each.element_size() for each in tensors]
        lengths = [sum(map(int.__mul__, row, widths)) for row in sizes.tolist()]
        # Every back end gathers tensors of one length; the padding is at most what the largest payload is longer.
        longest = max(lengths)
        padded = torch.zeros(longest, dtype=torch.uint8, device=mine.device)
        padded[: mine.numel()] = mine
        gathered = [torch.empty_like(padded) for _ in range(self.workers)]
        dist.all_gather(gathered, padded, group=self.group)
        return [_from_bytes(each, row, tensors) for each, row in zip(gathered, sizes.tolist(), strict=True)]


class CommunicatorExchange:
    """Rounds over a `Communicator`, for tensors on the CPU.

    Parameters
    ----------
    communicator : Communicator
        Its sums of integers are exact; its sums of floats are block floating point.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self.rank = communicator.worker_id
        self.workers = communicator.num_workers

    def carry_out(self, request: Round) -> Any:
        """Return the result of a round."""
        if request.op == "gather":
            return self._gather(request.tensors)
        flat = _concatenated(request.tensors).numpy()
        if request.op == "broadcast":
            result = self._communicator.broadcast(flat, request.root)
        else:
            result = self._communicator.allreduce(flat, request.op)
        return _split_like(torch.from_numpy(result), request.tensors)

    def _gather(self, tensors: Payload) -> list[Payload]:
        mine = _to_bytes(tensors)
        sizes = torch.zeros(self.workers, len(tensors), dtype=torch.int64)
        sizes[self.rank] = torch.tensor([each.numel() for each in tensors])
        table = self._communicator.allreduce(sizes.numpy()).tolist()
        widths = [each.element_size() for each in tensors]
        payloads = []
        for rank, row in enumerate(table):
            own = (
                mine
                if rank == self.rank
                else torch.empty(sum(map(int.__mul__, row, widths)), dtype=torch.uint8)
            )
            received = self._communicator.broadcast(own.numpy(), rank)
            payloads.append(_from_bytes(torch.from_numpy(received), row, tensors))
        return payloads


def reduce_in_process(reducers: Sequence[Reducer], key: str, gradients: Sequence[Tensor]) -> list[Tensor]:
    """Run all workers of a group in lockstep in this process, and return each one's result.

    Parameters
    ----------
    reducers : sequence of Reducer
        One for each worker, in the order of ranks.
    key : str
        Which tensor it is.
    gradients : sequence of Tensor
        One for each worker.
    """
    generators = [
        reducer.rounds(key, gradient) for reducer, gradient in zip(reducers, gradients, strict=True)
    ]
    results: list[Any] = [None] * len(generators)
    while True:
        requests: list[Round] = []
        ended: list[Tensor] = []
        for generator, result in zip(generators, results, strict=True):
            try:
                requests.append(generator.send(result))
            except StopIteration as end:
                ended.append(end.value)
        if ended:
            if requests:
                raise AssertionError("the workers disagree about the number of rounds")
            return ended
        results = [_combined(requests)] * len(requests)


def _combined(requests: Sequence[Round]) -> Any:
    first = requests[0]
    if any((each.op, each.root) != (first.op, first.root) for each in requests):
        raise AssertionError("the workers disagree about a round")
    if first.op == "gather":
        return [each.tensors for each in requests]
    if first.op == "broadcast":
        return requests[first.root].tensors
    stacked = [torch.stack(same) for same in zip(*(each.tensors for each in requests), strict=True)]
    if first.op == "max":
        return tuple(each.amax(dim=0) for each in stacked)
    return tuple(each.sum(dim=0, dtype=each.dtype) for each in stacked)


def _concatenated(tensors: Payload) -> Tensor:
    """Return all tensors as one, so that a round is one collective."""
    if len(tensors) == 1:
        return tensors[0].reshape(-1).clone()
    return torch.cat([each.reshape(-1) for each in tensors])


def _split_like(flat: Tensor, tensors: Payload) -> Payload:
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
