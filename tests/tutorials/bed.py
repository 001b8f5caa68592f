"""A testbed that `netsum testbed up` made for an exercise: pings between its hosts, and raw frames in and out of them."""

import contextlib
import ctypes
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from topologies.namespaces import inside_of

DEADLINE_S = 30.0
UP_TIMEOUT_S = 400.0
SETTLE_S = 0.5
"""How long to listen for a packet that must not come, after one that was sent behind it has come."""

ETH_P_ALL = 3
CLONE_NEWNET = 0x40000000
NETSUM = [sys.executable, "-P", "-c", "from netsum.cli import main; main()"]


def netsum(*words: str, folder: Path | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command, as a user in an exercise's folder does."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NETSUM_")}
    done = subprocess.run(
        [*NETSUM, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=UP_TIMEOUT_S,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


class Port:
    """The interface of a host: frames that are sent leave it, frames that arrive at it are read."""

    def __init__(self, namespace_pid: int, interface: str) -> None:
        opened: list[socket.socket] = []

        def opening() -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            with open(f"/proc/{namespace_pid}/ns/net", "rb") as namespace:
                if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                    return
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            raw.bind((interface, 0))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            opened.append(raw)

        # A thread enters the namespace, and ends there.
        thread = threading.Thread(target=opening)
        thread.start()
        thread.join()
        assert opened, f"no socket on {interface}"
        self._socket = opened[0]

    def send(self, frame: object) -> None:
        """Send a frame, as bytes or from scapy."""
        self._socket.send(bytes(frame))  # type: ignore[call-overload]  # scapy's packets turn into bytes

    def frames(self, until: float) -> Iterator[bytes]:
        """Iterate over the frames that arrive until a time of `time.monotonic`."""
        while (left := until - time.monotonic()) > 0:
            if select.select([self._socket], [], [], left)[0]:
                frame, address = self._socket.recvfrom(65536)
                if address[2] != socket.PACKET_OUTGOING:
                    yield frame

    def await_frame(self, wanted: Callable[[bytes], bool]) -> bytes:
        """Return the first frame that is wanted."""
        others = 0
        for frame in self.frames(time.monotonic() + DEADLINE_S):
            if wanted(frame):
                return frame
            others += 1
        raise AssertionError(f"no such frame within {DEADLINE_S:g} s, but {others} others")

    def none_of(self, unwanted: Callable[[bytes], bool]) -> None:
        """See that nothing unwanted is there or arrives within `SETTLE_S`."""
        for frame in self.frames(time.monotonic() + SETTLE_S):
            assert not unwanted(frame), frame.hex()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class Bed:
    """A testbed that is up."""

    def __init__(self, state: dict[str, Any], folder: Path) -> None:
        self.state = state
        self.folder = folder
        self.ports = {
            name: Port(host["namespace_pid"], host["interface"]) for name, host in state["hosts"].items()
        }

    def mac(self, host: str) -> str:
        return str(self.state["hosts"][host]["mac"])

    def ip(self, host: str) -> str:
        return str(self.state["hosts"][host]["ip"])

    def address(self, switch: str) -> str:
        """The gRPC address of a switch's P4Runtime server."""
        return str(self.state["switches"][switch]["p4runtime"])

    def ping(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return which of these pairs of hosts cannot reach each other by ping."""
        started = [
            subprocess.Popen(
                [
                    *inside_of(self.state["hosts"][one]["namespace_pid"]),
                    *("ping", "-c", "3", "-i", "0.3", "-W", "15", self.ip(other)),
                ],
                stdout=subprocess.DEVNULL,
            )
            for one, other in pairs
        ]
        ended = [process.wait(timeout=60) for process in started]
        return [pair for pair, status in zip(pairs, ended, strict=True) if status != 0]

    def ping_all(self) -> list[tuple[str, str]]:
        """Return which hosts cannot reach which others."""
        hosts = list(self.ports)
        return self.ping([(one, other) for one in hosts for other in hosts if one != other])

    def restart(self, switch: str) -> None:
        """End a switch and start it anew."""
        netsum("testbed", "restart", "--testbed", self.state["name"], switch)


@contextlib.contextmanager
def brought_up(folder: Path, topology: str, kind: str, *options: str) -> Iterator[Bed]:
    """Bring a topology up by the command in an exercise's folder, and take it down in the end."""
    name = f"tutorial-{os.getpid()}"
    up = netsum(
        "testbed", "up", topology, "--testbed", name, "--switch", kind, *options, "--json", folder=folder
    )
    bed = Bed(json.loads(up.stdout), folder)
    try:
        yield bed
    finally:
        for port in bed.ports.values():
            port.close()
        netsum("testbed", "down", "--testbed", name)
