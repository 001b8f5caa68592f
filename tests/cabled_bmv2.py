"""BMv2 in a network namespace, with a packet socket of this process at the other end of every port's cable. Linux, root."""

import ctypes
import os
import select
import shutil
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from netsum_common.targets import PROCESS_TARGETS
from netsum_common.targets.bmv2 import PROGRAM
from tests import named_namespaces
from topologies.announcing import await_socket
from topologies.children import Child, TestbedError
from topologies.namespaces import missing_for_namespaces
from topologies.runs import delete_leftover_folders, new_run_id, socket_folder

DEVICE_ID = 1
START_DEADLINE_S = 400.0
_ETH_P_ALL = 3
_CLONE_NEWNET = 0x40000000
_SO_RCVBUFFORCE = 33
_SOL_PACKET = 263
_PACKET_AUXDATA = 8
_AUXDATA = struct.Struct("=IIIHHHH")
_TP_STATUS_VLAN_VALID = 0x10
_RECEIVE_BUFFER_BYTES = 1 << 23


def missing_for_cabled_bmv2() -> str | None:
    """Return why this process cannot start one, or None."""
    return PROCESS_TARGETS["bmv2"].lacking() or missing_for_namespaces()


class CabledBmv2:
    """A running `simple_switch_grpc` without a program. Raises TestbedError if it does not start."""

    def __init__(self, ports: int, cpu_port: int) -> None:
        delete_leftover_folders()
        named_namespaces.delete_leftovers()
        run_id = new_run_id()
        self._namespaces = [named_namespaces.namespace_name(run_id, role) for role in ("ends", "switch")]
        self._folder = socket_folder(run_id)
        self._sockets: list[socket.socket] = []
        self._switch: Child | None = None
        self.address = f"unix:{self._folder / 'p4runtime'}"
        try:
            self._start(ports, cpu_port)
        except BaseException:
            self.close()
            raise

    def _start(self, ports: int, cpu_port: int) -> None:
        ends, switch = self._namespaces
        for namespace in self._namespaces:
            named_namespaces.add_namespace(namespace)
        for port in range(ports):
            named_namespaces.add_cable(ends, f"end{port}", switch, f"port{port}")
        with _network_namespace(ends):
            self._sockets = [_packet_socket(f"end{port}") for port in range(ports)]
        self._switch = Child(
            "BMv2",
            [
                *(*named_namespaces.inside(switch), PROGRAM, "--no-p4", "--device-id", str(DEVICE_ID)),
                *("--notifications-addr", f"ipc://{self._folder}/notifications"),
                *(word for port in range(ports) for word in ("-i", f"{port}@port{port}")),
                *("--", "--grpc-server-addr", self.address, "--cpu-port", str(cpu_port)),
            ],
            self._folder / "switch.log",
        )
        await_socket(self._switch, self._folder / "p4runtime", START_DEADLINE_S)

    def close(self) -> None:
        """End it, and delete its cables, namespaces and files."""
        for end in self._sockets:
            end.close()
        if self._switch is not None:
            self._switch.stop()
        named_namespaces.delete_namespaces(self._namespaces)
        shutil.rmtree(self._folder, ignore_errors=True)

    def send(self, port: int, frame: bytes) -> None:
        """Put a frame into a port."""
        self._sockets[port].send(frame)

    def receive(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """Wait for frames that leave; returns (port, frame) of all that are there, none if nothing leaves in time."""
        found = []
        for end in select.select(self._sockets, [], [], timeout_s)[0]:
            port = self._sockets.index(end)
            found += [(port, frame) for frame in _frames_of(end)]
        return found

    def require_running(self) -> None:
        """See that it still runs; `TestbedError` if it has ended; the message says how."""
        if self._switch is not None and not self._switch.running:
            raise TestbedError(self._switch.how_it_ended())


def _packet_socket(interface: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    end.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
    end.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
    end.bind((interface, _ETH_P_ALL))
    end.setblocking(False)
    return end


def _frames_of(end: socket.socket) -> list[bytes]:
    """Return the frames that have come to a packet socket, without those that left by it."""
    frames: list[bytes] = []
    while True:
        try:
            frame, extra, _, address = end.recvmsg(1 << 16, socket.CMSG_SPACE(_AUXDATA.size))
        except BlockingIOError:
            return frames
        if address[2] == socket.PACKET_OUTGOING:
            continue
        for level, kind, content in extra:
            if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
                status, _, _, _, _, tag, tag_type = _AUXDATA.unpack(content)
                if status & _TP_STATUS_VLAN_VALID:  # Linux takes the tag out of the frame.
                    frame = frame[:12] + struct.pack("!HH", tag_type, tag) + frame[12:]
        frames.append(frame)


@contextmanager
def _network_namespace(name: str) -> Iterator[None]:
    """Be in another network namespace; sockets made there stay there."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(fd: int) -> None:
        if libc.setns(fd, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")

    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    other = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        enter(other)
        try:
            yield
        finally:
            enter(own)
    finally:
        os.close(own)
        os.close(other)
