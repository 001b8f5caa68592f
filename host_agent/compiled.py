"""How the host agent's per-packet code is compiled, and the types that its annotations use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from common.compiled import Integer, Record, Records, Routine, compiler

__all__ = ["Integer", "Record", "Records", "Words", "compiled", "routine"]

_PACKAGE = Path(__file__).parent
_COMPILED_SOURCES = ("wire/constants.py", "wire/header.py", "codecs", "protocol", "transport")
_SOURCES = tuple(_PACKAGE / source for source in _COMPILED_SOURCES)

compiled = compiler(_SOURCES)
"""The decorator of the host agent's functions."""


def routine(function: Callable[..., Any], signature: Any) -> Routine:
    """Return a function of the host agent as a `Routine`, which compiled code calls by its address."""
    return Routine(function, signature, _SOURCES)


Words = npt.NDArray[np.uint32]
"""Part of a datagram: 32-bit words in network byte order."""
