"""A switch that the ranks of a job on this machine share, a leaf of the job's tree: one of them starts it, all keep it.

The process listens at an abstract Unix socket, which belongs to the machine's network namespace. It ends when the last rank's
connection has ended, which a killed rank's does too; a rank whose connection ends before starts it anew.
"""

import contextlib
import hashlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from importlib.util import find_spec
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final

from host_agent.environment import is_on
from netsum_common.channel import TlsFiles
from netsum_common.programs import command_of, is_registered
from netsum_common.rings import is_trusted

LEAF_VARIABLE: Final = "NETSUM_HOST_LEAF"
_MOST_STARTS: Final = 3  # In succession, of switches that end before they are ready.
READY: Final = b"\1"  # The byte that a leaf sends to each rank once it has registered.
_BACKOFF_S: Final = 0.2
_BACKLOG: Final = 128
_CONNECT_S: Final = 5.0  # How long a connection may take; the kernel makes it unless the backlog is full.


def wants_leaf() -> bool:
    """Whether ranks here are to share a switch: NETSUM_HOST_LEAF says so, or nothing and it is installed."""
    return is_on(LEAF_VARIABLE, default=True) and is_registered("leaf") and find_spec("llvmlite") is not None


def machine() -> str:
    """Identify what processes must have in common to share a switch: the boot, mount and network namespace, and user."""
    parts = [Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"), str(os.geteuid())]
    parts += [os.readlink(f"/proc/self/ns/{kind}") for kind in ("mnt", "net")]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:32]


class LeafKeeper:
    """Keeps the leaf of a worker's machine running for as long as the worker takes part.

    `controller`: with which the leaf registers: "HOST:PORT" or "unix:PATH". `tls`: the worker's files, which the leaf takes
    too. `on_failure`: called with the leaf's name and a reason when it cannot be started.
    """

    def __init__(self, controller: str, tls: TlsFiles, on_failure: Callable[[str, str], None]) -> None:
        self._controller = controller
        self._tls = tls
        self._on_failure = on_failure
        self._thread: threading.Thread | None = None
        self._connection: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._closing, self._closed = socket.socketpair()

    def keep(self, name: str, ip: str) -> None:
        """Start a leaf, unless one runs, and keep it from now on; returns at once."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._run, args=(name, ip), name="netsum-leaf", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Let the leaf end, if no other rank keeps it."""
        with contextlib.suppress(OSError):
            self._closing.send(b"\0")
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2 * _CONNECT_S)
        self._closing.close()
        self._closed.close()

    def close_in_child(self) -> None:
        """Close the parent's descriptors in a forked child."""
        for held in (self._connection, self._listener, self._closing, self._closed):
            if held is not None:
                held.close()

    def _run(self, name: str, ip: str) -> None:
        starts, reason = 0, ""
        digest = hashlib.sha256(self._controller.encode()).hexdigest()[:8]
        address = f"\0netsum-{name}/{digest}"
        while starts < _MOST_STARTS:
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as self._connection:
                    starts += self._connected(self._connection, address, name, ip)
                    while self._closed not in wait([self._connection, self._closed]):
                        if self._connection.recv(len(READY)) != READY:
                            break
                        starts = 0
                    else:
                        return
                reason = "it ended as soon as it was started; NETSUM_HOST_LEAF=0 goes without it"
            except OSError as error:
                starts, reason = starts + 1, str(error)
            if wait([self._closed], _BACKOFF_S):
                return
        self._on_failure(name, f"the switch on host {ip} cannot be started: {reason}")

    def _connected(self, connection: socket.socket, address: str, name: str, ip: str) -> bool:
        """Connect to the leaf, and start it if none listens; return whether it was started here.

        Raises OSError: neither is possible.
        """
        started = False
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as self._listener:
            try:
                self._listener.bind(address)
            except OSError:
                pass  # Another rank was first; or another user's process, which the connection shows.
            else:
                self._listener.listen(_BACKLOG)
                self._start(self._listener, name, ip)
                started = True
        connection.settimeout(_CONNECT_S)
        connection.connect(address)
        if not is_trusted(connection):
            raise PermissionError("another user's process has taken its socket")
        return started

    def _start(self, listener: socket.socket, name: str, ip: str) -> None:
        command = [*command_of("leaf"), "--controller", self._controller, "--name", name]
        # A session of its own: what ends one rank's process group must not end the switch of the others.
        started = subprocess.Popen(
            [*command, "--ip", ip, "--listener", str(listener.fileno())],
            env={**os.environ, **self._tls.to_environment()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(listener.fileno(),),
        )
        threading.Thread(target=started.wait, name="netsum-leaf-reaper", daemon=True).start()
