"""Calls of a program's machine code from compiled code."""

# Numba's decorators are untyped.
# mypy: disable-error-code="untyped-decorator"

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def run_program(typing_context: Any, code: Any, context: Any) -> Any:
    """Call a program's machine code, both given by address; returns its status."""
    del typing_context

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del target, signature
        kind = ir.FunctionType(ir.IntType(32), [arguments[1].type])
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])

    return types.int32(code, context), generate
