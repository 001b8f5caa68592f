"""The decorator under which everything per-packet is compiled.

Numba's own on-disk cache looks only at the file that holds a function. Machine code here is inlined across modules
and has the protocol's constants baked in, so a change of `wire/constants.py` would leave stale code running that
speaks yesterday's protocol. The cache of these functions is therefore stamped with all sources that hold compiled code
or its constants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.core import caching, cgutils
from numba.extending import intrinsic

_PACKAGE = Path(__file__).parent
_COMPILED_SOURCES = ("wire/constants.py", "wire/header.py", "quantize", "packetize", "protocol", "transport")

Words = npt.NDArray[np.uint32]
"""Part of a datagram: 32-bit words in network byte order."""

Integer = Any
"""An int64 in compiled code, which NumPy's stubs do not take for an int."""

Record = Any
"""One element of a structured array; compiled code reads and writes its fields as attributes."""

Records = Any
"""A structured array of such; NumPy's stubs know no attributes of elements."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiler(sources: Sequence[Path]) -> Callable[[_Function], _Function]:
    """Make a decorator for functions whose machine code depends on `sources`: files, or folders with all files in them.

    It compiles a function with Numba on its first call: no GIL, no Python objects, cached on disk. Division follows
    NumPy (no exception): nothing that is compiled raises.
    """

    @cache
    def source_stamp() -> str:
        digest = hashlib.sha256(Path(__file__).read_bytes())
        for source in sources:
            for path in sorted(source.glob("*.py")) if source.is_dir() else [source]:
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()

    class Stamped:
        """Overrides what a Numba cache locator takes for the freshness of the source."""

        def get_source_stamp(self) -> str:
            return source_stamp()

    # Numba is not typed, so its classes are Any to the type checker.
    class ChosenFolder(Stamped, caching.UserProvidedCacheLocator):  # type: ignore[misc]
        """The folder of NUMBA_CACHE_DIR."""

    class BesideSource(Stamped, caching.InTreeCacheLocator):  # type: ignore[misc]
        """`__pycache__` beside the source."""

    class UserWide(Stamped, caching.UserWideCacheLocator):  # type: ignore[misc]
        """The user's cache folder, where the installation is read-only."""

    class StampedCacheImpl(caching.CompileResultCacheImpl):  # type: ignore[misc]
        _locator_classes = (ChosenFolder, BesideSource, UserWide)

    class StampedCache(caching.FunctionCache):  # type: ignore[misc]
        _impl_class = StampedCacheImpl

    def decorate(function: _Function) -> _Function:
        dispatcher = numba.njit(
            nogil=True,
            error_model="numpy",
            # Wrappers for callers that do not exist take a tenth of the time to compile.
            no_cfunc_wrapper=True,
            no_cpython_wrapper=function.__name__.startswith("_"),
        )(function)
        dispatcher._cache = StampedCache(function)
        return dispatcher  # type: ignore[no-any-return]

    return decorate


compiled = compiler([_PACKAGE / source for source in _COMPILED_SOURCES])
"""The decorator of the host agent's own functions."""


def compiled_inline(function: _Function) -> _Function:
    """Compile a function into each of its callers: for those of a line or two, which take longer alone."""
    return numba.njit(nogil=True, error_model="numpy", inline="always")(function)  # type: ignore[no-any-return]


@intrinsic
def borrowed(typing_context: Any, value: Any) -> Any:
    """Return an array, or a named tuple with arrays, without its part in counting references.

    Numba counts a reference, atomically, for every array that is passed to a function or cut out of another: a third of what a
    packet cost in compiled code. For code whose caller keeps the arrays.
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
