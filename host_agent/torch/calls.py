"""Arguments that torch passes to a process group: tensors, their pieces, options, and the name of a call for messages."""

from typing import Any, Final

import torch.distributed as dist
from torch import Tensor

from host_agent.errors import ArrayError

_SHOWN: Final = 3  # Tensors of a call that are named in messages.


def listed(tensors: Any) -> list[Tensor]:
    """Return the tensors of a call that takes one or several."""
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def operation_of(opts: Any) -> Any:
    """Return the operation of options, of a bare operation, or the default."""
    if opts is None:
        return dist.ReduceOp(dist.ReduceOp.SUM)
    return getattr(opts, "reduceOp", opts)


def with_values(opts: Any, **values: Any) -> Any:
    """Set attributes of an options object, and return it."""
    for name, value in values.items():
        setattr(opts, name, value)
    return opts


def nothing() -> None:
    """Do nothing: the callback of a call whose result is where it belongs."""


def cut(whole: Tensor, piece: Tensor, count: int) -> list[Tensor]:
    """Cut a tensor into as many flat pieces as there are ranks.

    `whole`: contiguous, of `count` times as many elements as `piece`. Raises ArrayError if the tensors do not fit together.
    """
    if whole.numel() != piece.numel() * count or whole.dtype != piece.dtype or not whole.is_contiguous():
        raise ArrayError(
            f"expected a contiguous {piece.dtype} tensor of {count} times {piece.numel()} elements, "
            f"got {whole.dtype} {list(whole.shape)}"
        )
    return list(whole.detach().view(count, piece.numel()).unbind())


def label_of(what: str, kind: str, *tensors: Tensor) -> str:
    """Name a call for messages: "all_reduce (SUM) of torch.float32 [3, 4]"."""
    shown = [f"{tensor.dtype} {list(tensor.shape)}" for tensor in tensors[:_SHOWN]]
    more = f" and {len(tensors) - _SHOWN} more" if len(tensors) > _SHOWN else ""
    operation = f" ({kind})" if kind else ""
    return f"{what}{operation} of {', '.join(shown)}{more}"
