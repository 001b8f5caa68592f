"""The decorator under which the explorer is compiled, and calls of machine code by address."""

# Numba's decorators are untyped.
# mypy: disable-error-code="untyped-decorator,no-any-return"

from typing import Any

from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from netsum_common.compiled import Integer, Record, compiled, compiled_inline
from netsum_common.memory import compare_bytes, copy_bytes, pointer
from sim.switch.ports.compiled import run_program

__all__ = [
    "Integer",
    "Record",
    "call_worker",
    "carray",
    "compare_bytes",
    "compiled",
    "compiled_inline",
    "copy_bytes",
    "pointer",
    "run_program",
]


@intrinsic
def call_worker(typing_context: Any, code: Any, arguments: Any) -> Any:
    """Call a function of `sim.explore.worker_code` by address; `arguments` is a tuple of int64. Returns its int64."""
    del typing_context
    assert isinstance(arguments, types.UniTuple)

    def generate(target: Any, builder: Any, signature: Any, given: Any) -> Any:
        del target, signature
        i64, i8p = ir.IntType(64), ir.IntType(8).as_pointer()
        count = given[1].type.count
        # Numba's own convention: where the result goes, where an exception goes, then the arguments.
        kind = ir.FunctionType(ir.IntType(32), [i64.as_pointer(), i8p.as_pointer(), *[i64] * count])
        result = cgutils.alloca_once(builder, i64)
        fault = cgutils.alloca_once(builder, i8p)
        values = [builder.extract_value(given[1], at) for at in range(count)]
        builder.call(builder.inttoptr(given[0], kind.as_pointer()), [result, fault, *values])
        return builder.load(result)

    return types.int64(code, arguments), generate
