"""Reductions of tensors as the slots take them: an array, an operation, and how the result is finished."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from host_agent.collectives import Op
from host_agent.errors import SumOverflowError, UnsupportedTypeError
from host_agent.torch.calls import nothing
from host_agent.torch.tensor_memory import array_of, overwrite

Array = npt.NDArray[Any]
Kind = str  # SUM, AVG, MIN, MAX, BOR, BAND, PRODUCT, BXOR or PREMUL_SUM.

_KINDS: Final = ("SUM", "AVG", "MIN", "MAX", "BOR", "BAND", "PRODUCT", "BXOR", "PREMUL_SUM")
ThroughGloo = Literal["product", "bxor"]  # Operations that the slots do not have.

_FLOAT_OPS: Final[dict[str, Op | ThroughGloo]] = {
    "SUM": "sum", "AVG": "mean", "MIN": "min", "MAX": "max", "PRODUCT": "product"
}  # fmt: skip
_INTEGER_OPS: Final[dict[str, Op | ThroughGloo]] = {
    "SUM": "sum", "AVG": "sum", "MIN": "min", "MAX": "max", "PRODUCT": "product", "BXOR": "bxor"
}  # fmt: skip
_BOOL_OPS: Final[dict[str, Op | ThroughGloo]] = {
    "SUM": "max", "MAX": "max", "BOR": "max", "MIN": "min", "BAND": "min", "PRODUCT": "min", "BXOR": "bxor"
}  # fmt: skip
_FLOATS: Final = (torch.float32, torch.float64, torch.float16)
_WIDENED: Final = (
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
)
_NARROW: Final = (torch.int8, torch.uint8, torch.int16, torch.uint16)
_LANE_WIDE: Final = (torch.int32, torch.int64)


@dataclass(frozen=True)
class Reduction:
    """A reduction as the slots, or Gloo, do it."""

    array: Array  # The contribution.
    op: Op | ThroughGloo  # How it is combined.
    out: Array  # Receives the result; may be `array`.
    finish: Callable[[], None]  # Brings the result into the tensor.
    rounds_to: str = ""  # The tensor's type, where the array's is wider than a float of the tensor.


def kind_of(op: Any) -> Kind:
    """Return the name of a `torch.distributed.ReduceOp`."""
    for name in _KINDS:
        if op == getattr(dist.ReduceOp, name):
            return name
    raise UnsupportedTypeError(f"expected a torch.distributed.ReduceOp, got {op!r}")


def on_slots(dtype: torch.dtype, kind: Kind) -> bool:
    """Whether the slots can do it; all that they cannot goes through Gloo."""
    return kind != "BXOR" and (kind != "PRODUCT" or dtype == torch.bool)


def reduction(source: Tensor, target: Tensor, kind: Kind, ranks: int, factor: Any = None) -> Reduction:
    """Plan the reduction of a CPU tensor.

    AVG of integers divides the exact sum and drops the fraction, as NCCL does.

    `source`, `target`: contiguous, of one shape and type; may be the same tensor. Raises UnsupportedTypeError if the operation
    is not defined for the type.
    """
    in_place, source = target is source, source.detach()
    target = source if in_place else target.detach()
    if kind == "PREMUL_SUM":
        scaled = source * factor
        if scaled.dtype != source.dtype:
            raise UnsupportedTypeError(f"PREMUL_SUM: {source.dtype} times the factor is {scaled.dtype}")
        source, kind = scaled, "SUM"
    if source.is_complex() and kind in ("SUM", "AVG"):
        source, target = torch.view_as_real(source), torch.view_as_real(target)
    dtype = source.dtype
    if dtype == torch.bool and kind in _BOOL_OPS:
        return _converted(source, target, torch.int32, _BOOL_OPS[kind])
    if kind in ("BOR", "BAND") and dtype in _LANE_WIDE + _NARROW:
        return _bitwise(source, target, invert=kind == "BAND")
    if kind in _FLOAT_OPS:
        if dtype in _FLOATS:
            array = array_of(source)
            return Reduction(
                array, _FLOAT_OPS[kind], array if target is source else array_of(target), nothing
            )
        if dtype in _WIDENED:
            wider = _converted(source, target, torch.float32, _FLOAT_OPS[kind])
            return replace(wider, rounds_to=str(dtype).removeprefix("torch."))
    if kind in _INTEGER_OPS:
        divisor = ranks if kind == "AVG" else 1
        if dtype in _LANE_WIDE:
            divide = nothing if divisor == 1 else lambda: overwrite(target, _divided(target, divisor))
            return Reduction(array_of(source), _INTEGER_OPS[kind], array_of(target), divide)
        if dtype in _NARROW:
            return _converted(source, target, torch.int32, _INTEGER_OPS[kind], divisor)
    raise UnsupportedTypeError(f"{kind} is not defined for {dtype}")


def bytes_of(tensor: Tensor) -> Array:
    """Return the bytes of a contiguous tensor's memory as a flat array."""
    return array_of(tensor.detach().view(-1).view(torch.uint8))


def check_fit(sums: Tensor, dtype: torch.dtype) -> None:
    """Raise SumOverflowError if there are sums that do not fit an integer type."""
    limits = torch.iinfo(dtype)
    beyond = int(((sums < limits.min) | (sums > limits.max)).sum())
    if beyond:
        raise SumOverflowError(
            f"{beyond} sums do not fit {dtype}. Convert to a wider type before the call.", beyond
        )


def _divided(sums: Tensor, divisor: int) -> Tensor:
    return torch.div(sums, divisor, rounding_mode="trunc")


def _converted(
    source: Tensor, target: Tensor, wider: torch.dtype, op: Op | ThroughGloo, divisor: int = 1
) -> Reduction:
    """Reduce in a type that holds all values of the tensor's; divide, round or check once at the end."""
    working = source.to(wider)
    array = array_of(working)

    def finish() -> None:
        if divisor != 1:
            overwrite(working, _divided(working, divisor))
        if target.dtype in _NARROW and op == "sum":
            check_fit(working, target.dtype)
        overwrite(target, working)

    return Reduction(array, op, array, finish)


def _bitwise(source: Tensor, target: Tensor, invert: bool) -> Reduction:
    """Or the bytes, four to a lane; AND is the complement of OR of the complements."""
    packed = bytes_of(source)
    padded = np.zeros(-(-packed.size // 4) * 4, np.uint8)
    padded[: packed.size] = ~packed if invert else packed
    words = padded.view(np.int32)

    def finish() -> None:
        result = padded[: packed.size]
        if invert:
            np.invert(result, out=result)
        overwrite(target.view(-1).view(torch.uint8), torch.from_numpy(result))

    return Reduction(words, "bor", words, finish)
