"""A hash of 28 bits by which workers detect that they called different collectives."""

import json
from functools import cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from host_agent.wire.constants import HEADER_FIELDS

FINGERPRINT_BITS: Final = dict(HEADER_FIELDS)["fingerprint"]
_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=int)


def fingerprint(**agreed: int | str) -> int:
    """Hash the terms on which the workers must agree into 28 bits.

    BLAKE2b and not a linear code, for which some patterns of differences always collide: here any two different collectives
    collide with probability 2^-28.

    `**agreed`: everything that must be the same at all workers, by name. An omitted argument differs from every value.
    """
    text = _ENCODER.encode(agreed)
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big") >> 32 - FINGERPRINT_BITS


@cache
def describe_dtype(dtype: np.dtype[Any]) -> str:
    """Return a type as text that is the same at all workers: kind, size, unit and fields, without the machine's byte order."""
    return repr(np.lib.format.dtype_to_descr(dtype.newbyteorder("<")))
