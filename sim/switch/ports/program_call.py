"""Calls of a program's machine code from compiled code."""

from typing import Any

from numba import types

from netsum_common.compiled import Integer, compiled_inline, routine_call

_call = routine_call(types.int32(types.int64))


@compiled_inline
def run_program(code: Integer, context: Integer) -> Any:
    """Call a program's machine code, both given by address; returns its status."""
    return _call(code, (context,))
