"""Memory by address, for compiled code."""

# Numba's decorators are untyped.
# mypy: disable-error-code="untyped-decorator"

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from netsum_common.compiled import Integer, compiled_inline

__all__ = [
    "add_release",
    "compare_bytes",
    "copy_bytes",
    "fence",
    "load8",
    "load16",
    "load32",
    "load_acquire",
    "pointer",
    "prefetch",
    "prefetch_to_write",
    "replace_acquire",
    "store_release",
]

copy_bytes = types.ExternalFunction("memcpy", types.uintp(types.uintp, types.uintp, types.uintp))
"""C's `memcpy(to, from, bytes)`."""
compare_bytes = types.ExternalFunction("memcmp", types.int32(types.uintp, types.uintp, types.uintp))
"""C's `memcmp(one, other, bytes)`."""


@intrinsic
def pointer(typing_context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the pointer at an integer address, for `numba.carray`.

    Compiled code that took arrays themselves would be compiled anew for every mix of types.
    """
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


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
    """Load 32 bits that the kernel or another process writes last: its earlier writes are visible afterwards."""
    del typing_context

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del target, signature
        place = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        return builder.load_atomic(place, "acquire", 4)

    return types.uint32(address), generate


@intrinsic
def store_release(typing_context: Any, address: Any, number: Any) -> Any:
    """Store 32 bits; from then on the other side may overwrite memory that was read before, or read memory that was written."""
    del typing_context

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        place = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        word = builder.trunc(arguments[1], ir.IntType(32)) if arguments[1].type.width > 32 else arguments[1]
        builder.store_atomic(word, place, "release", 4)
        return target.get_dummy_value()

    return types.void(address, number), generate


@intrinsic
def replace_acquire(typing_context: Any, address: Any, old: Any, new: Any) -> Any:
    """Store 32 bits where `old` is; returns whether it was there: then others' writes before their last release are visible."""
    del typing_context

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del target, signature
        place = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        words = [builder.trunc(each, ir.IntType(32)) for each in arguments[1:]]
        return builder.extract_value(builder.cmpxchg(place, *words, "acquire", "monotonic"), 1)

    return types.boolean(address, types.int64, types.int64), generate


@intrinsic
def add_release(typing_context: Any, address: Any, number: Any) -> Any:
    """Add to 32 bits that several threads add to, and make earlier writes visible to those who then read them."""
    del typing_context

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        place = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        builder.atomic_rmw("add", place, builder.trunc(arguments[1], ir.IntType(32)), "seq_cst")
        return target.get_dummy_value()

    return types.void(address, types.int64), generate


@intrinsic
def fence(typing_context: Any) -> Any:
    """Make this thread's stores visible before its later loads (sequentially consistent)."""
    del typing_context

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature, arguments
        builder.fence("seq_cst")
        return target.get_dummy_value()

    return types.void(), generate


def _prefetch(for_writing: int) -> Any:
    def typed(typing_context: Any, address: Any) -> Any:
        del typing_context

        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            del signature
            byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            hints = [ir.Constant(word, hint) for hint in (for_writing, 3, 1)]
            builder.call(function, [builder.inttoptr(arguments[0], byte), *hints])
            return target.get_dummy_value()

        return types.void(address), generate

    return intrinsic(typed)


_prefetch_line = _prefetch(0)
_prefetch_line_to_write = _prefetch(1)


@compiled_inline
def prefetch(address: Integer, size: Integer) -> None:
    """Fetch bytes into this processor's cache, to be read soon; the address need not be memory."""
    for at in range(address, address + size, 64):
        _prefetch_line(at)


@compiled_inline
def prefetch_to_write(address: Integer, size: Integer) -> None:
    """Fetch bytes into this processor's cache and out of the others', to be written soon; the address need not be memory."""
    for at in range(address, address + size, 64):
        _prefetch_line_to_write(at)
