"""Sparse tensors on the slots: rows that any rank has are reduced, the others do not travel."""

import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from host_agent.collectives.rows import MOST_ROWS, Rows
from host_agent.torch.slot_group import SlotGroup

_DTYPES: Final = (torch.float32, torch.float64, torch.float16, torch.int32, torch.int64)


def sparse_on_slots(tensor: Tensor, kind: str) -> bool:
    """Whether the slots can reduce a sparse tensor; decided by properties that are alike at all ranks."""
    return (
        tensor.layout is torch.sparse_coo
        and kind == "SUM"
        and tensor.dtype in _DTYPES
        and tensor.device.type == "cpu"
        and 1 <= _row_count(tensor) <= MOST_ROWS
    )


def reduce_sparse(slots: SlotGroup, tensor: Tensor, label: str) -> tuple[Callable[[], Future[Any]], Any]:
    """Plan the sum of a sparse tensor over all ranks, in place; the result is coalesced.

    Returns a function that begins it, and one to be called when it is done.
    """
    own = tensor.detach().coalesce()
    sizes = own.shape[: own.sparse_dim()]
    indices = own.indices().numpy()
    numbers = np.ravel_multi_index(tuple(indices), tuple(sizes)).astype(np.int64)
    begun: list[Future[Any]] = []

    def begin() -> Future[Any]:
        begun.append(slots.allreduce_rows(Rows(numbers, own.values().numpy()), _row_count(tensor), label))
        return begun[0]

    def finish() -> None:
        rows: Rows = begun[0].result()
        found = np.stack(np.unravel_index(rows.numbers, tuple(sizes))).astype(np.int64)
        total = torch.sparse_coo_tensor(
            torch.from_numpy(found), torch.from_numpy(rows.values), own.shape, is_coalesced=True
        )
        with torch.no_grad():
            tensor.copy_(total)

    return begin, finish


def _row_count(tensor: Tensor) -> int:
    return math.prod(tensor.shape[: tensor.sparse_dim()])
