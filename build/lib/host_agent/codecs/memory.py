"""Arrays by address, so that one compiled function serves passes over arrays of any type and number.

Compiled code that took the arrays themselves would be compiled anew for every mix of types. The addresses are those
of arrays that `host_agent.protocol.passes.Pass` keeps alive for as long as the core may use them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def pointer(typing_context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the pointer at an int64 address; inside compiled code only, for `numba.carray`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate
