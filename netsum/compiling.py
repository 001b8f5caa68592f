"""Compiles the workers' machine code before they need it, in a process of its own.

Never in a process that Ctrl-C or SIGTERM unwinds: an exception between two of LLVM's calls leaves objects that are freed twice.
"""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from host_agent.errors import NetsumError
from topologies.children import Child

COMPILE_TIMEOUT_S: Final = 1800.0
"""A minute and a half on an idle machine; many times that on one that is busy with other things."""


class CompileError(NetsumError):
    """The workers' machine code could not be compiled."""


@contextmanager
def compiling(folder: Path) -> Iterator[Child]:
    """Compile missing machine code for as long as the block; see `await_compiled`."""
    compiler = Child(
        "compiling the workers' code",
        [sys.executable, "-P", "-c", "from host_agent.communicator import compile_ahead; compile_ahead()"],
        folder / "compile.log",
    )
    try:
        yield compiler
    finally:
        compiler.stop()


def await_compiled(compiler: Child) -> None:
    """Wait for the end of `compiling`; `CompileError` if it failed, or took longer than `COMPILE_TIMEOUT_S`."""
    compiler.wait_until(time.monotonic() + COMPILE_TIMEOUT_S)
    if not compiler.succeeded:
        raise CompileError(compiler.how_it_ended())


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP end the process at once, without unwinding, for as long as the block.

    For a worker that compiles or loads its machine code, before it holds anything that has to be given back.
    """
    if threading.current_thread() is not threading.main_thread():  # Signals unwind the main thread alone.
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
