"""What `host_agent.compiled` offers, but nothing is kept in Numba's cache: for changed copies of the worker core."""

from __future__ import annotations

from typing import Any

import numba

from host_agent.compiled import Integer, Record, Records, Words

__all__ = ["Integer", "Record", "Records", "Words", "compiled"]


def compiled(function: Any) -> Any:
    """Compile a function as `host_agent.compiled.compiled` does, without its cache."""
    return numba.njit(
        nogil=True,
        error_model="numpy",
        no_cfunc_wrapper=True,
        no_cpython_wrapper=function.__name__.startswith("_"),
    )(function)
