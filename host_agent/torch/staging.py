"""Tensors of other devices, brought to the host and back.

Not run on a GPU yet: the machines this was built on have none. Every copy waits for the device, and so does what only
receives a result, so that no stream need be known later: all that the caller has put on its stream is done when a collective
begins, and the result is there when it ends.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def on_host(tensor: Tensor) -> Tensor:
    """Return the tensor itself if it is on the CPU, else a copy of it in pinned memory."""
    if tensor.device.type == "cpu":
        return tensor
    staged = _pinned_like(tensor)
    staged.copy_(tensor.detach())
    return staged


def room_on_host(tensor: Tensor) -> tuple[Tensor, Callable[[], None]]:
    """Return where to put what becomes the tensor's content, and what then puts it there."""
    if tensor.device.type == "cpu":
        return tensor, lambda: None
    if tensor.device.type == "cuda":
        # The result is brought back on another thread's stream: nothing the caller still has to write may come after it.
        torch.cuda.current_stream(tensor.device).synchronize()
    staged = _pinned_like(tensor)

    def bring_back() -> None:
        with torch.no_grad():
            tensor.copy_(staged)

    return staged, bring_back


def _pinned_like(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
