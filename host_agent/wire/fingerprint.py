"""The 16-bit mark by which workers find out that they do not mean the same collective."""

import json
from functools import cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np

_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=int)


def fingerprint(**agreed: int | str) -> int:
    """Hash the terms on which the workers must agree into 16 bits.

    BLAKE2b, so that no pattern of differences collides by itself, as with a linear code: any two collectives that differ do with
    probability 2^-16.

    `**agreed`: everything that must be the same at all workers, by name. An omitted one differs from every value.
    """
    text = _ENCODER.encode(agreed)
    return int.from_bytes(blake2b(text.encode(), digest_size=2).digest(), "big")


@cache
def describe_dtype(dtype: np.dtype[Any]) -> str:
    """Return a type as text that is the same at all workers: kind, size, unit and fields, without the machine's byte order."""
    return repr(np.lib.format.dtype_to_descr(dtype.newbyteorder("<")))
