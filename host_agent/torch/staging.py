"""Tensors where the CPU can work on them: in their own memory, or in a copy that is brought back.

Not run on a GPU yet: the machines this was built on have none. Every copy waits for the device, and so does what only
receives a result, so that no stream need be known later: all that the caller has put on its stream is done when a collective
begins, and the result is there when it ends.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from host_agent.torch.calls import nothing
from host_agent.torch.memory import overwrite


class Staged(NamedTuple):
    """A tensor to work on."""

    # On the CPU, its values as they are in memory; the one that was staged, if that is such a tensor.
    tensor: Tensor
    bring_back: Callable[[], None]  # Puts what was written to it where it belongs.


def staged(tensor: Tensor, *, read: bool, write: bool) -> Staged:
    """Stage a tensor. `tensor`: on any device; its values may be the negated or conjugated ones of its memory."""
    if tensor.device.type == "cpu" and not tensor.is_neg() and not tensor.is_conj():
        return Staged(tensor, nothing)
    if tensor.device.type == "cuda":
        # The result is brought back on another thread's stream: nothing the caller still has to write may come after it.
        torch.cuda.current_stream(tensor.device).synchronize()
    # The device is said because a program may have chosen another default.
    pinned = tensor.device.type == "cuda"
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)
    if read:
        overwrite(copy, tensor)
    return Staged(copy, (lambda: overwrite(tensor, copy)) if write else nothing)
