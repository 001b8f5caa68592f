"""The memory of tensors: as arrays, and written to."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from host_agent.errors import ArrayError

_TYPES: Final = {
    torch.bool: "?",
    torch.uint8: "u1",
    torch.int8: "i1",
    torch.int16: "i2",
    torch.int32: "i4",
    torch.int64: "i8",
    torch.float16: "f2",
    torch.float32: "f4",
    torch.float64: "f8",
}


class _View:
    """Holds the tensor for as long as the array exists."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        dtype = np.dtype(_TYPES[tensor.dtype])
        self.__array_interface__ = {
            "version": 3,
            "data": (tensor.data_ptr(), False),
            "typestr": dtype.str,
            "shape": tuple(tensor.shape),
            "strides": tuple(stride * dtype.itemsize for stride in tensor.stride()),
        }


def array_of(tensor: Tensor) -> npt.NDArray[Any]:
    """Return a CPU tensor's memory as an array of its shape and type.

    Not `Tensor.numpy`: that leaves the storage unresizable, and FSDP frees parameters by resizing theirs.
    """
    if tensor.numel() == 0:
        return np.empty(tuple(tensor.shape), _TYPES[tensor.dtype])
    return np.asarray(_View(tensor))


def overwrite(target: Tensor, source: Tensor) -> None:
    """Copy values into a tensor, in any thread: one of inference mode may be written in that mode only.

    Raises ArrayError if elements of the target share memory, as those of an expanded tensor do, and their values differ.
    """
    with torch.inference_mode(target.is_inference()), torch.no_grad():
        if target.is_contiguous() or not _overlaps_itself(target):
            target.copy_(source)
            return
        once = tuple(slice(1) if stride == 0 else slice(None) for stride in target.stride())
        target[once].copy_(source[once])
        if not torch.equal(_bits(target), _bits(source)):
            raise ArrayError(
                f"elements of a result {list(target.shape)} share memory, and their values differ: call clone() before"
            )


def _overlaps_itself(tensor: Tensor) -> bool:
    """Return whether elements may share memory: whether a step of some dimension stays within the reach of the smaller ones."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < reach:
            return True
        reach += stride * (size - 1)
    return False


def _bits(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor's bytes, as NaNs do not equal one another."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    return plain.contiguous().reshape(-1).view(torch.uint8)
