"""A caller's arrays as the flat ones that passes work on."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from host_agent.errors import ArrayError, UnsupportedTypeError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Delivery:
    """Conversion of the flat result to the caller's shape, type and array.

    Called when the result is there; returns it in the caller's own array if there is one.
    """

    flat: Array
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    out: Array | None

    def after_rounding(self, wider: Array) -> "Delivery":
        """Deliver from an array of a wider type instead."""
        return replace(self, flat=wider)

    def __call__(self) -> Array:
        """Return the result."""
        shaped = self.flat.reshape(self.shape)
        if self.out is not None and np.may_share_memory(self.out, self.flat):
            return self.out  # the results were written there
        with np.errstate(over="ignore"):  # a sum beyond float16 is infinite, as in any float addition
            if self.out is None:
                return shaped.astype(self.dtype, copy=False)
            np.copyto(self.out, shaped, casting="same_kind")
        return self.out


def flat_source(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return the values as a flat C-contiguous array in native byte order; a copy only where needed."""
    return np.require(values, dtype, ["C", "A"]).reshape(-1)


def check_plain(values: Array, collective: str) -> None:
    """Raise UnsupportedTypeError for an array of Python objects."""
    if values.dtype.hasobject:
        raise UnsupportedTypeError(
            f"{collective}: Python objects cannot be sent, only arrays of plain numbers or bytes"
        )


def check_out(out: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise ArrayError if `out` is no writable array of a shape and type."""
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype or not out.flags.writeable:
        found = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        writable = "a read-only one" if isinstance(out, np.ndarray) and not out.flags.writeable else found
        raise ArrayError(f"out must be a writable {dtype} array of shape {shape}, got {writable}")


def flat_target(
    values: Array, dtype: np.dtype[Any], out: Array | None, may_be_source: bool
) -> tuple[Array, Delivery]:
    """Return a flat array for the result of a collective over `values`, and how to deliver it.

    `dtype` (numpy.dtype): its type in native byte order, and that of the result. `out`: where the caller wants the result;
    used as it is where its memory allows. `may_be_source`: whether the passes can work in place. Raises ArrayError if `out`
    is no writable array of the shape and type of `values`.
    """
    if out is None:
        flat = np.empty(values.size, dtype)
        return flat, Delivery(flat, values.shape, dtype, None)
    check_out(out, values.shape, dtype)
    same_memory = may_be_source and out.__array_interface__["data"] == values.__array_interface__["data"]
    apart = not np.may_share_memory(out, values)
    if (
        out.flags.c_contiguous
        and out.flags.aligned
        and (apart or (same_memory and values.flags.c_contiguous))
    ):
        flat = out.reshape(-1)
    else:
        flat = np.empty(values.size, dtype)
    return flat, Delivery(flat, values.shape, dtype, out)
