"""Ports for servers that tests start."""

import contextlib
import random
import socket


def free_port() -> int:
    """Return a TCP port outside of those that the system hands out, so that nothing else takes it in the meantime."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port
