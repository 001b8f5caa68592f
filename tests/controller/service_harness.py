"""A controller service in a thread, on embedded switches or on others."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from controller.service.client import OperatorClient
from controller.service.network import ControlledNetwork, HostSite, PortSite, SwitchSite
from controller.service.registry import JobRegistry, RegistryOptions
from controller.service.serve import RunningService, ServiceOptions, running_service
from host_agent.job_api import jobs_pb2
from host_agent.joining import Membership, join
from tests.controller.harness_switches import PROGRAM, use_switches

DEADLINE_S = 400.0
"""Deadline of every wait: machines may be slow."""


def fake_network(hosts: int = 4, any_place: bool = False) -> ControlledNetwork:
    """One switch, s1, and hosts h1, h2, … on its ports; they are addresses of this machine's loopback."""
    sites = {
        f"h{n}": HostSite(f"h{n}", f"127.0.2.{n}", f"02:00:00:00:00:{n:02x}", "s1")
        for n in range(1, hosts + 1)
    }
    stations = {site.mac: number for number, site in enumerate(sites.values(), 1)}
    switch = SwitchSite("s1", "fake-s1:1", 1, "127.0.2.254", "02:00:00:00:00:fe", stations)
    return ControlledNetwork({"s1": switch}, sites, any_place)


def fake_leaf_spine(per_leaf: tuple[int, ...], spines: int = 1) -> ControlledNetwork:
    """Leaves l1, l2, … with hosts on ports 1, 2, …, each with a link to every spine p1, p2, … by ports 101, 102, …."""
    hosts: dict[str, HostSite] = {}
    ports: dict[str, dict[int, PortSite]] = {}
    for leaf, count in enumerate(per_leaf, 1):
        ports[f"l{leaf}"] = {}
        for port in range(1, count + 1):
            n = len(hosts) + 1
            hosts[f"h{n}"] = HostSite(f"h{n}", f"127.0.2.{n}", f"02:00:00:00:00:{n:02x}", f"l{leaf}")
            ports[f"l{leaf}"][port] = PortSite("", f"h{n}")
    for spine in range(1, spines + 1):
        ports[f"p{spine}"] = {leaf: PortSite("", f"l{leaf}") for leaf in range(1, len(per_leaf) + 1)}
        for leaf in range(1, len(per_leaf) + 1):
            ports[f"l{leaf}"][100 + spine] = PortSite("", f"p{spine}")
    switches = {}
    for number, (name, on) in enumerate(ports.items(), 1):
        stations = {hosts[port.peer].mac: at for at, port in on.items() if port.peer in hosts}
        neighbours = {port.peer: at for at, port in on.items() if port.peer in ports}
        ip, mac = f"127.0.3.{number}", f"02:00:00:00:03:{number:02x}"
        switches[name] = SwitchSite(name, f"fake-{name}:1", number, ip, mac, stations, on, neighbours)
    return ControlledNetwork(switches, hosts)


class ServiceThread:
    """A service in a thread of its own."""

    service: RunningService

    def __init__(self, options: ServiceOptions) -> None:
        self.options = options
        self._begun = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._thread.start()
        assert self._begun.wait(DEADLINE_S)
        if self._fault is not None:
            self._thread.join()
            raise self._fault

    @property
    def address(self) -> str:
        return self.service.addresses[0]

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def ready(self) -> None:
        asyncio.run_coroutine_threadsafe(self.service.until_ready(), self._loop).result(DEADLINE_S)

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with running_service(self.options) as self.service:
                self._begun.set()
                await self._stop.wait()
        except BaseException as fault:
            self._fault = fault
            self._begun.set()


@contextlib.contextmanager
def service_on(options: ServiceOptions) -> Iterator[ServiceThread]:
    service = ServiceThread(options)
    try:
        yield service
    finally:
        service.stop()


class Bench:
    """A service on embedded switches, its operator, and what joins it."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, network: ControlledNetwork | None = None
    ) -> None:
        self._folder = folder
        self._network = network or fake_network()
        self.switches = use_switches(monkeypatch, self._network.switches.values(), 0.05)
        self.switch = next(iter(self.switches.values()))
        monkeypatch.setenv("NETSUM_HOST_LEAF", "0")  # The job's workers are threads of one process.
        self._stack = contextlib.ExitStack()
        self._threads = self._stack.enter_context(ThreadPoolExecutor(40))
        self.address = f"unix:{folder}/api.sock"
        self.operator = self._stack.enter_context(OperatorClient(self.address, timeout_s=DEADLINE_S))
        self._service: ServiceThread | None = None
        self.program: Path = PROGRAM.json
        """The compiled program of the next service; its other files lie beside it."""
        self.http: tuple[str, int] | None = None
        """Address of the next service's window."""

    def serve(self, **registry: Any) -> ServiceThread:
        """Start the service, or the next one on the same state."""
        self.stop()
        options: dict[str, Any] = {"grace_s": 1.0, "recovery_s": 0.5, "report_s": 0.1, **registry}
        self._service = ServiceThread(
            ServiceOptions(
                network=self._network,
                program=self.program,
                p4info=self.program.with_suffix(".p4info.txtpb"),
                state=self._folder / "state.sqlite3",
                listen=(self.address,),
                http=self.http,
                registry=RegistryOptions(**options),
            )
        )
        return self._service

    @property
    def window(self) -> str:
        assert self._service is not None
        return self._service.service.http

    @property
    def registry(self) -> JobRegistry:
        assert self._service is not None
        return self._service.service.registry

    @property
    def streams(self) -> int:
        """How many workers are connected."""
        assert self._service is not None
        return self._service.service.workers.streams

    def stop(self) -> None:
        if self._service is not None:
            self._service.stop()
            self._service = None

    def close(self) -> None:
        self.stop()
        self._stack.close()

    def joining(self, job: str, rank: int, world_size: int, **options: Any) -> Any:
        """Begin to join; the future's result is the member."""
        options.setdefault("addresses", [f"127.0.2.{rank + 1}"])
        options.setdefault("timeout_s", DEADLINE_S)
        return self._threads.submit(join, self.address, job=job, rank=rank, world_size=world_size, **options)

    def join_all(self, job: str, world_size: int, **options: Any) -> list[Membership]:
        futures = [self.joining(job, rank, world_size, **options) for rank in range(world_size)]
        return [future.result(DEADLINE_S) for future in futures]

    def job(self, name: str) -> jobs_pb2.JobView | None:
        return next((job for job in self.operator.jobs() if job.name == name), None)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def until(holds: Callable[[], object], what: str = "") -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, what or "it did not come to hold"
        time.sleep(0.01)
