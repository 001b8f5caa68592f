"""The memory of tensors: as arrays, and written to."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

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
    """Copy values into a tensor, in any thread: one of inference mode may be written in that mode only."""
    with torch.inference_mode(target.is_inference()), torch.no_grad():
        target.copy_(source)
