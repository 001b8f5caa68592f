"""A 16-bit hash by which workers detect that they called different collectives."""

import json
from functools import cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np

_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=int)


def fingerprint(**agreed: int | str) -> int:
    """Hash the terms on which the workers must agree into 16 bits.

    BLAKE2b and not a linear code, for which some patterns of differences always collide: here any two different collectives
    collide with probability 2^-16.

    `**agreed`: everything that must be the same at all workers, by name. An omitted argument differs from every value.
    """
    text = _ENCODER.encode(agreed)
    return int.from_bytes(blake2b(text.encode(), digest_size=2).digest(), "big")


@cache
def describe_dtype(dtype: np.dtype[Any]) -> str:
    """Return a type as text that is the same at all workers: kind, size, unit and fields, without the machine's byte order."""
    return repr(np.lib.format.dtype_to_descr(dtype.newbyteorder("<")))
