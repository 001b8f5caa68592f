"""Waiting until a child process is ready: until it writes a line to a descriptor, or accepts connections at a socket."""

import os
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path

from topologies.children import Child, TestbedError

START_TIMEOUT_S = 900.0
"""Time for a child to become ready. The first start after an installation compiles for a minute, or for ten on a busy
machine. A child that ends is noticed at once."""
_LOOK_S = 0.05


def start_announced(start: Callable[[int], Child], timeout_s: float) -> tuple[Child, str]:
    """Start a child; return it and the line by which it announces that it is ready.

    `start`: called with the descriptor that the child must inherit. `timeout_s`: time for the line to arrive. Raises
    TestbedError if the child ends without a line, or is too late; a late child is stopped.
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
    """Wait until a child accepts connections at a unix socket; raise TestbedError if it ends first, or is too late."""
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
    """Read up to the end of a line, `most` bytes, or the end of the stream; return None once `deadline` has passed."""
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
