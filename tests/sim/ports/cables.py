"""Virtual cables in a network namespace that this thread has entered."""

import contextlib
import ctypes
import os
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Self

from sim.switch.ports import InterfacePorts
from tests import named_namespaces
from topologies.namespaces import run
from topologies.runs import new_run_id

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
ETH_P_ALL = 3
Frame = tuple[int, bytes]
"""A port, and the frame."""
DEADLINE_S = 400


class Cables:
    """A namespace with cables sN – hN; the switch's and the hosts' ends are in the same one."""

    def __init__(self, count: int) -> None:
        self.namespace = named_namespaces.namespace_name(new_run_id(), "cables")
        self.count = count

    def __enter__(self) -> Self:
        named_namespaces.delete_leftovers()
        named_namespaces.add_namespace(self.namespace)
        self.before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        inside = os.open(f"/run/netns/{self.namespace}", os.O_RDONLY)
        _enter(inside)
        os.close(inside)
        for number in range(1, self.count + 1):
            self.add(number)
        return self

    def __exit__(self, *error: object) -> None:
        _enter(self.before)
        os.close(self.before)
        named_namespaces.delete_namespaces([self.namespace])

    def add(self, number: int) -> None:
        named_namespaces.add_cable(self.namespace, f"h{number}", self.namespace, f"s{number}")

    def ip(self, *words: str) -> None:
        run("ip", *words)

    def up(self, interface: str) -> None:
        """Set an end of a cable up, and wait until the other end knows."""
        self.ip("link", "set", interface, "up")
        named_namespaces.await_cable(self.namespace, interface, self.namespace, other_end(interface))


def other_end(interface: str) -> str:
    return ("s" if interface[0] == "h" else "h") + interface[1:]


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def send_all(end: socket.socket, frames: Iterable[bytes]) -> None:
    """Send many frames, at a pace that a busy processor keeps up with: it holds 1,000, and drops the rest."""
    for number, frame in enumerate(frames, 1):
        end.send(frame)
        if number % 100 == 0:
            time.sleep(0.001)


@contextlib.contextmanager
def end_of(interface: str) -> Iterator[socket.socket]:
    """The host's end of a cable: a socket that sends frames, and receives those that come."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as opened:
        opened.setsockopt(263, 23, 1)  # SOL_PACKET, PACKET_IGNORE_OUTGOING
        opened.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
        opened.bind((interface, ETH_P_ALL))
        opened.settimeout(DEADLINE_S)
        yield opened


def frames_of(ports: InterfacePorts, expected: int) -> list[Frame]:
    """Receive until there are as many frames as expected; returns (port, frame) pairs."""
    found: list[Frame] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < expected and time.monotonic() < deadline:
        count = ports.receive(100)
        found += [
            (int(ports.record.ports[i]), ports.record.frames[i, : ports.record.lengths[i]].tobytes())
            for i in range(count)
        ]
    return found
