"""The decorator under which events are compiled, and structured memory by address.

Compiled functions take one record, the world (`sim.network.engine.records.WORLD`), which holds the addresses of all others: a
record is passed as a pointer, where a tuple of arrays would be passed as a hundred arguments.
"""

# Numba's decorators are untyped.
# mypy: disable-error-code="untyped-decorator,no-any-return"

from pathlib import Path
from typing import Any, Final

from numba import carray, types

import host_agent.compiled
from ground.compiled import compiled_inline, compiler
from host_agent.codecs.memory import pointer
from sim.switch.ports.compiled import load16, load32, run_program

__all__ = [
    "SOURCES",
    "Integer",
    "Record",
    "carray",
    "compiled",
    "compiled_inline",
    "copy_bytes",
    "load16",
    "load32",
    "pointer",
    "run_program",
]

_HOST_AGENT: Final = Path(host_agent.compiled.__file__).parent

Integer = Any
"""An int64 in compiled code, which NumPy's stubs do not take for an int."""

Record = Any
"""One element of a structured array; compiled code reads and writes its fields as attributes."""

SOURCES: Final = [Path(__file__).parent, *(_HOST_AGENT / folder for folder in ("wire", "codecs", "protocol"))]
"""What machine code of the network depends on: the worker core is compiled into it."""

compiled = compiler(SOURCES)
"""The decorator of the network's functions."""

copy_bytes = types.ExternalFunction("memcpy", types.uintp(types.uintp, types.uintp, types.uintp))
"""C's `memcpy(to, from, bytes)`, by address."""
