"""Workers with scripted messages, and controllers of a testbed's switch."""

import ctypes
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from controller.jobs import Job, WorkerEndpoint
from host_agent.wire.admission import Admission
from host_agent.wire.constants import (
    EXPONENT_ALL_ZERO,
    FLAG_LANES,
    HEADER_BYTES,
    KIND_CONTRIBUTE,
    OP_SUM,
    VERSION,
)
from host_agent.wire.header import Header
from netsum.programs import compiled_program
from tests.controller.switch_controller import SwitchController
from topologies.hosts import Host, SwitchTestbed

LANES = 64
ANSWER_TIMEOUT_S = 400.0
"""Deadline of answers, and of the switch; machines may be slow."""
SILENCE_S = 0.2
CLONE_NEWNET = 0x40000000


def connect(testbed: SwitchTestbed, **options: float) -> SwitchController:
    program = compiled_program(LANES)
    return SwitchController.connect(
        testbed.p4runtime_address,
        program=program.json,
        p4info=program.p4info,
        device_id=testbed.spec.device_id,
        timeout_s=ANSWER_TIMEOUT_S,
        **options,  # type: ignore[arg-type]  # the tests name them
    )


def endpoint(host: Host, udp_port: int) -> WorkerEndpoint:
    return WorkerEndpoint(host.port, host.ip, host.mac, udp_port, switch=host.switch)


class ScriptedWorker:
    """A worker with scripted messages, on a socket of its host."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self.udp_port: int = opened.getsockname()[1]

    def contribute(self, admission: Admission, chunk: int, value: int, **changes: int) -> None:
        """Send a contribution whose every lane is one value."""
        slots = admission.slot_count
        header = Header(
            version=VERSION,
            kind=KIND_CONTRIBUTE,
            quorum=0,
            op=OP_SUM,
            flags=FLAG_LANES,
            job_id=admission.job_id,
            token=admission.token,
            worker_id=admission.worker_id,
            num_workers=0,
            pool_index=chunk % slots * 2 + chunk // slots % 2,
            chunk=chunk,
            exponent=EXPONENT_ALL_ZERO,
            fingerprint=1,
        )._replace(**changes)
        lanes = value.to_bytes(4, "big", signed=True) * admission.lanes
        self._socket.sendto(header.to_bytes() + lanes, admission.switch)

    def receive(self, timeout_s: float = ANSWER_TIMEOUT_S) -> tuple[Header, set[int]] | None:
        """Return the next answer and the values in its lanes; None if none comes."""
        self._socket.settimeout(timeout_s)
        try:
            datagram = self._socket.recv(2048)
        except TimeoutError:
            return None
        lanes = datagram[HEADER_BYTES:]
        values = {int.from_bytes(lanes[at : at + 4], "big", signed=True) for at in range(0, len(lanes), 4)}
        return Header.from_bytes(datagram), values

    def hears_nothing(self) -> bool:
        return self.receive(SILENCE_S) is None


@contextmanager
def scripted_workers(testbed: SwitchTestbed, count: int) -> Iterator[list[ScriptedWorker]]:
    """A worker on each of the first hosts, on a UDP port of its own."""
    with ExitStack() as sockets:
        yield [ScriptedWorker(sockets.enter_context(open_socket(host))) for host in testbed.hosts[:count]]


def open_socket(host: Host) -> socket.socket:
    """Open a UDP socket on a host; one made in a network namespace stays there in every thread."""
    if not host.prefix:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    else:
        made: list[socket.socket] = []
        maker = threading.Thread(target=lambda: made.append(_socket_inside(host.prefix[-1])))
        maker.start()
        maker.join()
        opened = made[0]
    opened.bind((host.ip, 0))
    return opened


def _socket_inside(namespace_pid: str) -> socket.socket:
    """For a thread of its own, which does not come back from the namespace."""
    entered = os.open(f"/proc/{namespace_pid}/ns/net", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(entered, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(entered)
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def admit(
    controller: SwitchController,
    testbed: SwitchTestbed,
    name: str,
    workers: list[ScriptedWorker],
    slots: int = 4,
) -> Job:
    """Admit a job of these scripted_workers, on the hosts they are on."""
    endpoints = [
        endpoint(host, worker.udp_port) for host, worker in zip(testbed.hosts, workers, strict=False)
    ]
    return controller.create_job(name, endpoints, slots)
