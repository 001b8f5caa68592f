"""A running controller service: store, registry, job API and metrics, started together and stopped in order."""

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from controller.errors import ConfigError
from controller.program import CompiledFiles
from controller.service.network import Network
from controller.service.recovery import restore_jobs
from controller.service.registry import JobRegistry, RegistryOptions
from controller.service.rpc import AggregatorsService, OperatorsService, WorkersService
from controller.service.scheduler import Scheduler
from controller.service.sessions import Sessions
from controller.service.states import LinkState
from controller.service.store import Store
from controller.service.workers import WorkerSeats
from host_agent.job_api import DEFAULT_CONTROLLER, jobs_pb2_grpc
from netsum_common.channel import PLAINTEXT, TlsFiles, check_target

log = logging.getLogger(__name__)

STOP_GRACE_S = 0.5

_SERVER_OPTIONS = (
    # Otherwise a second server on the same port would receive every other call.
    ("grpc.so_reuseport", 0),
    # Together they bound how long a worker's machine can be cut off unnoticed.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
)


@dataclass(frozen=True)
class ServiceOptions:
    """The configuration of a controller service.

    Attributes
    ----------
    network
        Its switches and hosts.
    program, p4info
        The compiled program for its switches, and its P4Info.
    state
        The state file; ":memory:" for none.
    listen
        Addresses of the job API: "HOST:PORT" (port 0: any) or "unix:PATH".
    tls
        Certificates of the job API; with `ca`, workers and operators need certificates too.
    allow_remote
        Whether it may listen without TLS where other machines can reach it.
    metrics
        Address of the metrics for Prometheus; None for no metrics.
    registry
        Sizes and times.
    election_id
        Its election id at all switches.
    """

    network: Network
    program: Path
    p4info: Path
    state: Path | str = ":memory:"
    listen: tuple[str, ...] = (DEFAULT_CONTROLLER,)
    tls: TlsFiles = PLAINTEXT
    allow_remote: bool = False
    metrics: tuple[str, int] | None = None
    registry: RegistryOptions = field(default_factory=RegistryOptions)
    election_id: int = 1


@dataclass
class RunningService:
    """A running service.

    Attributes
    ----------
    registry, scheduler, workers
        Its jobs, what takes them on, and their seats.
    addresses
        Addresses of the job API.
    metrics
        Address of the metrics.
    links
        Ends with an error if the service cannot continue.
    """

    registry: JobRegistry
    scheduler: Scheduler
    workers: WorkerSeats
    addresses: tuple[str, ...]
    metrics: tuple[str, int] | None
    links: asyncio.Task[None]

    async def until_ready(self) -> None:
        """Wait until every switch has its program and its jobs."""
        for link in self.registry.switches.links.values():
            async with link.changed:
                await link.changed.wait_for(lambda link=link: link.state is LinkState.READY)  # type: ignore[misc]


@contextlib.asynccontextmanager
async def running_service(options: ServiceOptions) -> AsyncIterator[RunningService]:
    """Run a service for the duration of the block; its jobs continue afterwards.

    Raises
    ------
    ControllerError
        The configuration cannot be used.
    """
    files = CompiledFiles(options.program, options.p4info)
    slots = options.registry.slots
    if not 0 < slots <= files.slots or slots & (slots - 1):
        raise ConfigError(
            f"the default number of slots must be a power of two, at most the {files.slots} of the program, not {slots}"
        )
    for site in options.network.switches.values():
        if site.tls:
            site.tls.channel_credentials()  # Now rather than in the background.
    _check_addresses(options)  # Before the state's file is made.
    logging.getLogger("grpc._cython.cygrpc").addFilter(_without_traceback)
    async with contextlib.AsyncExitStack() as stack:
        store = stack.enter_context(Store(options.state))
        registry = JobRegistry(options.network, store, files, options.registry)
        scheduler = Scheduler(registry)
        sessions = Sessions(scheduler, options.election_id)
        workers = WorkerSeats(scheduler)
        restore_jobs(scheduler, workers)
        server = grpc.aio.server(options=_SERVER_OPTIONS)
        jobs_pb2_grpc.add_WorkersServicer_to_server(WorkersService(workers), server)  # type: ignore[no-untyped-call]
        aggregators = AggregatorsService(sessions)
        jobs_pb2_grpc.add_AggregatorsServicer_to_server(aggregators, server)  # type: ignore[no-untyped-call]
        jobs_pb2_grpc.add_OperatorsServicer_to_server(OperatorsService(scheduler), server)  # type: ignore[no-untyped-call]
        addresses = tuple(_listen(server, each, options) for each in options.listen)
        await server.start()
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        metrics = None
        if options.metrics is not None:
            from controller.service.metrics import serve_metrics

            http, metrics = serve_metrics(registry, workers, options.metrics)
            stack.callback(http.server_close)
            stack.callback(http.shutdown)
        links = asyncio.create_task(sessions.run())
        stack.push_async_callback(_cancelled, links)
        stack.callback(scheduler.close)
        yield RunningService(registry, scheduler, workers, addresses, metrics, links)


