"""The parts of a process group's calls on the slots: planned on staged tensors, begun later."""

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor

from host_agent.errors import ArrayError
from host_agent.torch.calls import cut, label_of
from host_agent.torch.gloo_reductions import GlooReductions
from host_agent.torch.reductions import bytes_of, kind_of, reduction
from host_agent.torch.slot_group import SlotGroup
from host_agent.torch.staging import host_memory, staged, write_staged
from host_agent.words import plural

Part = tuple[Callable[[], Future[Any]], Callable[[], None]]
"""A function that begins a collective, and one that brings its result where it belongs."""


class Parts:
    """Plans the parts of one group's calls.

    `slots`: the collectives on the switch. `gloo`: the inner group, for operations that slots lack. `rank`, `size`: of the group.
    """

    def __init__(self, slots: SlotGroup, gloo: Any, rank: int, size: int) -> None:
        self._slots, self._gloo, self._rank, self._size = slots, gloo, rank, size

    def reduce(
        self, source: Tensor, target: Tensor | None, operation: Any, label: str, root: int | None = None
    ) -> Part:
        """Plan a reduction; `root` is the rank of the group that alone has a target, and needs the result."""
        kind = kind_of(operation)
        factor = operation.factor if kind == "PREMUL_SUM" else None
        given = staged(source, read=True, write=target is source)
        if target is None and given.tensor is source:
            target = torch.empty_like(source)  # not the caller's tensor, although the result is not used
        taken = given if target is None or target is source else staged(target, read=False, write=True)
        if taken.tensor.numel() != source.numel() or taken.tensor.dtype != source.dtype:
            raise ArrayError(
                f"expected an output like the input, {source.dtype} {list(source.shape)}, "
                f"got {taken.tensor.dtype} {list(taken.tensor.shape)}"
            )
        written = given.tensor if taken is given else taken.tensor.view(source.shape)
        plan = reduction(given.tensor, written, kind, self._size, factor)

        def finish() -> None:
            plan.finish()
            taken.bring_back()

        if plan.op in ("product", "bxor"):
            reduce = GlooReductions(self._gloo, self._size).allreduce_async
            return functools.partial(reduce, plan.array, plan.op, out=plan.out), finish
        return functools.partial(self._slots.allreduce, plan, label_of(label, kind, source), root), finish

    def gather(self, piece: Tensor, whole: Tensor, label: str = "") -> Part:
        """Plan to gather the ranks' pieces in one tensor."""
        given, taken = staged(piece, read=True, write=False), staged(whole, read=False, write=True)
        cut(taken.tensor, piece, self._size)
        own, flat = bytes_of(given.tensor), bytes_of(taken.tensor).reshape(self._size, -1)
        label = label or label_of("all_gather", "", piece)
        return functools.partial(self._slots.all_gather, own, flat, label), taken.bring_back

    def gather_in_list(self, own: Tensor, pieces: Sequence[Tensor]) -> Part:
        """Plan to gather the ranks' tensors, whose numbers of elements may differ, in one tensor for each."""
        longest = max(piece.numel() for piece in pieces)
        row = staged(own.detach(), read=True, write=False).tensor.reshape(-1)
        if row.numel() < longest:
            row = torch.cat([row, row.new_zeros(longest - row.numel())])
        whole = host_memory((len(pieces), longest), own)
        begin, finish_whole = self.gather(row, whole, label_of("all_gather", "", *pieces))

        def finish() -> None:
            finish_whole()
            for piece, gathered in zip(pieces, whole, strict=True):
                write_staged(piece, gathered[: piece.numel()].view(piece.shape))

        return begin, finish

    def broadcast(self, tensor: Tensor, root: int, label: str) -> Part:
        """Plan to overwrite the ranks' tensors with the root's."""
        sends = root == self._rank
        given = staged(tensor, read=sends, write=not sends)
        label = label_of(label, "", tensor)
        return functools.partial(self._slots.broadcast, bytes_of(given.tensor), root, label), given.bring_back

    def check_pieces(self, what: str, pieces: Sequence[Tensor]) -> None:
        """Raise ArrayError if there is not one tensor for each rank."""
        if len(pieces) != self._size:
            raise ArrayError(
                f"{what}: expected a tensor for each of {plural(self._size, 'rank')}, got {len(pieces)}"
            )
