"""Waiting for children that start: until they announce it by a line on a descriptor, or until their socket answers."""

import os
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path

from topologies.children import Child, TestbedError

START_TIMEOUT_S = 900.0
"""How long a running child may take: a first start after an installation compiles for a minute, and for ten on a
machine that is busy with other things. A child that ends is noticed at once."""
_LOOK_S = 0.05


def start_announced(start: Callable[[int], Child], timeout_s: float) -> tuple[Child, str]:
    """Start a child and wait for its line.

    `start`: starts it; is given the descriptor that the child must inherit. `timeout_s`: how long it may take. Raises
    TestbedError if it ended without a line, or took too long; it does not run then.
    """
    read_end, write_end = os.pipe()
    with open(read_end, "rb", buffering=0) as ready:
        try:
            child = start(write_end)
        finally:
            os.close(write_end)
        try:
            line = read_line(ready.fileno(), time.monotonic() + timeout_s)
        except BaseException:
            child.stop()
            raise
    if line is None:
        child.stop()
        raise TestbedError(f"{child.name} was not ready within {timeout_s:g} s, see {child.log}")
    if not line.endswith(b"\n"):
        child.stop()
        raise TestbedError(child.how_it_ended())
    return child, line.decode(errors="replace")


def await_socket(child: Child, path: Path, timeout_s: float) -> None:
    """Wait until a child answers at a unix socket; raises TestbedError if it ends before, or takes too long."""
    deadline = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        while client.connect_ex(os.fspath(path)) != 0:
            if not child.running:
                raise TestbedError(child.how_it_ended())
            if time.monotonic() > deadline:
                child.stop()
                raise TestbedError(f"{child.name} was not ready within {timeout_s:g} s, see {child.log}")
            time.sleep(_LOOK_S)


def read_line(descriptor: int, deadline: float, most: int = 1 << 20) -> bytes | None:
    """Read up to the end of a line, `most` bytes, or the end of the stream; None if that takes too long."""
    line = b""
    while not line.endswith(b"\n") and len(line) < most:
        readable = wait([descriptor], max(0.0, deadline - time.monotonic()))
        if not readable:
            return None
        more = os.read(descriptor, 65536)
        if not more:
            break
        line += more
    return line