async def serve(options: ServiceOptions, announce: Callable[[dict[str, Any]], None]) -> None:
    """Run a service until SIGINT, SIGTERM or SIGHUP.

    Parameters
    ----------
    options
        Its configuration.
    announce
        Called with the addresses when all switches are ready.

    Raises
    ------
    ControllerError
        The configuration cannot be used.
    """
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, asked.set)
    async with running_service(options) as service:
        log.info("job API on %s", ", ".join(service.addresses))
        stopping = asyncio.create_task(asked.wait())
        ready = asyncio.create_task(service.until_ready())
        await asyncio.wait([stopping, ready, service.links], return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            announce({"addresses": service.addresses, "metrics": service.metrics})
            await asyncio.wait([stopping, service.links], return_when=asyncio.FIRST_COMPLETED)
        for task in (stopping, ready):
            task.cancel()
        if service.links.done():
            service.links.result()
    log.info("stopped; jobs go on, their state is in %s", options.state)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _check_addresses(options: ServiceOptions) -> None:
    """Refuse addresses that are written wrongly or open to other machines, and certificates that cannot be used."""
    for address in options.listen:
        check_target(address)
        if not options.tls and not address.startswith("unix:"):
            instead = "give a certificate (--tls-cert, --tls-key, --tls-ca), listen on 127.0.0.1 or unix:PATH"
            _refuse_remote(address.rpartition(":")[0], options, "the job API", instead)
    if options.tls:
        options.tls.server_credentials()
    if options.metrics is not None:
        _refuse_remote(options.metrics[0], options, "the metrics", "serve them on 127.0.0.1")


def _listen(server: Any, address: str, options: ServiceOptions) -> str:
    """Add an address to a server; return it with its port."""
    host, _, port = address.rpartition(":")
    if address.startswith("unix:"):
        _remove_stale_socket(Path(address.removeprefix("unix:")))
    try:
        if options.tls and not address.startswith("unix:"):
            bound = server.add_secure_port(address, options.tls.server_credentials())
        else:
            bound = server.add_insecure_port(address)
    except RuntimeError:
        raise ConfigError(
            f"the job API cannot listen on {address}: another controller may be using it; stop that one or choose another address"
        ) from None
    if address.startswith("unix:"):
        Path(address.removeprefix("unix:")).chmod(0o600)
        return address
    return f"{host}:{bound if port == '0' else port}"


def _refuse_remote(host: str, options: ServiceOptions, what: str, instead: str) -> None:
    """Refuse to serve unencrypted on an address that other machines reach, unless that is allowed."""
    if options.allow_remote:
        return
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ConfigError(
            f"{what} would be open to other machines on {host}: {instead}, or give --allow-remote"
        )


def _remove_stale_socket(path: Path) -> None:
    """Remove the socket of a killed controller: gRPC's error would not mention it."""
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            path.unlink()


def _without_traceback(record: logging.LogRecord) -> bool:
    """Shorten gRPC's traceback about bytes that are no message: any client can send some."""
    if record.exc_info and isinstance(record.exc_info[1], DecodeError):
        record.msg, record.args = "a call's bytes are no message of the job API: %s", (record.exc_info[1],)
        record.exc_info = record.exc_text = None
    return True
