"""The decorator under which events are compiled, and structured memory by address.

Compiled functions take one record, the world (`sim.network.engine.records.WORLD`), which holds the addresses of all others: a
record is passed as a pointer, where a tuple of arrays would be passed as a hundred arguments.
"""

# Numba's decorators are untyped.
# mypy: disable-error-code="untyped-decorator,no-any-return"

from typing import Any

from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from netsum_common.compiled import Integer, Record, compiled, compiled_inline
from netsum_common.memory import copy_bytes, load16, load32, pointer
from sim.switch.ports.compiled import run_program

__all__ = [
    "Integer",
    "Record",
    "carray",
    "compiled",
    "compiled_inline",
    "copy_bytes",
    "load16",
    "load32",
    "pointer",
    "prefetch",
    "run_program",
]


@intrinsic
def prefetch(typing_context: Any, address: Any) -> Any:
    """Bring the cache line at an address closer, without waiting for it."""
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, *[ir.IntType(32)] * 3])
        function = builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], kind)
        place = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        read, keep, data = (ir.Constant(ir.IntType(32), value) for value in (0, 3, 1))
        builder.call(function, [place, read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate
