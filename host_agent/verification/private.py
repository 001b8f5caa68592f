"""Requests whose lanes can be masked, and how they must be made for it."""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from host_agent.collectives import (
    AllGatherRequest,
    AllReduceRequest,
    BarrierRequest,
    BroadcastRequest,
    ReduceScatterRequest,
)
from host_agent.collectives.exact import ExactRequest
from host_agent.errors import MisuseError, UnsupportedTypeError

MOST_INT32_WORKERS: Final = 128
"""The sum of the low halves of more int32 does not fit a masked lane."""
_FLOATS: Final = ("float16", "float32", "float64")


def private_request(request: Any, world_size: int) -> Any:
    """Return a request that leaves room in its lanes for masks.

    Raises MisuseError or UnsupportedTypeError for one whose contributions cannot be masked.
    """
    reserve = 1 + (world_size - 1).bit_length()
    if isinstance(request, ExactRequest):
        return replace(request, reserve=reserve)
    if isinstance(request, BroadcastRequest | AllGatherRequest | BarrierRequest):
        return request
    if not isinstance(request, AllReduceRequest | ReduceScatterRequest):
        raise MisuseError(
            f"private=True cannot mask a {type(request).__name__.removesuffix('Request')}: it takes reductions of dense arrays, "
            "broadcasts, all-gathers and barriers"
        )
    if request.op not in ("sum", "mean"):
        raise MisuseError(f"private=True cannot mask op {request.op!r}: masks cancel in sums and means alone")
    if getattr(request, "bits", "full") != "full" or request.sparse == "always":
        raise MisuseError("private=True takes dense arrays of whole lanes: leave out bits and sparse")
    dtype = np.asarray(request.array).dtype.newbyteorder("=")
    whole = isinstance(request, AllReduceRequest) and dtype == np.int32
    if dtype.name not in _FLOATS and not whole:
        raise UnsupportedTypeError(
            f"private=True takes sums of {', '.join(_FLOATS)}, and all-reduces of int32, not of {dtype}"
        )
    if whole and world_size > MOST_INT32_WORKERS:
        raise MisuseError(
            f"private=True takes sums of int32 over at most {MOST_INT32_WORKERS} workers: sum floats exactly"
        )
    dense = replace(request, sparse="never")
    return replace(dense, reserve=reserve) if isinstance(dense, AllReduceRequest) and whole else dense
