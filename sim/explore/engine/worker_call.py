"""Calls of the worker core's machine code from the explorer's, by address."""

# Numba's decorators are untyped.
# mypy: disable-error-code="untyped-decorator"

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


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
