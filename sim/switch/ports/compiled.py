"""The decorator under which the ports' per-packet code is compiled, and the machine operations it needs."""

# Numba's decorators are untyped.
# mypy: disable-error-code="untyped-decorator"

from pathlib import Path
from typing import Any, TypeAlias

import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from common.compiled import borrowed, compiled_inline, compiler

Array: TypeAlias = npt.NDArray[Any]

Integer: TypeAlias = Any
"""An int64 in compiled code, which NumPy's stubs do not take for an int."""

__all__ = [
    "Array",
    "Integer",
    "borrowed",
    "compiled",
    "compiled_inline",
    "load8",
    "load16",
    "load32",
    "load_acquire",
    "run_program",
    "store_release",
]

compiled = compiler([Path(__file__).parent])


@intrinsic
def run_program(typing_context: Any, code: Any, context: Any) -> Any:
    """Call a program's machine code, both given by address; returns its status."""
    del typing_context

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del target, signature
        kind = ir.FunctionType(ir.IntType(32), [arguments[1].type])
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])

    return types.int32(code, context), generate


def _load(bits: int, number: Any) -> Any:
    def typed(typing_context: Any, address: Any) -> Any:
        del typing_context

        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            del target, signature
            kind = ir.IntType(bits)
            return builder.load(builder.inttoptr(arguments[0], kind.as_pointer()), align=1)

        return number(address), generate

    return intrinsic(typed)


load8 = _load(8, types.uint8)
load16 = _load(16, types.uint16)
load32 = _load(32, types.uint32)


@intrinsic
def load_acquire(typing_context: Any, address: Any) -> Any:
    """Load 32 bits that the kernel writes last: its earlier writes are visible afterwards."""
    del typing_context

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del target, signature
        pointer = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        return builder.load_atomic(pointer, "acquire", 4)

    return types.uint32(address), generate


@intrinsic
def store_release(typing_context: Any, address: Any, number: Any) -> Any:
    """Store 32 bits; from then on the kernel may overwrite memory that was read before."""
    del typing_context

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        pointer = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        word = builder.trunc(arguments[1], ir.IntType(32)) if arguments[1].type.width > 32 else arguments[1]
        builder.store_atomic(word, pointer, "release", 4)
        return target.get_dummy_value()

    return types.void(address, number), generate
