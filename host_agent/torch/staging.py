"""Tensors as netsum and Gloo work on them: contiguous on the CPU, in their own memory or in a copy that is brought back.

A collective of CUDA tensors begins when all is done that the caller had put on its stream, and ends when its result is in
the memory of the GPU, so no stream need be known later. Results are copied on a stream of their own: they do not wait for
kernels that the caller has queued meanwhile. Pinned memory is kept and used again by PyTorch's allocator.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from host_agent.errors import UnsupportedTypeError
from host_agent.torch.calls import nothing
from host_agent.torch.tensor_memory import overwrite


class Staged(NamedTuple):
    """A tensor to work on."""

    # On the CPU, contiguous, with the values that its memory holds; the one that was staged, if that is such a tensor.
    tensor: Tensor
    bring_back: Callable[
        [], None
    ]  # Copies the written values to the caller's tensor, and returns afterwards.


def staged(tensor: Tensor, *, read: bool, write: bool, apart_from: Sequence[Tensor] = ()) -> Staged:
    """Stage a tensor.

    `tensor`: on any device, with any strides; its values may be the negated or conjugated ones of its memory. `apart_from`:
    tensors with which it is not to share memory. Raises UnsupportedTypeError if it is sparse.
    """
    if tensor.layout is not torch.strided:
        raise UnsupportedTypeError(
            f"a tensor of layout {tensor.layout}: expected a dense one, as only all_reduce takes sparse ones; call to_dense()"
        )
    if (
        tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor.is_conj()
        and not any(_share_memory(tensor, each) for each in apart_from)
    ):
        return Staged(tensor, nothing)
    if tensor.device.type == "cuda":
        # The result is brought back on another stream: nothing the caller still has to write may come after it.
        torch.cuda.current_stream(tensor.device).synchronize()
    copy = host_memory(tensor.shape, tensor)
    if read:
        # PyTorch copies negated values of a GPU with the wrong sign if they are not contiguous.
        overwrite(copy, tensor.resolve_conj().resolve_neg())
    return Staged(copy, functools.partial(write_staged, tensor, copy) if write else nothing)


def _share_memory(one: Tensor, other: Tensor) -> bool:
    """Return whether the memory that a tensor of the CPU is part of is also that of another tensor."""
    if other.device.type != "cpu":
        return False
    first, second = one.untyped_storage(), other.untyped_storage()
    begin = max(first.data_ptr(), second.data_ptr())
    return bool(begin < min(first.data_ptr() + first.nbytes(), second.data_ptr() + second.nbytes()))


def host_memory(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return a new tensor of the CPU, in pinned memory if its counterpart is a CUDA tensor."""
    # The device is said because a program may have chosen another default.
    return torch.empty(shape, dtype=like.dtype, device="cpu", pin_memory=like.device.type == "cuda")


def write_staged(tensor: Tensor, copy: Tensor) -> None:
    """Copy values of the CPU into a tensor on any device, in any thread; returns when they are there."""
    if tensor.device.type != "cuda":
        overwrite(tensor, copy)
        return
    stream = _stream_to(tensor.device)
    with torch.cuda.stream(stream):
        overwrite(tensor, copy)
    stream.synchronize()  # A tensor that is not contiguous is written by a kernel, for which the copy does not wait.


@functools.cache
def _stream_to(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
