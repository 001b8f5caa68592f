"""The same engine and program on UDP ports and shared memory of this machine, for real communicators in threads."""

import os
import secrets
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any

import pytest

from controller.jobs import WorkerEndpoint
from host_agent.communicator import Communicator
from host_agent.wire import Admission
from netsum_common.switch_options import UDP_PORT
from sim.switch.ports.chassis import Chassis, Forwarding
from sim.switch.ports.udp import UdpPorts

from .star import StarSwitch, mac_at

OWN_MAC = "02:00:7f:00:00:01"
NETWORK = f"127.{10 + int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0').removeprefix('gw'))}.1"
"""Addresses of this process alone, so that no other process takes a port that was found to be free."""


class LoopbackSwitch:
    """A switch that is up while the context lasts; worker w is at address w + 1 of `NETWORK` and switch port w."""

    def __init__(self, lanes: int = 64, workers: int = 3, drop_ppm: int = 0) -> None:
        # An admission serves one communicator of a process, and another test's switch may have had the same port.
        self._switch = StarSwitch(lanes, token_seed=secrets.randbits(32))
        self._switch.tables.set_switch_address("127.0.0.1", OWN_MAC)
        self._ports = UdpPorts([(port, 0) for port in range(workers)], drop_ppm=drop_ppm)
        self._ports.share_memory(self._ports.addresses, UDP_PORT)
        self.chassis = Chassis(self._ports)
        with self.chassis.turn:
            self.chassis.install(self._switch.engine)
        self._forwarding = Forwarding(self.chassis)
        self._workers = workers
        self._up = False

    def __enter__(self) -> "LoopbackSwitch":
        self._forwarding.start()
        self._up = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """Close the switch's sockets."""
        if self._up:
            self._up = False
            self._forwarding.stop()
            self._ports.close()

    def start_job(self, slots: int = 16, quorum: int = 0) -> list[tuple[Admission, tuple[str, int]]]:
        """Admit a job on fresh UDP ports; returns each worker's admission and address to bind."""
        addresses = [_free_address(worker) for worker in range(self._workers)]
        with self.chassis.turn:
            job = self._switch.start_job(
                "job",
                [WorkerEndpoint(port, ip, mac_at(port), udp) for port, (ip, udp) in enumerate(addresses)],
                slots,
                quorum=quorum,
            )
        switches = self._ports.addresses
        return [
            (replace(admission, switch=switches[worker]), address)
            for worker, (admission, address) in enumerate(zip(job.admissions, addresses, strict=True))
        ]


def _free_address(worker: int) -> tuple[str, int]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((f"{NETWORK}.{worker + 1}", 0))
        host, port = probe.getsockname()
        return host, port


def each_link(request: pytest.FixtureRequest) -> Iterator[str]:
    """Let communicators use the link that the parameter names; body of a fixture."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NETSUM_LINK", request.param)
        yield request.param


def on_all(communicators: list[Communicator], action: Callable[[Communicator], Any]) -> list[Any]:
    """Run the same on all workers at once; returns results, and exceptions as results."""

    def run(communicator: Communicator) -> Any:
        try:
            return action(communicator)
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(communicators)) as pool:
        return list(pool.map(run, communicators))
