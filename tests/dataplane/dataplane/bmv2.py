"""BMv2 as a target: `simple_switch_grpc` in a namespace, its ports cabled to our packet sockets."""

import ctypes
import os
import select
import shutil
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from topologies import namespaces
from topologies.children import Child, TestbedError
from topologies.runs import delete_leftover_folders, new_run_id, socket_folder

from .programming import Programmed, Programming
from .target import CPU_PORT, PORTS, Entry, Packet, program_files

DEADLINE_S = 400.0
START_DEADLINE_S = 400.0
ETH_P_ALL = 3
CLONE_NEWNET = 0x40000000
SO_RCVBUFFORCE = 33
SOL_PACKET = 263
PACKET_AUXDATA = 8
AUXDATA = struct.Struct("=IIIHHHH")
TP_STATUS_VLAN_VALID = 0x10
RECEIVE_BUFFER_BYTES = 1 << 23
BURST = 32
"""Packets in a row before the switch is waited for; its queue per port has 64 places."""

SENTINEL_PORT = PORTS
SENTINEL_TYPE = 0x88B5  # IEEE 802, local experimental
SENTINEL_MAC = 0x0253454E0000  # goes to the sentinel port
SENTINEL_ALL_MAC = 0x0253454E0001  # goes to all other ports
SENTINEL_GROUP = 0x105E


def why_not() -> str | None:
    """Say what is missing for BMv2 here."""
    if shutil.which("simple_switch_grpc") is None:
        return "BMv2 (simple_switch_grpc) is not on PATH"
    return namespaces.missing_for_namespaces()


@contextmanager
def network_namespace(name: str) -> Iterator[None]:
    """Be in another network namespace; sockets made there stay there."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(fd: int) -> None:
        if libc.setns(fd, CLONE_NEWNET):
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


class Bmv2Target(Programmed):
    """BMv2 with the compiled program in it.

    Sentinels show that the switch is done with a packet: a frame to the sentinel port passes ingress, one
    thread, behind it; a frame from there to all other ports passes their egress queues behind all else.
    """

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        delete_leftover_folders()
        namespaces.delete_leftovers()
        run_id = new_run_id()
        self._namespaces = [namespaces.namespace_name(run_id, role) for role in ("ends", "switch")]
        self._folder = socket_folder(run_id)
        self._sockets: list[socket.socket] = []
        self._switch: Child | None = None
        self._sequence = 0
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        ends, switch = self._namespaces
        for namespace in self._namespaces:
            namespaces.add_namespace(namespace)
        for port in range(PORTS + 1):
            namespaces.add_cable(ends, f"end{port}", switch, f"port{port}")
        with network_namespace(ends):
            for port in range(PORTS + 1):
                end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
                end.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
                end.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
                end.bind((f"end{port}", ETH_P_ALL))
                end.setblocking(False)
                self._sockets.append(end)
        address = self._folder / "p4runtime"
        self._switch = Child(
            "BMv2",
            [
                *namespaces.inside(switch),
                "simple_switch_grpc",
                *(
                    "--no-p4",
                    "--device-id",
                    "1",
                    "--notifications-addr",
                    f"ipc://{self._folder}/notifications",
                ),
                *(word for port in range(PORTS + 1) for word in ("-i", f"{port}@port{port}")),
                *("--", "--grpc-server-addr", f"unix:{address}", "--cpu-port", str(CPU_PORT)),
            ],
            self._folder / "switch.log",
        )
        deadline = time.monotonic() + START_DEADLINE_S
        while not address.exists():
            self._check_alive()
            if time.monotonic() > deadline:
                raise TestbedError(f"BMv2 was not ready within {START_DEADLINE_S:g} s")
            time.sleep(0.05)
        self.programming = Programming(f"unix:{address}", 1, *program_files(self.lanes))
        self.set_group(SENTINEL_GROUP, [(port, 0) for port in range(PORTS + 1)])
        self.insert(
            [
                Entry("l2_forward", {"dst": SENTINEL_MAC}, "forward", {"port": SENTINEL_PORT}),
                Entry("l2_forward", {"dst": SENTINEL_ALL_MAC}, "flood", {"mcast_group": SENTINEL_GROUP}),
            ]
        )
        self.send([])

    def close(self) -> None:
        for end in self._sockets:
            end.close()
        if hasattr(self, "programming"):
            self.programming.close()
        if self._switch is not None:
            self._switch.stop()
        namespaces.delete_namespaces(self._namespaces)
        shutil.rmtree(self._folder, ignore_errors=True)

    def send(self, packets: Sequence[Packet]) -> list[Packet]:
        out: list[Packet] = []
        start, waiting = 0, 0
        while start < len(packets):
            port = packets[start][0]
            end = start
            while end < len(packets) and packets[end][0] == port and waiting < BURST:
                self._sockets[port].send(packets[end][1])
                end, waiting = end + 1, waiting + 1
            self._sentinel(port, SENTINEL_MAC, [SENTINEL_PORT], out)
            if waiting == BURST:
                self._sentinel(SENTINEL_PORT, SENTINEL_ALL_MAC, range(PORTS), out)
                waiting = 0
            start = end
        if waiting or not packets:
            self._sentinel(SENTINEL_PORT, SENTINEL_ALL_MAC, range(PORTS), out)
        return out

    def send_from_controller(self, egress_port: int, frame: bytes) -> list[Packet]:
        self.programming.packet_out(egress_port, frame)
        deadline = time.monotonic() + DEADLINE_S
        while not select.select(self._sockets, [], [], 0.1)[0] and time.monotonic() < deadline:
            self._check_alive()
        return self.send([])

    def _sentinel(self, port: int, mac: int, where: Iterable[int], out: list[Packet]) -> None:
        """Send a sentinel and collect what comes out until it has come wherever it must."""
        self._sequence += 1
        mark = struct.pack("!HI", SENTINEL_TYPE, self._sequence)
        self._sockets[port].send(mac.to_bytes(6, "big") + bytes(6) + mark + bytes(42))
        waiting = set(where)
        deadline = time.monotonic() + DEADLINE_S
        while waiting:
            readable = select.select(self._sockets, [], [], 0.2)[0]
            for end in readable:
                at = self._sockets.index(end)
                for frame in self._receive(end):
                    if frame[12:18] == mark:
                        waiting.discard(at)
                    elif frame[12:14] != mark[:2]:
                        out.append((at, frame))
            if not readable:
                self._check_alive()
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"a sentinel from port {port} did not come out of ports {sorted(waiting)}"
                )

    @staticmethod
    def _receive(end: socket.socket) -> list[bytes]:
        frames = []
        while True:
            try:
                frame, extra, _, address = end.recvmsg(1 << 16, socket.CMSG_SPACE(AUXDATA.size))
            except BlockingIOError:
                return frames
            if address[2] == socket.PACKET_OUTGOING:
                continue
            for level, kind, content in extra:
                if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                    status, _, _, _, _, tag, tag_type = AUXDATA.unpack(content)
                    if status & TP_STATUS_VLAN_VALID:  # Linux takes the tag out of the frame
                        frame = frame[:12] + struct.pack("!HH", tag_type, tag) + frame[12:]
            frames.append(frame)

    def _check_alive(self) -> None:
        assert self._switch is not None
        if not self._switch.running:
            raise AssertionError(self._switch.how_it_ended())
