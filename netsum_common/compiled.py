"""Decorators for functions that are compiled to machine code and cached on disk.

Numba's own on-disk cache looks only at the file that holds a function. Machine code here is inlined across modules and holds
the protocol's constants, so after a change of `wire/constants.py` Numba would run stale code. The cache of a function is
therefore stamped with all sources that its module imports, directly or through others.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from netsum_common.machine_code import StampedCache

_Function = TypeVar("_Function", bound=Callable[..., Any])

Array: TypeAlias = npt.NDArray[Any]

Integer: TypeAlias = Any  # An int64 in compiled code, which NumPy's stubs do not take for an int.

Record: TypeAlias = Any
"""One element of a structured array; compiled code reads and writes its fields as attributes."""

Words: TypeAlias = npt.NDArray[np.uint32]  # Part of a datagram: 32-bit words in network byte order.

Records: TypeAlias = Any  # A structured array of such elements, whose attributes NumPy's stubs do not know.


def compiled(function: _Function) -> _Function:
    """Compile a function with Numba on its first call: no GIL, no Python objects, cached on disk.

    Division follows NumPy (no exception): nothing that is compiled raises.
    """
    dispatcher = numba.njit(
        nogil=True,
        error_model="numpy",
        # Wrappers that nothing calls would take a tenth of the time to compile.
        no_cfunc_wrapper=True,
        no_cpython_wrapper=function.__name__.startswith("_"),
    )(function)
    dispatcher._cache = StampedCache(function)
    return dispatcher  # type: ignore[no-any-return]


class Routine:
    """A compiled function that compiled code calls by its address; see `routine_call`.

    `function`: in the part of Python that Numba compiles. `signature`: the types of its arguments and of its result.
    """

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self._function = function
        self._signature = signature

    @cached_property
    def address(self) -> int:
        """Address of its machine code; compiled, or loaded from the cache on disk, when first asked for."""
        callback: Any = CFunc(
            self._function,
            (self._signature.args, self._signature.return_type),
            {},
            {"nogil": True, "error_model": "numpy"},
        )
        callback._cache = StampedCache(self._function)
        callback.compile()
        return int(callback.address)


def routine_call(signature: Any) -> Any:
    """Return a function for compiled code: given a routine's address and its arguments, calls it.

    One such call, a few nanoseconds, is cheaper than a block's lanes by two orders of magnitude.
    """

    @intrinsic
    def call(typing_context: Any, address: Any, arguments: Any) -> Any:
        del typing_context

        def generate(context: Any, builder: Any, kind: Any, given: Any) -> Any:
            values = [
                context.cast(builder, builder.extract_value(given[1], at), have, want)
                for at, (have, want) in enumerate(zip(kind.args[1], signature.args, strict=True))
            ]
            prototype = ir.FunctionType(
                context.get_value_type(signature.return_type)
                if signature.return_type is not types.void
                else ir.VoidType(),
                [context.get_value_type(each) for each in signature.args],
            )
            returned = builder.call(builder.inttoptr(given[0], prototype.as_pointer()), values)
            return context.get_dummy_value() if signature.return_type is types.void else returned

        return signature.return_type(types.int64, arguments), generate

    return call


def compiled_inline(function: _Function) -> _Function:
    """Compile a function into each of its callers: for those of a line or two, which take longer alone."""
    return numba.njit(nogil=True, error_model="numpy", inline="always")(function)  # type: ignore[no-any-return]


@intrinsic
def borrowed(typing_context: Any, value: Any) -> Any:
    """Return an array, or a named tuple with arrays, without its part in counting references.

    Numba counts a reference, atomically, for every array that is passed to a function or cut out of another: a third of the
    cost of a packet in compiled code. For code whose caller keeps the arrays.
    """
    del typing_context

    def without(context: Any, builder: Any, kind: Any, given: Any) -> Any:
        if isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, given)
            array.meminfo = cgutils.get_null_value(array.meminfo.type)
            array.parent = cgutils.get_null_value(array.parent.type)
            return array._getvalue()
        if isinstance(kind, types.BaseTuple):
            parts = [
                without(context, builder, each, builder.extract_value(given, at))
                for at, each in enumerate(kind)
            ]
            return context.make_tuple(builder, kind, parts)
        return given

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return without(context, builder, signature.args[0], arguments[0])

    return value(value), generate
